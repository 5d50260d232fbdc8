// SPDX-License-Identifier: Apache-2.0
// Files: descriptors that close themselves, whole-file reads, and reads of
// files that others write, cut or damage meanwhile.
//
// Traces are read with pread, never through a mapping: a file that is cut
// while it is mapped answers the next access with SIGBUS.
//
// Threads: each object for one thread; InputFile::ReadAt from any.
// Errors: Status with path and reason.
#ifndef INGERO_BASE_FILE_H_
#define INGERO_BASE_FILE_H_

#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace ingero {

// Owns a file descriptor; -1 = none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// open(2) with O_CLOEXEC, repeated on EINTR.
Result<Fd> OpenFile(const std::string& path, int flags, mode_t mode = 0600);
// The same below the open directory `dir`, whose path is `dir_path`.
Result<Fd> OpenFileAt(int dir, const std::string& dir_path,
                      const std::string& name, int flags, mode_t mode = 0600);

inline constexpr size_t kMaxWholeFileBytes = 64u << 20;
// The whole file; also /proc and /sys files, whose size says 0. More than
// max_bytes is an error.
Result<std::string> ReadWholeFile(const std::string& path,
                                  size_t max_bytes = kMaxWholeFileBytes);

// All of `data`, whatever write(2) takes at once.
Status WriteAll(int fd, std::string_view data);
Status WriteAllAt(int fd, std::string_view data, uint64_t offset);

// Writes a new file beside `path`, syncs it and renames it over `path`: a
// reader sees the old contents or the new, also after a crash. A symbolic link
// at `path` is replaced, not followed. uid and gid: owner, -1 = as created.
Status ReplaceFile(const std::string& path, std::string_view contents,
                   mode_t mode = 0600, uid_t uid = static_cast<uid_t>(-1),
                   gid_t gid = static_cast<gid_t>(-1));

// A regular file that another process may be writing.
class InputFile {
 public:
  // Refuses what is not a regular file, and a symbolic link where
  // follow_links is false.
  static Result<InputFile> Open(const std::string& path,
                                bool follow_links = true);

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  // Now; a writer may have added to it.
  Result<uint64_t> Size() const;
  // Reads up to `bytes` at `offset`; fewer only at the end of the file.
  Result<size_t> ReadAt(uint64_t offset, void* to, size_t bytes) const;
  // Replaces *to; its size is what there was.
  Status ReadAt(uint64_t offset, size_t bytes, std::string* to) const;

 private:
  std::string path_;
  Fd fd_;
};

}  // namespace ingero

#endif  // INGERO_BASE_FILE_H_
