// SPDX-License-Identifier: Apache-2.0
#include "base/cuda_process.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>

#include "base/file.h"
#include "wire/wire.h"

namespace ingero {
namespace {

constexpr size_t kMaxEnvironment = 1 << 20;

std::string Proc(uint32_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

// Fields 50 and 51 of /proc/PID/stat are the environment's addresses, 0 until a
// program that is being executed is in place.
std::array<uint64_t, 2> EnvironmentRange(uint32_t pid) {
  auto stat = ReadWholeFile(Proc(pid, "stat"));
  if (!stat.ok()) return {};
  std::string_view text = *stat;
  const size_t name_end = text.rfind(')');
  if (name_end == text.npos) return {};
  text.remove_prefix(name_end + 1);
  std::array<uint64_t, 2> at{};
  for (int field = 3; field <= 51; ++field) {
    const size_t blank = text.find_first_not_of(' ');
    if (blank == text.npos) return {};
    text.remove_prefix(blank);
    const size_t end = std::min(text.find(' '), text.size());
    if (field >= 50)
      std::from_chars(text.data(), text.data() + end,
                      at[static_cast<size_t>(field - 50)]);
    text.remove_prefix(end);
  }
  return at;
}

// The file environ is for its owner's eyes, and the companion keeps no privilege
// but that to look into processes.
std::optional<std::string> ReadEnvironment(uint32_t pid) {
  const auto at = EnvironmentRange(pid);
  if (at[0] == 0) return std::nullopt;  // not for us to see
  if (at[1] <= at[0]) return "";
  std::string environment(std::min<uint64_t>(at[1] - at[0], kMaxEnvironment),
                          '\0');
  const iovec local{environment.data(), environment.size()};
  const iovec remote{reinterpret_cast<void*>(at[0]), environment.size()};
  const ssize_t n =
      process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0);
  if (n <= 0) return std::nullopt;
  environment.resize(static_cast<size_t>(n));
  return environment;
}

// Whether its program gave it privileges that its caller did not have.
bool RaisesPrivileges(uint32_t pid) {
  const std::string exe = Proc(pid, "exe");
  struct stat st;
  if (stat(exe.c_str(), &st) != 0) return false;
  uint32_t uid = 0, gid = 0;
  auto status = ReadWholeFile(Proc(pid, "status"));
  if (status.ok()) {
    const auto number = [&](std::string_view key, uint32_t* to) {
      const size_t found = status->find(key);
      if (found == std::string::npos) return;
      const char* from = status->data() + found + key.size();
      std::from_chars(from, status->data() + status->size(), *to);
    };
    number("\nUid:\t", &uid);
    number("\nGid:\t", &gid);
  }
  return ((st.st_mode & S_ISUID) != 0 && st.st_uid != uid) ||
         ((st.st_mode & S_ISGID) != 0 && st.st_gid != gid) ||
         (uid != 0 &&
          getxattr(exe.c_str(), "security.capability", nullptr, 0) > 0);
}

}  // namespace

CudaMaps ParseCudaMaps(std::string_view maps) {
  CudaMaps found;
  bool driver = false;
  while (!maps.empty()) {
    const size_t end = std::min(maps.find('\n'), maps.size());
    const std::string_view line = maps.substr(0, end);
    maps.remove_prefix(std::min(end + 1, maps.size()));
    found.any = true;
    const size_t slash = line.rfind('/');
    if (slash == line.npos) continue;
    const std::string_view name = line.substr(slash + 1);
    const bool is_driver = name.starts_with("libcuda.so");
    if ((is_driver && !driver) ||
        (found.library.empty() && name.starts_with("libcudart"))) {
      found.library = line.substr(line.find('/'));
      driver = is_driver;
    }
    found.shim = found.shim || name.starts_with("libingero_cuda.so");
    if (name.starts_with("ld-") || name.starts_with("ld.so"))
      found.loader = true;
    else
      found.libraries = found.libraries || name.find(".so") != name.npos;
  }
  return found;
}

uint64_t EnvironmentAddress(uint32_t pid) { return EnvironmentRange(pid)[0]; }

uint64_t CudaEnvironment(std::string_view environment) {
  uint64_t bits = 0;
  while (!environment.empty()) {
    const size_t end = std::min(environment.find('\0'), environment.size());
    const std::string_view entry = environment.substr(0, end);
    environment.remove_prefix(std::min(end + 1, environment.size()));
    const size_t equals = entry.find('=');
    if (equals == entry.npos) continue;
    const std::string_view name = entry.substr(0, equals),
                           value = entry.substr(equals + 1);
    const bool set = !value.empty() && value != "0";
    if (name == "LD_PRELOAD" && value.find("libingero_cuda") != value.npos)
      bits |= INGERO_CUDA_SHIM_ASKED;
    if (name == "INGERO_DISABLE" && set) bits |= INGERO_CUDA_DISABLED;
    if (name == "INGERO_CLEAR_DEEPBIND" && set)
      bits |= INGERO_CUDA_CLEAR_DEEPBIND;
  }
  return bits;
}

CudaMaps ReadCudaMaps(uint32_t pid) {
  const std::string path = Proc(pid, "maps");
  if (auto text = ReadWholeFile(path); text.ok()) return ParseCudaMaps(*text);
  CudaMaps none;
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  none.denied = !fd.valid() && (errno == EACCES || errno == EPERM);
  return none;
}

uint64_t CudaProcessBits(uint32_t pid, const CudaMaps& maps) {
  const std::optional<std::string> environment = ReadEnvironment(pid);
  uint64_t bits = environment ? CudaEnvironment(*environment)
                              : uint64_t{INGERO_CUDA_NO_ENVIRON};
  if (maps.shim) bits |= INGERO_CUDA_SHIM_MAPPED;
  if (!maps.loader) bits |= INGERO_CUDA_STATIC;
  if (RaisesPrivileges(pid)) bits |= INGERO_CUDA_SECURE;
  return bits;
}

}  // namespace ingero
