// SPDX-License-Identifier: Apache-2.0
// The command line of ingero-kprobe.
#ifndef INGERO_KERNEL_PROBE_OPTIONS_H_
#define INGERO_KERNEL_PROBE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/http_address.h"
#include "base/status.h"
#include "base/units.h"
#include "kernel_probe/loader.h"
#include "kernel_probe/otlp.h"

namespace ingero::kernel_probe {

inline constexpr uint64_t kDefaultRingBytes = 4u << 20;

struct Options {
  Ns duration{0};  // 0: until told to end
  uint64_t ring_bytes = kDefaultRingBytes;  // per CPU
  std::string dir;         // "": the default trace folder
  std::string ready_file;  // "": none
  bool check = false;      // --check: record nothing
  bool raw_pages = false;  // each allocation an event
  std::vector<TreeRoot> tree;  // empty: everybody
  // For `ingero run`: ends when standard input does, and prints its counts to
  // standard output (recorder.h).
  bool supervised = false;
  std::optional<HttpAddress> metrics;
  std::string metrics_token;  // who asks must send it; "": anybody may ask
  std::optional<OtlpOptions> otlp;
  bool quiet = false;
  bool verbose = false;
  std::string note;  // what was changed, to be said; "" if nothing
};

// "60s", "5m", "2h", "250ms"; a bare number is seconds. Positive.
Result<Ns> ParseDuration(std::string_view text);
// A pid or a name; the kernel cuts a name after 15 bytes, and so do we.
Result<TreeRoot> ParseTree(std::string_view text);
// Looks up those with a pid, which is meant as /proc shows it here: also in a
// container. "the tree of PID 12 (python)", for people; fails where there is no
// such process. "" = no tree.
Result<std::string> FindRoots(std::vector<TreeRoot>* tree);
// Can it be made? Asked before anything is recorded, and after the rights that
// recording needs: who lacks those has no use for this answer.
Status CheckReadyFile(const std::string& path);

struct ParsedArgs {
  Options options;
  std::optional<int> exit_status;  // --help, --version (0), bad usage (2)
};
// Prints help, the version and usage errors itself.
ParsedArgs ParseArgs(int argc, char** argv);

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_OPTIONS_H_
