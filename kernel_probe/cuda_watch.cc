// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/cuda_watch.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/file.h"
#include "base/tables.h"
#include "kernel_probe/clock.h"

namespace ingero::kernel_probe {
namespace {

constexpr uint64_t kFirstLookNs = 1'000'000'000;
constexpr size_t kMaxEnvironment = 1 << 20;

std::string Proc(uint32_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

// Fields 50 and 51 of /proc/PID/stat are the environment's addresses. Read
// through them: the file environ is for its owner's eyes, and the companion
// keeps no privilege but that to look into processes.
std::string ReadEnvironment(uint32_t pid) {
  auto stat = ReadWholeFile(Proc(pid, "stat"));
  if (!stat.ok()) return "";
  std::string_view text = *stat;
  const size_t name_end = text.rfind(')');
  if (name_end == text.npos) return "";
  text.remove_prefix(name_end + 1);
  std::array<uint64_t, 2> at{};
  for (int field = 3; field <= 51; ++field) {
    const size_t blank = text.find_first_not_of(' ');
    if (blank == text.npos) return "";
    text.remove_prefix(blank);
    const size_t end = std::min(text.find(' '), text.size());
    if (field >= 50)
      std::from_chars(text.data(), text.data() + end,
                      at[static_cast<size_t>(field - 50)]);
    text.remove_prefix(end);
  }
  if (at[0] == 0 || at[1] <= at[0]) return "";
  std::string environment(std::min<uint64_t>(at[1] - at[0], kMaxEnvironment),
                          '\0');
  const iovec local{environment.data(), environment.size()};
  const iovec remote{reinterpret_cast<void*>(at[0]), environment.size()};
  const ssize_t n =
      process_vm_readv(static_cast<pid_t>(pid), &local, 1, &remote, 1, 0);
  environment.resize(n > 0 ? static_cast<size_t>(n) : 0);
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
    found.loader = found.loader || name.starts_with("ld-") ||
                   name.starts_with("ld.so");
  }
  return found;
}

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

void CudaWatch::OnTask(const ingero_ring_task& e, uint64_t now_ns) {
  if (e.tid != e.tgid) return;
  switch (e.event) {
    case INGERO_TASK_EVENT_FORK:
    case INGERO_TASK_EVENT_EXEC:
    case INGERO_TASK_EVENT_EXISTING: {
      const uint64_t life = ++lives_;
      watched_[e.tgid] = {now_ns, life};
      // What was there before may be old, and is due at once.
      const bool old = e.event == INGERO_TASK_EVENT_EXISTING;
      due_.push({old ? now_ns : now_ns + kFirstLookNs, e.tgid, life});
      break;
    }
    case INGERO_TASK_EVENT_EXIT:
      watched_.erase(e.tgid);
      break;
  }
}

void CudaWatch::Look(uint64_t now_ns, size_t most, Rows* rows) {
  while (most > 0 && !due_.empty() && due_.top().t_ns <= now_ns) {
    const Due due = due_.top();
    due_.pop();
    const auto it = watched_.find(due.pid);
    if (it == watched_.end() || it->second.life != due.life) continue;
    --most;
    if (!LookAt(due.pid, now_ns, rows)) {
      watched_.erase(it);
      continue;
    }
    const uint64_t age =
        std::max(now_ns - it->second.begin_ns, kFirstLookNs);
    due_.push({now_ns + age, due.pid, due.life});
  }
}

void CudaWatch::LookAtAll(uint64_t deadline_ns, Rows* rows) {
  for (auto it = watched_.begin(); it != watched_.end();) {
    const uint64_t now = NowNs();
    if (now >= deadline_ns) return;
    if (LookAt(it->first, now, rows))
      ++it;
    else
      it = watched_.erase(it);
  }
}

bool CudaWatch::LookAt(uint32_t pid, uint64_t now_ns, Rows* rows) {
  auto text = ReadWholeFile(Proc(pid, "maps"));
  if (!text.ok()) return false;
  const CudaMaps maps = ParseCudaMaps(*text);
  if (!maps.any) return false;
  if (maps.library.empty()) return true;
  const std::string environment = ReadEnvironment(pid);
  uint64_t bits = CudaEnvironment(environment);
  if (environment.empty()) bits |= INGERO_CUDA_NO_ENVIRON;
  if (maps.shim) bits |= INGERO_CUDA_SHIM_MAPPED;
  if (!maps.loader) bits |= INGERO_CUDA_STATIC;
  if (RaisesPrivileges(pid)) bits |= INGERO_CUDA_SECURE;
  const uint64_t row[] = {now_ns, static_cast<uint64_t>(Metric::kCudaProcess),
                          pid, bits};
  static_assert(std::size(row) == sample_table::kCount);
  rows->Append(row, maps.library);
  return false;
}

}  // namespace ingero::kernel_probe
