// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/check.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>

#include "base/file.h"
#include "base/text.h"
#include "kernel_probe/clock.h"
#include "kernel_probe/loader.h"
#include "kernel_probe/nvml.h"
#include "kernel_probe/preflight.h"

namespace ingero::kernel_probe {
namespace {

constexpr uint64_t kFireNs = 200'000'000;
constexpr uint64_t kRingBytes = 256u << 10;  // nobody reads them here

void Line(const char* state, std::string name, const std::string& text) {
  std::replace(name.begin(), name.end(), ' ', '_');
  std::printf("%-9s %-30s %s\n", state, name.c_str(), text.c_str());
}

// A birth, a program start, a name, fresh pages, and an end.
void FireOnce() {
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDOUT_FILENO);
    prctl(PR_SET_NAME, "ingero-check");
    execl("/proc/self/exe", "ingero-kprobe", "--version",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  constexpr size_t kBytes = 1 << 20;
  void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (pages != MAP_FAILED) munmap(pages, kBytes);
  // Asleep until it ends: switches and wakes.
  if (child > 0)
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
}

}  // namespace

Status Check() {
  INGERO_RETURN_IF_ERROR(CheckSystem(ThisSystem()));
  LoaderOptions load;
  load.ring_bytes = kRingBytes;
  INGERO_ASSIGN_OR_RETURN(std::unique_ptr<Loader> loader, Loader::Load(load));
  // Without it (CAP_SYS_ADMIN) the kernel counts no runs.
  const Fd statistics(bpf_enable_stats(BPF_STATS_RUN_TIME));
  INGERO_RETURN_IF_ERROR(loader->AttachTaskProbes());
  const size_t existing = loader->DumpTasks().size();
  INGERO_RETURN_IF_ERROR(loader->AttachScheduler());
  for (const uint64_t end = NowNs() + kFireNs; NowNs() < end;) FireOnce();
  loader->Detach();

  std::string silent;
  for (const ProbeState& probe : loader->States()) {
    if (!probe.attached) {
      Line("skipped", probe.tracepoint,
           probe.skipped + " (missing: " + probe.without + ")");
    } else if (probe.runs > 0) {
      Line("works", probe.tracepoint,
           FormatCount(probe.runs) + " runs, " +
               FormatDuration(
                   Ns(static_cast<int64_t>(probe.run_ns / probe.runs))) +
               " each");
    } else if (!statistics.valid() || !probe.common) {
      Line("attached", probe.tracepoint,
           probe.common ? "whether it runs is not known without CAP_SYS_ADMIN"
                        : "not fired: what it waits for is rare, or does harm");
    } else {
      Line("silent", probe.tracepoint,
           std::string("attached, but the kernel did not run it (missing: ") +
               probe.without + ")");
      silent = probe.tracepoint;
    }
  }
  if (existing == 0) silent = "existing tasks";
  auto nvml = Nvml::Open();
  if (nvml.ok())
    Line("works", "nvml",
         FormatCount((*nvml)->gpus()) +
             ((*nvml)->gpus() == 1 ? " GPU, " : " GPUs, ") +
             FormatCount((*nvml)->Sample(/*slow=*/true).size()) +
             " figures");
  else
    Line("skipped", "nvml",
         nvml.status().message() + " (missing: GPU samples)");
  if (std::fflush(stdout) != 0)
    return Status::Errno("writing to standard output", errno);
  if (!silent.empty())
    return Status::Error("probe " + silent +
                         " is attached but never ran; please report this "
                         "kernel (uname -a)");
  return {};
}

}  // namespace ingero::kernel_probe
