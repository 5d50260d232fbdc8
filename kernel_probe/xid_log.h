// SPDX-License-Identifier: Apache-2.0
// Errors that the NVIDIA driver reports in the kernel log ("NVRM: Xid").
//
// Threads: one.
#ifndef INGERO_KERNEL_PROBE_XID_LOG_H_
#define INGERO_KERNEL_PROBE_XID_LOG_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"

namespace ingero::kernel_probe {

struct Xid {
  uint32_t number = 0;
  std::string line;  // "NVRM: Xid (PCI:0000:01:00): 79, ...", no line end
};

// Of a record of /dev/kmsg: "6,339,5140900,-;text\n" and continuation lines.
std::optional<Xid> ParseXid(std::string_view record);

class XidLog {
 public:
  // What is logged from now on. Needs CAP_SYSLOG here, not later.
  static Result<XidLog> Open(const std::string& path = "/dev/kmsg");
  // Those since the last call; never waits.
  std::vector<Xid> Read();

 private:
  explicit XidLog(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_XID_LOG_H_
