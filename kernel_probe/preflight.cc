// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/preflight.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/file.h"

namespace ingero::kernel_probe {
namespace {

// Linux 5.15: bpf_task_pt_regs, task storage for tracing programs.
constexpr int kFloorMajor = 5, kFloorMinor = 15;

constexpr uint64_t Bit(int capability) { return uint64_t{1} << capability; }

uint64_t EffectiveCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (syscall(SYS_capget, &header, data) != 0) return 0;
  return data[0].effective | uint64_t{data[1].effective} << 32;
}

}  // namespace

System ThisSystem() {
  System s;
  s.capabilities = EffectiveCapabilities();
  utsname name{};
  if (uname(&name) == 0) s.release = name.release;
  return s;
}

Status CheckSystem(const System& system) {
  if (!(system.capabilities & Bit(CAP_SYS_ADMIN))) {
    std::string missing;
    if (!(system.capabilities & Bit(CAP_BPF))) missing = "CAP_BPF";
    if (!(system.capabilities & Bit(CAP_PERFMON)))
      missing += missing.empty() ? "CAP_PERFMON" : " and CAP_PERFMON";
    if (!missing.empty())
      return Status::Error(
          "not permitted to load BPF programs (" + missing +
          " missing); run it as root: sudo ingero-kprobe");
  }
  int major = 0, minor = 0;
  if (std::sscanf(system.release.c_str(), "%d.%d", &major, &minor) == 2 &&
      (major < kFloorMajor || (major == kFloorMajor && minor < kFloorMinor)))
    return Status::Error("Linux " + system.release +
                         " is too old; 5.15 or newer is needed");
  const std::string btf = system.root + "/sys/kernel/btf/vmlinux";
  auto fd = OpenFile(btf, O_RDONLY);
  char byte;
  if (!fd.ok() || read(fd->get(), &byte, 1) != 1)
    return Status::Error("no kernel type information at " + btf +
                         "; a kernel with CONFIG_DEBUG_INFO_BTF=y is needed "
                         "(in a container: mount /sys)");
  auto lockdown = ReadWholeFile(system.root + "/sys/kernel/security/lockdown");
  if (lockdown.ok() && lockdown->find("[confidentiality]") != std::string::npos)
    return Status::Error(
        "the kernel is locked down (confidentiality), which forbids BPF to "
        "read it; boot with lockdown=integrity or none");
  return {};
}

Status DropPrivileges() {
  // Executables of other users' processes are read from /proc all along;
  // before 5.16 (and backports) every bpf(2) call wants CAP_BPF.
  const uint64_t keep = (Bit(CAP_SYS_PTRACE) | Bit(CAP_BPF)) &
                        EffectiveCapabilities();
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  for (int i = 0; i < 2; ++i)
    data[i].effective = data[i].permitted =
        static_cast<uint32_t>(keep >> (32 * i));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_capset, &header, data) != 0)
    return Status::Errno("dropping privileges", errno);
  return {};
}

}  // namespace ingero::kernel_probe
