// SPDX-License-Identifier: Apache-2.0
// Reads streams, aligns clocks, joins by pid and tid, runs the attribution and
// keeps the result in an LMDB store. Re-runnable: a second merge with nothing
// new changes nothing; what is new is added.
//
// Threads: one merge per store at a time (a second is told); readers of the
// store are never disturbed. Besides the caller's there are some that decode and
// one that writes.
// Memory: under 512 MiB, up to 256 CPUs and 300,000 lives (measured: 459,
// bench/README.md). 64 MiB of decoded blocks and the rows of one window, two
// blocks (0.6 MiB) for each decoder; switches and calls of one window of
// the attribution (16,384 switches, or those of 0.2 s), 96 MiB of states at most
// and 64 of results; 32 MiB of what threads did; 64 KiB a thread that makes calls
// at one time; 200 bytes a block of a stream; 0.6 KiB for each process and thread
// that lived.
// Errors: Status; damage in a stream is counted as a loss and reading goes on.
#ifndef INGERO_MERGE_MERGE_H_
#define INGERO_MERGE_MERGE_H_

#include <functional>
#include <string>
#include <vector>

#include "base/interval.h"
#include "base/status.h"

namespace ingero::merge {

// One stream file, from its header alone.
struct StreamInfo {
  std::string path;
  bool kernel = false;       // of the companion
  bool code = false;         // of the sampler of code
  bool cuda() const { return !kernel && !code; }
  uint64_t stream_id = 0;
  std::string boot_id;       // hex
  uint32_t pid = 0;
  uint32_t parent_pid = 0;   // when it was begun
  uint64_t run_id = 0;       // of `ingero run`; 0 = of none
  std::string comm;
  std::string host;
  Interval span;             // host CLOCK_MONOTONIC; end = last write
  int64_t created_real_ns = 0;
  uint64_t bytes = 0;
  bool live = false;         // its writer still runs
  std::string problem;       // "" = readable
};

// Streams that overlap in time on one boot (directly or through others), and
// those of one `ingero run` that begin within kRunGap of the one before.
inline constexpr Ns kRunGap{600'000'000'000};
struct Recording {
  std::string id;            // "20261129-220035-1a2b": begin, and of the boot
  std::vector<StreamInfo> streams;
  std::string store_path;    // <first dir>/<id>.store
  bool merged = false;       // the store exists
};

// Oldest first. Folders that do not exist are skipped. `problems` gets a line
// for each folder that can't be read, and where there is no recording for each
// stream that can't.
// first_leads: folders after the first give only kernel streams, and only to
// recordings of the first, as long as that holds any stream. So it is for
// DefaultTraceDirs(); folders that were asked for by name are equals.
std::vector<Recording> ListRecordings(const std::vector<std::string>& dirs,
                                      bool first_leads,
                                      std::vector<std::string>* problems =
                                          nullptr);
std::vector<Recording> ListRecordings(const std::vector<std::string>& dirs,
                                      std::vector<std::string>* problems =
                                          nullptr);

struct MergeOptions {
  std::vector<std::string> dirs;  // empty: base/trace_dir.h DefaultTraceDirs()
  std::string output;             // "": the recording's own store_path
  std::string recording;          // id; "": the newest
  // Threads that read and decode ahead of the one that merges. The store does
  // not depend on it. -1: as many as the CPUs allow.
  int decoders = -1;
  // Where another merge is writing the same store: wait for it to end. Else
  // that is an error.
  bool wait = false;
  // What programs could not be recorded and why, as whoever started them saw it:
  // kept in the store, for explain. "": what the store that is there says.
  std::string unrecorded;
  // stage is a short verb phrase ("reading streams"); fraction 0..1.
  std::function<void(const std::string& stage, double fraction,
                     uint64_t events)> progress;
};

struct MergeSummary {
  std::string store_path;
  uint64_t cuda_streams = 0, kernel_streams = 0;
  uint64_t calls = 0, switches = 0, tasks = 0, samples = 0;  // in the store
  uint64_t code_samples = 0;
  uint64_t added_events = 0;      // by this merge
  bool written = false;           // false: nothing new, the store is as it was
  uint64_t store_bytes = 0;
  std::vector<std::string> notes;  // what is missing and so cannot be judged
  std::string incomplete;  // the first of these that is no mere notice
};

Result<MergeSummary> Merge(const MergeOptions& options);
// With what ListRecordings(options.dirs) gave.
Result<MergeSummary> Merge(const MergeOptions& options,
                           const std::vector<Recording>& recordings);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_MERGE_H_
