// SPDX-License-Identifier: Apache-2.0
#include "base/file_error.h"

#include <cerrno>

namespace ingero {

const char* ReadAdvice(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "; read it as the user whose it is, or with sudo";
    case ELOOP:
      return "; a symbolic link there leads back to itself: name the file";
    default:
      return "";
  }
}

const char* WriteAdvice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space or write elsewhere";
    case EFBIG:
      return "; raise the limit on the size of files (ulimit -f), or write to a "
             "file system that takes larger ones";
    case EBADF:
      return "; standard output is closed or not for writing: open it, or "
             "write to a file";
    case EACCES:
    case EPERM:
      return "; write to a folder of your own";
    case ENOENT:
      return "; make its folder first, or write elsewhere";
    case ENOTDIR:
      return "; a part of this path is a file, not a folder: write elsewhere";
    case EISDIR:
      return "; it is a folder: name a file in it";
    default:
      return "; write elsewhere";
  }
}

Status CannotOpen(const std::string& path, int error) {
  return Status::Error(Status::Errno("open " + path, error).message() +
                       ReadAdvice(error));
}

Status CannotWrite(const std::string& path, int error) {
  return Status::Error(Status::Errno("cannot write " + path, error).message() +
                       WriteAdvice(error));
}

Status CannotUseFolder(const std::string& path, int error) {
  // One that is far too long fills the terminal, and its beginning is enough.
  constexpr size_t kShown = 160;
  const std::string shown =
      path.size() <= kShown ? path : path.substr(0, kShown) + "...";
  const char* why = nullptr;
  switch (error) {
    case ENOENT: why = "no folder can be made there"; break;
    case EROFS: why = "its file system can only be read"; break;
    case ENOTDIR: why = "it, or a part of this path, is a file"; break;
    case ENAMETOOLONG: why = "this path is longer than it may be"; break;
    default: break;
  }
  return Status::Error(
      (why == nullptr ? Status::Errno("folder " + shown, error).message()
                      : "folder " + shown + ": " + why) +
      "; name another one (INGERO_DIR, --dir)");
}

}  // namespace ingero
