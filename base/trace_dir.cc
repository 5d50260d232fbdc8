// SPDX-License-Identifier: Apache-2.0
#include "base/trace_dir.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "base/file_error.h"

namespace ingero {
namespace {

constexpr std::string_view kSubfolder = "/ingero";

struct NetworkFs {
  uint32_t magic;  // statfs f_type
  const char* name;
};

// Where a shared writable mapping is slow, may lose what a killed program
// wrote, or is not possible at all. The same list is in preload/session.c.
// FUSE stands for sshfs, s3fs and kin: statfs does not tell them apart.
constexpr NetworkFs kNetworkFs[] = {
    {0x00006969, "NFS"},    {0x0000517b, "SMB"},    {0xfe534d42, "SMB"},
    {0xff534d42, "CIFS"},   {0x65735546, "FUSE"},   {0x0bd00bd0, "Lustre"},
    {0x47504653, "GPFS"},   {0x00c36400, "Ceph"},   {0x5346414f, "AFS"},
    {0x01021997, "9p"},     {0x19830326, "BeeGFS"}, {0xaad7aaea, "PanFS"},
};

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<uint32_t> EnvironmentId(const char* name) {
  const std::string text = Environment(name);
  uint32_t id = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), id);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return id;
}

std::string PasswdHome(uint32_t uid) {
  // NSS modules may allocate and talk to daemons; 64 KiB holds any real entry.
  std::string buffer(64 << 10, '\0');
  struct passwd entry, *found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 ||
      found == nullptr || entry.pw_dir == nullptr || entry.pw_dir[0] != '/')
    return "";
  return entry.pw_dir;
}

// The file system that `path`, or what of it exists, lies on.
const char* NetworkFsName(std::string path) {
  struct statfs fs;
  while (statfs(path.c_str(), &fs) != 0) {
    if (errno == EINTR) continue;
    if (path.size() <= 1) return nullptr;
    path.resize(std::max<size_t>(1, path.rfind('/')));
  }
  for (const NetworkFs& network : kNetworkFs)
    if (static_cast<uint32_t>(fs.f_type) == network.magic) return network.name;
  return nullptr;
}

bool OwnedBy(const std::string& path, uint32_t uid) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && st.st_uid == uid;
}

// The folder of `uid` by the rules for one without INGERO_DIR.
TraceDir StateDir(uint32_t uid, uint32_t gid, bool use_environment) {
  TraceDir dir;
  dir.uid = uid;
  dir.gid = gid;
  const std::string temporary = "/tmp/ingero-" + std::to_string(uid);

  std::string state;
  if (use_environment) state = Environment("XDG_STATE_HOME");
  // A relative path is invalid there, by the XDG specification. Under `sudo
  // -s` it may be root's, and then is not where the user's programs write.
  if (state.empty() || state[0] != '/' ||
      (uid != geteuid() && !OwnedBy(state, uid))) {
    std::string home;
    if (use_environment && uid == geteuid()) home = Environment("HOME");
    if (home.empty() || home[0] != '/') home = PasswdHome(uid);
    if (home.empty()) {
      dir.path = temporary;
      dir.note = "no home directory; using " + dir.path;
      return dir;
    }
    while (home.size() > 1 && home.back() == '/') home.pop_back();
    state = (home == "/" ? "" : home) + "/.local/state";
  }
  while (state.size() > 1 && state.back() == '/') state.pop_back();
  dir.path = state + std::string(kSubfolder);
  if (const char* network = NetworkFsName(dir.path); network != nullptr) {
    dir.note = dir.path + " is on a network file system (" + network +
               "); using " + temporary;
    dir.path = temporary;
  }
  return dir;
}

// The user who called sudo; nullopt outside sudo.
struct Caller {
  uint32_t uid, gid;
};
std::optional<Caller> SudoCaller() {
  if (geteuid() != 0) return std::nullopt;
  const std::optional<uint32_t> uid = EnvironmentId("SUDO_UID");
  const std::optional<uint32_t> gid = EnvironmentId("SUDO_GID");
  if (!uid || *uid == 0) return std::nullopt;
  return Caller{*uid, gid.value_or(*uid)};
}

