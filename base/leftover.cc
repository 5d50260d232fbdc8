// SPDX-License-Identifier: Apache-2.0
#include "base/leftover.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "base/file_error.h"

namespace ingero {
namespace {

// Of this process: a child between fork and exec removes nothing of ours.
struct Slot {
  std::atomic<const char*> path{nullptr};
  std::atomic<bool> folder{false};
  std::atomic<pid_t> owner{0};
};
Slot g_slots[kMostLeftovers];

constexpr int kMostDepth = 16;

// Between making a folder and saying so none may end this process.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_;
};

// A folder's entries as the kernel gives them (getdents64(2)).
struct Entry {
  uint64_t inode;
  int64_t offset;
  uint16_t bytes;
  uint8_t type;
  char name[];
};

// What a signal handler may call, only. Follows no link.
void Remove(int dir, const char* name, bool folder, int depth,
            int tries = 16) {
  if (unlinkat(dir, name, 0) == 0 || !folder ||
      (errno != EISDIR && errno != EPERM))
    return;
  const int fd =
      openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  alignas(Entry) char entries[4096];
  // Again from the start, since what is removed moves the rest; ends where
  // nothing can be removed any more.
  for (long removed = 1; depth < kMostDepth && removed > 0;) {
    removed = 0;
    lseek(fd, 0, SEEK_SET);
    const long n = syscall(SYS_getdents64, fd, entries, sizeof(entries));
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const Entry*>(entries + at);
      at += entry->bytes;
      if (std::strcmp(entry->name, ".") == 0 ||
          std::strcmp(entry->name, "..") == 0)
        continue;
      Remove(fd, entry->name, true, depth + 1);
      struct stat st;
      removed += fstatat(fd, entry->name, &st, AT_SYMLINK_NOFOLLOW) != 0;
    }
  }
  close(fd);
  // What somebody else (the companion) made in it meanwhile goes, too.
  if (unlinkat(dir, name, AT_REMOVEDIR) != 0 && errno == ENOTEMPTY &&
      tries > 0)
    Remove(dir, name, folder, depth, tries - 1);
}

}  // namespace

Leftover::Leftover(std::string path, Kind kind)
    : path_(std::make_unique<const std::string>(std::move(path))), kind_(kind) {
  for (size_t i = 0; i < kMostLeftovers; ++i) {
    const char* none = nullptr;
    if (!g_slots[i].path.compare_exchange_strong(none, path_->c_str()))
      continue;
    g_slots[i].folder = kind == kFolder;
    g_slots[i].owner = getpid();
    slot_ = static_cast<int>(i);
    return;
  }
}

Leftover& Leftover::operator=(Leftover&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(kind_, other.kind_);
  std::swap(slot_, other.slot_);
  return *this;
}

Leftover::~Leftover() {
  if (path_ == nullptr) return;
  Remove(AT_FDCWD, path_->c_str(), kind_ == kFolder, 0);
  Forget();
}

void Leftover::Forget() {
  if (slot_ >= 0) {
    g_slots[slot_].owner = 0;
    g_slots[slot_].path = nullptr;
  }
  slot_ = -1;
  path_.reset();
}

Result<Leftover> MakeNewFolder(const std::string& path, mode_t mode) {
  const SignalsWait wait;
  if (mkdir(path.c_str(), mode) == 0) return Leftover(path, Leftover::kFolder);
  if (errno != EEXIST) return CannotWrite(path, errno);
  return Leftover();
}

Result<Leftover> MakeScratchFolder(const std::string& prefix) {
  const SignalsWait wait;
  std::string path = prefix + ".XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return CannotWrite(path, errno);
  return Leftover(path, Leftover::kFolder);
}

Result<Leftover> MakeScratchFolderInTmp(const std::string& name) {
  const char* given = std::getenv("TMPDIR");
  std::string folder = given == nullptr || *given == '\0' ? "/tmp" : given;
  // What is started in another folder is told of it, too.
  std::error_code error;
  if (const auto absolute = std::filesystem::absolute(folder, error); !error)
    folder = absolute.string();
  return MakeScratchFolder(folder + "/" + name);
}

bool RemoveLeftovers() {
  const int error = errno;
  bool any = false;
  // What was begun last goes first.
  for (size_t i = kMostLeftovers; i-- > 0;) {
    const char* path = g_slots[i].path;
    if (path == nullptr || g_slots[i].owner != getpid()) continue;
    Remove(AT_FDCWD, path, g_slots[i].folder, 0);
    any = true;
  }
  errno = error;
  return any;
}

}  // namespace ingero
