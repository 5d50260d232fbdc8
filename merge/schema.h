// SPDX-License-Identifier: Apache-2.0
// What a store holds: keys, and the tables that only merge writes and reads.
//
// A store is one LMDB environment with one (unnamed) database. Every value is
// a coded block (base/block_codec.h), so everything is under a CRC. Every key
// is the same 26 bytes, big endian, so that LMDB's order is time order:
//
//   table u16 | owner u32 | first_ns i64 ^ sign bit | last_ns i64 ^ sign bit |
//   sequence u32
//
// last_ns is part of the key so that a window's blocks are found from the keys
// alone. Texts are never in keys.
//
// Tables 1..31 are events and results (base/tables.h). Tables 32.. describe
// the recording: small, read whole at open. How to change: append columns and
// tables; a change of meaning raises kSchemaVersion, and docs/formats.md says
// what older stores looked like.
#ifndef INGERO_MERGE_SCHEMA_H_
#define INGERO_MERGE_SCHEMA_H_

#include <array>

#include "base/tables.h"

namespace ingero::merge {

inline constexpr char kSchemaName[] = "ingero-store";
inline constexpr uint64_t kSchemaVersion = 1;
// Raised when the attribution's results change for the same events: a store
// with another number is merged again.
inline constexpr uint64_t kAnalysisVersion = 5;

// Losses that merge itself or a CUDA stream counted have this owner plus the
// stream's index; smaller owners are CPUs (companion).
inline constexpr uint32_t kStreamLossOwner = 1u << 16;

// sched_summary: owner 0 has rows of the second in which they were known, owner
// 1 what was known later, also of several whole seconds in one state.
inline constexpr uint32_t kSchedSeconds = 0;
inline constexpr uint32_t kSchedLate = 1;

// path_table kDetail: bits 0..7 class of the call that ended the starved
// interval, 8..23 system call plus 1, and
inline constexpr uint64_t kDetailSubmits = 1u << 24;

// cudaErrorNotReady and CUDA_ERROR_NOT_READY: the answer no, not an error.
inline constexpr uint16_t kResultNotReady = 600;

// What recording one call takes from its thread: an estimate (bench/README.md),
// since no stream holds a measured one. Write-outs are measured, in SELF.
inline constexpr int64_t kCallCostNs = 25;

// Rows are numbered: row r of the block with owner o is index
// o * kRowsPerChunk + r.
inline constexpr uint32_t kRowsPerChunk = 4096;

namespace process_table {
enum Col : size_t {
  kFirstSeen, kLastSeen, kPid, kNsPid, kStart,
  kExited,  // time plus 1; 0 = not seen
  kExitCode,
  kParent, kMainThread,  // index plus 1; 0 = none
  kFlags, kCgroup, kCpusAllowed, kCount
};
enum Flag : uint64_t {
  kHasCuda = 1, kIsIngero = 2, kIsKernel = 4,
  kHostIds = 8,      // pid and tids are those of the root pid namespace
  kHasExitCode = 16,
  kOutsideScope = 32,  // not of the tree that recording was limited to
};
// text: name NUL exe NUL cmdline
inline constexpr Column kColumns[] = {
    {"first_seen_ns", kDelta}, {"last_seen_ns", kDelta}, {"pid", kDelta},
    {"ns_pid", kDelta},        {"start_ns", kDelta},     {"exited", kPlain},
    {"exit_code", kZigzag},    {"parent", kPlain},       {"main_thread", kPlain},
    {"flags", kPlain},         {"cgroup_id", kDelta},
    {"cpus_allowed", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{32, "processes", kColumns, true};
}  // namespace process_table

// text: name
namespace thread_table {
enum Col : size_t { kFirstSeen, kTid, kProcess, kCount };
inline constexpr Column kColumns[] = {
    {"first_seen_ns", kDelta}, {"tid", kDelta}, {"process", kDelta}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{33, "threads", kColumns, true};
}  // namespace thread_table

// text: name
namespace function_table {
enum Col : size_t {
  kT, kLayer, kClass,
  kWords,  // enum ingero_word of word i in bits 8i..8i+7
  kCount
};
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta}, {"layer", kPlain}, {"class", kPlain}, {"words", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{34, "functions", kColumns, true};
}  // namespace function_table

// text: mangled NUL demangled
namespace kernel_name_table {
enum Col : size_t { kT, kProcess, kKernel, kCount };
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta}, {"process", kDelta}, {"kernel", kDelta}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{35, "kernel_names", kColumns, true};
}  // namespace kernel_name_table

// One row a stream. text: file name NUL comm NUL tool version
namespace stream_table {
enum Col : size_t {
  kBegin, kEnd,
  kKernel,  // 1: of the companion; 2: of the sampler of code
  kStreamId, kPid, kFingerprint, kBytes,
  kEvents,        // calls, or rows of all kernel tables
  kSkippedCalls,  // left out (INGERO_APIS)
  kProcess,       // index plus 1
  kClockErrorNs,  // bound
  kClockKnots,
  kSelfNs,        // time the recorder itself took
  kFlags,
  kNestingViolations,  // calls that reach over an end of one around or before
  kCount
};
enum Flag : uint64_t {
  kExited = 1,       // its exit handler ran
  kLive = 2,         // its writer ran while it was merged
  kHostKnots = 4,    // placed in time by the companion's clock samples
  kClockIsMono = 8,  // ticks were CLOCK_MONOTONIC
};
inline constexpr Column kColumns[] = {
    {"begin_ns", kDelta},   {"end_ns", kDelta},       {"kernel", kPlain},
    {"stream_id", kPlain},  {"pid", kPlain},          {"fingerprint", kPlain},
    {"bytes", kPlain},      {"events", kPlain},       {"skipped_calls", kPlain},
    {"process", kPlain},    {"clock_error_ns", kPlain}, {"clock_knots", kPlain},
    {"self_ns", kPlain},    {"flags", kPlain},
    {"nesting_violations", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{36, "streams", kColumns, true};
}  // namespace stream_table

// How CUDA calls were seen: rows of struct ingero_coverage in wire/wire.h
namespace coverage_table {
enum Col : size_t { kT, kProcess, kWay, kCountSeen, kDetail, kCount };
inline constexpr Column kColumns[] = {{"t_ns", kDelta},
                                      {"process", kPlain},
                                      {"way", kPlain},
                                      {"count", kPlain},
                                      {"detail", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{37, "coverage", kColumns, true};
}  // namespace coverage_table

// Facts by name. text: name NUL text value
namespace fact_table {
enum Col : size_t { kT, kValue, kCount };
inline constexpr Column kColumns[] = {{"t_ns", kDelta}, {"value", kZigzag}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{38, "facts", kColumns, true};
}  // namespace fact_table

// One row, the last that a merge writes: how many entries a store has besides,
// and the sum of the CRC-32Cs of each one's key and size (StoreFile). Stores of
// before have none: their blocks are all read when they are opened.
namespace index_table {
enum Col : size_t { kT, kEntries, kKeysCheck, kCount };
inline constexpr Column kColumns[] = {{"t_ns", kDelta},
                                      {"entries", kPlain},
                                      {"keys_check", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{39, "index", kColumns, false};
}  // namespace index_table

// Lines of code that code_samples name by row. text: file NUL function
namespace code_line_table {
enum Col : size_t {
  kT, kLine,  // 0 = not known
  kFlags,     // code_place_table::CodePlaceFlag
  kCount
};
inline constexpr Column kColumns[] = {
    {"t_ns", kDelta}, {"line", kPlain}, {"flags", kPlain}};
static_assert(std::size(kColumns) == kCount);
inline constexpr TableSchema kSchema{40, "code_lines", kColumns, true};
}  // namespace code_line_table

inline constexpr std::array kDescriptionTables = {
    &process_table::kSchema,     &thread_table::kSchema,
    &function_table::kSchema,    &kernel_name_table::kSchema,
    &stream_table::kSchema,      &coverage_table::kSchema,
    &fact_table::kSchema,        &index_table::kSchema,
    &code_line_table::kSchema};

// Any table of a store; nullptr where no table has this id.
constexpr const TableSchema* FindStoreTable(uint16_t id) {
  for (const TableSchema* t : kDescriptionTables)
    if (t->id == id) return t;
  return FindTable(id);
}

}  // namespace ingero::merge

#endif  // INGERO_MERGE_SCHEMA_H_