// Does file work with another user's rights, so that root, led by a link in a
// user's folder, creates nothing where that user could not.
class ScopedFileUser {
 public:
  ScopedFileUser(uint32_t uid, uint32_t gid) {
    if (geteuid() != 0 || uid == 0) return;
    setfsgid(gid);
    setfsuid(uid);
    active_ = true;
  }
  ScopedFileUser(const ScopedFileUser&) = delete;
  ScopedFileUser& operator=(const ScopedFileUser&) = delete;
  ~ScopedFileUser() {
    if (!active_) return;
    setfsuid(geteuid());
    setfsgid(getegid());
  }

 private:
  bool active_ = false;
};

}  // namespace

TraceDir DefaultTraceDir() {
  const std::optional<Caller> caller = SudoCaller();
  const uint32_t uid = caller ? caller->uid : geteuid();
  const uint32_t gid = caller ? caller->gid : getegid();
  if (std::string path = Environment("INGERO_DIR"); !path.empty()) {
    // What was asked for is taken, on any file system.
    std::error_code error;
    std::filesystem::path absolute = std::filesystem::absolute(path, error);
    path = error ? path : absolute.lexically_normal().string();
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return {path, uid, gid, ""};
  }
  return StateDir(uid, gid, true);
}

std::vector<std::string> DefaultTraceDirs() {
  std::vector<std::string> dirs = {DefaultTraceDir().path};
  if (!Environment("INGERO_DIR").empty() &&
      Environment("INGERO_DIR_ONLY") == "1")
    return dirs;
  const auto add = [&dirs](uint32_t uid, uint32_t gid) {
    std::string path = StateDir(uid, gid, false).path;
    if (std::find(dirs.begin(), dirs.end(), path) == dirs.end())
      dirs.push_back(std::move(path));
  };
  // HOME and the like count for the first alone: only the passwd entry is the
  // same for a program with them and for a companion without.
  const std::optional<Caller> caller = SudoCaller();
  if (caller) add(caller->uid, caller->gid);
  if (caller || !Environment("INGERO_DIR").empty() ||
      !Environment("XDG_STATE_HOME").empty())
    add(geteuid(), getegid());
  return dirs;
}

Status CreateTraceDir(const TraceDir& dir) {
  if (dir.path.empty() || dir.path[0] != '/')
    return Status::Error("trace folder '" + dir.path +
                         "': not an absolute path");
  {
    const ScopedFileUser as_owner(dir.uid, dir.gid);
    for (size_t slash = dir.path.find('/', 1);;
         slash = dir.path.find('/', slash + 1)) {
      const std::string part = dir.path.substr(0, slash);
      if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
        const int error = errno;
        struct stat st;
        // Also EACCES and EROFS for what is there already.
        if (stat(part.c_str(), &st) != 0 || !S_ISDIR(st.st_mode))
          return CannotUseFolder(part, error);
      }
      if (slash == std::string::npos) break;
    }
  }
  return CheckTraceDir(dir);
}

Status CheckTraceDir(const TraceDir& dir) {
  const Fd fd(open(dir.path.c_str(),
                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    const int error = errno;
    struct stat st;
    if (lstat(dir.path.c_str(), &st) == 0 && S_ISLNK(st.st_mode))
      return Status::Error("trace folder " + dir.path +
                           ": is a symbolic link; set INGERO_DIR to a folder");
    return CannotUseFolder(dir.path, error);
  }
  struct stat st;
  if (fstat(fd.get(), &st) != 0)
    return Status::Errno("stat " + dir.path, errno);
  if (st.st_uid != dir.uid)
    return Status::Error("trace folder " + dir.path + ": belongs to uid " +
                         std::to_string(st.st_uid) + ", not to " +
                         std::to_string(dir.uid) +
                         "; set INGERO_DIR to a folder of your own");
  return {};
}

}  // namespace ingero
