// SPDX-License-Identifier: Apache-2.0
#include "merge/store_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#include "base/file_error.h"

namespace ingero::merge {

Result<StoreLock> StoreLock::Take(const std::string& store,
                                   bool wait) {
  const std::string path = store + "/merge.lock";
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return CannotWrite(path, errno);
  while (flock(fd.get(), LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return Status::Errno("lock " + path, errno);
    return Status::Error("another merge is writing " + store +
                         "; wait for it to end (its result will hold the same "
                         "data)");
  }
  return StoreLock(std::move(fd));
}

}  // namespace ingero::merge
