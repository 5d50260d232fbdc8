// SPDX-License-Identifier: Apache-2.0
// What can be done to a store besides asking it: measure, check, shorten, write
// anew. The file that is there is never changed: a new one takes its place when
// it is whole and on disk, as a merge does it.
//
// Threads: one caller (writing has a thread of its own).
// Memory:  blocks of one owner at a time; damage and rows are counted, and no
//          more than kMaxDamage places are listed.
#ifndef INGERO_MERGE_STORE_UPKEEP_H_
#define INGERO_MERGE_STORE_UPKEEP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/interval.h"
#include "base/status.h"
#include "merge/trace_reader.h"

namespace ingero::merge {

// Fraction done, and rows so far.
using UpkeepProgress = std::function<void(double fraction, uint64_t rows)>;

struct TableSize {
  uint16_t table = 0;
  std::string name;
  uint64_t blocks = 0, rows = 0;
  uint64_t bytes = 0;       // of the blocks
  uint64_t page_bytes = 0;  // of the pages that they take
};
// By table, in the order of ids. Reads and checks everything.
Result<std::vector<TableSize>> MeasureStore(const StoreFile& file);

struct StoreDamage {
  std::string table;
  uint32_t owner = 0;
  Interval range;  // of what can't be read
  std::string what;
};
inline constexpr size_t kMaxDamage = 1000;

struct StoreCheck {
  uint64_t blocks = 0, rows = 0, bytes = 0;
  uint64_t damaged_blocks = 0;
  std::vector<StoreDamage> damage;
  std::vector<std::string> problems;  // of the store as a whole, a line each
  Interval span;
  // Of the span, what every table that has times can still be asked about.
  // Empty where a table that describes the recording is damaged.
  std::vector<Interval> whole;
  bool ok() const { return damaged_blocks == 0 && problems.empty(); }
};
// Reads everything. An error where not even the file's pages can be walked.
Result<StoreCheck> CheckStore(const std::string& path,
                              const UpkeepProgress& progress);

struct Rewritten {
  std::string path;  // folder
  uint64_t bytes_before = 0, bytes_after = 0;
  uint64_t blocks_before = 0, blocks_after = 0;
  uint64_t rows_before = 0, rows_after = 0;
  Interval span_before, span;
  // There was nothing to gain or to drop: nothing was written, or with an
  // output a copy of it.
  bool copied = false;
  bool changed = false;  // something was written
};

// Blocks of few rows are joined, and pages that nothing uses are left out.
// output: folder of the new store, "" = in the place of the old one. Where it
// fails, nothing of the new one stays.
Result<Rewritten> CompactStore(const std::string& path,
                               const std::string& output,
                               const UpkeepProgress& progress);
// Keeps the last `keep` of the recording, from a whole second on. The new store
// says that it was pruned, and from when on it holds what.
Result<Rewritten> PruneStore(const std::string& path, Ns keep,
                             const std::string& output,
                             const UpkeepProgress& progress);

// What a copy to send on does not tell.
struct Redaction {
  bool command_lines = false;
  bool paths = false;   // of programs, libraries and cgroups: all but the last
                        // part, of a cgroup even that
  bool host = false;    // its name and the boot id
  bool names = false;   // of processes and threads
  bool ranges = false;  // names of NVTX ranges and domains
  bool kernels = false;
  bool code = false;  // files and functions that samples of code were in
};
// A copy of the store with numbers in the place of names ("process-3"): equal
// texts stay equal. Functions of CUDA and its libraries keep their names.
// REQUIRES: !output.empty()
Result<Rewritten> ShareStore(const std::string& path, const Redaction& redaction,
                             const std::string& output,
                             const UpkeepProgress& progress);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_STORE_UPKEEP_H_
