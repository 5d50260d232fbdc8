// SPDX-License-Identifier: Apache-2.0
// Can this kernel and this user record? One true reason and remedy if not.
#ifndef INGERO_KERNEL_PROBE_PREFLIGHT_H_
#define INGERO_KERNEL_PROBE_PREFLIGHT_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace ingero::kernel_probe {

// What the checks look at; tests hand in other values.
struct System {
  uint64_t capabilities = 0;  // effective, bit = capability number
  std::string release;        // uname -r
  std::string root;           // prefix of /sys
};
System ThisSystem();

Status CheckSystem(const System& system);

// Gives up all capabilities but those still needed after attaching. Call
// before starting threads: capabilities are per thread and inherited.
Status DropPrivileges();

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_PREFLIGHT_H_
