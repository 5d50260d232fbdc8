// SPDX-License-Identifier: Apache-2.0
// Counts the CUDA calls that processes are writing to a trace folder, while
// they do, for a person to see that it goes on: merge counts for the record.
//
// Cost: each block is read once, a thread's current one at each look; at most
// 32 MiB a look (a million calls), what is beyond waits for the next.
// Threads: one. Errors: what cannot be read is not counted.
#ifndef INGERO_CLI_LIVE_CALLS_H_
#define INGERO_CLI_LIVE_CALLS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ingero::cli {

class LiveCalls {
 public:
  // Counts what comes from now on, also to streams that are there already.
  explicit LiveCalls(std::string dir);

  void Look();
  uint64_t calls() const { return calls_; }
  uint64_t lost() const { return lost_; }
  // That have written since.
  size_t processes() const { return streams_.size(); }

 private:
  struct Stream {
    uint64_t next_block = 1;
    uint64_t settled_calls = 0;  // in blocks that do not change any more
    uint64_t calls = 0, lost = 0;
    std::vector<uint64_t> open_blocks;
    bool whole = false;  // its process has ended, and all of it is counted
  };
  void LookAt(const std::string& path, Stream* stream, uint64_t* budget);

  std::string dir_;
  std::map<std::string, Stream> streams_, before_;
  uint64_t calls_ = 0, lost_ = 0;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_LIVE_CALLS_H_
