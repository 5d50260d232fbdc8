// SPDX-License-Identifier: Apache-2.0
// ingero-kprobe as a child of this process: started as root, with its own file
// capabilities, or through sudo; ended through its standard input, which works
// where its user's signals would not reach it.
//
// Threads: one. Errors: why the kernel side is not recorded, one line.
#ifndef INGERO_CLI_COMPANION_H_
#define INGERO_CLI_COMPANION_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "cli/io.h"

namespace ingero::cli {

struct CompanionCounts {
  uint64_t switches = 0, lost = 0, bytes = 0;
};

class Companion {
 public:
  // Waits until it records. `buffer_bytes`: per CPU; 0: as it likes. `may_ask`:
  // sudo may ask for a password on the terminal.
  static Result<Companion> Start(const std::string& dir, uint64_t buffer_bytes,
                                 bool may_ask);
  Companion(Companion&&) = default;

  // Takes what it has said by now; never waits.
  void Listen();
  const CompanionCounts& counts() const { return counts_; }
  bool ended() const { return ended_; }
  // Ends the recording; returns once the stream is whole. What it had to say
  // about it, losses above all.
  std::vector<std::string> Stop();

 private:
  Companion() = default;
  Status WaitUntilReady();
  // Its lines but "recording", without its name.
  std::vector<std::string> Said() const;

  pid_t pid_ = -1;
  Fd in_, out_, err_;
  std::string counts_text_, said_;
  CompanionCounts counts_;
  bool ready_ = false, ended_ = false;
};

// Whether an ingero-kprobe that somebody else started records into `dir`.
bool CompanionRecordsInto(const std::string& dir);
// The same; where it is only about to, once it does.
bool WaitForOthersCompanion(const std::string& dir);

}  // namespace ingero::cli

#endif  // INGERO_CLI_COMPANION_H_
