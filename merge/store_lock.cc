// SPDX-License-Identifier: Apache-2.0
#include "merge/store_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

namespace ingero::merge {

Result<StoreLock> StoreLock::Take(const std::string& store,
                                   bool wait) {
  const std::string path = store + "/merge.lock";
  INGERO_ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDWR | O_CREAT, 0644));
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
