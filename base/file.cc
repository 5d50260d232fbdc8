// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/file_error.h"

namespace ingero {
namespace {

// Of a read that may be cut short or interrupted; -1 and errno on failure.
template <typename ReadSome>
ssize_t ReadFully(size_t bytes, ReadSome read_some) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = read_some(done, bytes - done);
    if (n < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

Status WriteFailed(int error) {
  return Status::Error(Status::Errno("write", error).message() +
                       WriteAdvice(error));
}

template <typename WriteSome>
Status WriteFully(size_t bytes, WriteSome write_some) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = write_some(done, bytes - done);
    if (n < 0) {
      if (errno == EINTR) continue;
      return WriteFailed(errno);
    }
    if (n == 0) return WriteFailed(ENOSPC);
    done += static_cast<size_t>(n);
  }
  return {};
}

// `said`: what an error calls it.
Result<Fd> Open(int dir, const std::string& name, const std::string& said,
                int flags, mode_t mode) {
  int fd;
  do {
    fd = openat(dir, name.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd >= 0) return Fd(fd);
  if ((flags & O_ACCMODE) == O_RDONLY) return CannotOpen(said, errno);
  return CannotWrite(said, errno);
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

void Fd::reset(int fd) {
  // Not repeated on EINTR: Linux has closed it by then.
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

Result<Fd> OpenFile(const std::string& path, int flags, mode_t mode) {
  return Open(AT_FDCWD, path, path, flags, mode);
}

Result<Fd> OpenFileAt(int dir, const std::string& dir_path,
                      const std::string& name, int flags, mode_t mode) {
  return Open(dir, name, dir_path + "/" + name, flags, mode);
}

Result<std::string> ReadWholeFile(const std::string& path, size_t max_bytes) {
  INGERO_ASSIGN_OR_RETURN(const Fd fd, OpenFile(path, O_RDONLY));
  std::string contents;
  size_t chunk = 4096;
  for (;;) {
    const size_t done = contents.size();
    contents.resize(done + chunk);
    const ssize_t n = ReadFully(chunk, [&](size_t at, size_t bytes) {
      return read(fd.get(), contents.data() + done + at, bytes);
    });
    if (n < 0) return Status::Errno("read " + path, errno);
    contents.resize(done + static_cast<size_t>(n));
    if (contents.size() > max_bytes)
      return Status::Error("read " + path + ": larger than " +
                           std::to_string(max_bytes) + " bytes");
    if (static_cast<size_t>(n) < chunk) return contents;
    chunk = std::min<size_t>(2 * chunk, 1 << 20);
  }
}

Status WriteAll(int fd, std::string_view data) {
  return WriteFully(data.size(), [&](size_t at, size_t bytes) {
    return write(fd, data.data() + at, bytes);
  });
}

Status WriteAllAt(int fd, std::string_view data, uint64_t offset) {
  return WriteFully(data.size(), [&](size_t at, size_t bytes) {
    return pwrite(fd, data.data() + at, bytes,
                  static_cast<off_t>(offset + at));
  });
}

Status ReplaceFile(const std::string& path, std::string_view contents,
                   mode_t mode, uid_t uid, gid_t gid) {
  std::string temporary = path + ".XXXXXX";
  Fd fd(mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd.valid()) return Status::Errno("create a file beside " + path, errno);
  const auto write_all = [&]() -> Status {
    INGERO_RETURN_IF_ERROR(WriteAll(fd.get(), contents));
    if ((uid != static_cast<uid_t>(-1) || gid != static_cast<gid_t>(-1)) &&
        fchown(fd.get(), uid, gid) != 0)
      return Status::Errno("chown", errno);
    if (fchmod(fd.get(), mode) != 0) return Status::Errno("chmod", errno);
    if (fsync(fd.get()) != 0) return Status::Errno("fsync", errno);
    if (rename(temporary.c_str(), path.c_str()) != 0)
      return Status::Errno("rename", errno);
    return {};
  };
  if (Status status = write_all(); !status.ok()) {
    unlink(temporary.c_str());
    return std::move(status).In("write " + path);
  }
  // The rename itself reaches the disk with its directory.
  Result<Fd> dir = OpenFile(DirectoryOf(path), O_RDONLY | O_DIRECTORY);
  if (dir.ok()) fsync(dir->get());
  return {};
}

Result<InputFile> InputFile::Open(const std::string& path, bool follow_links) {
  InputFile file;
  file.path_ = path;
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  INGERO_ASSIGN_OR_RETURN(
      file.fd_, OpenFile(path, O_RDONLY | O_NONBLOCK |
                                   (follow_links ? 0 : O_NOFOLLOW)));
  struct stat st;
  if (fstat(file.fd_.get(), &st) != 0)
    return Status::Errno("stat " + path, errno);
  if (!S_ISREG(st.st_mode))
    return Status::Error("open " + path +
                         ": not a regular file; name a file (what a pipe "
                         "brings must be written to one first)");
  return file;
}

Result<uint64_t> InputFile::Size() const {
  struct stat st;
  if (fstat(fd_.get(), &st) != 0) return Status::Errno("stat " + path_, errno);
  return static_cast<uint64_t>(st.st_size);
}

Result<size_t> InputFile::ReadAt(uint64_t offset, void* to,
                                 size_t bytes) const {
  const ssize_t n = ReadFully(bytes, [&](size_t at, size_t rest) {
    return pread(fd_.get(), static_cast<char*>(to) + at, rest,
                 static_cast<off_t>(offset + at));
  });
  if (n < 0) return Status::Errno("read " + path_, errno);
  return static_cast<size_t>(n);
}

Status InputFile::ReadAt(uint64_t offset, size_t bytes,
                         std::string* to) const {
  to->resize(bytes);
  INGERO_ASSIGN_OR_RETURN(const size_t n, ReadAt(offset, to->data(), bytes));
  to->resize(n);
  return {};
}

}  // namespace ingero
