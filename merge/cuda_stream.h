// SPDX-License-Identifier: Apache-2.0
// A CUDA stream: the records of one process (wire/wire.h).
//
// Open() reads the file once: indexes the blocks, drops LIVE blocks whose DATA
// twin exists, checks the framing of every record and collects all that is not
// a call. Calls are then read in order of their begin by CallReader.
//
// A DATA block whose CRC-32C does not fit is left out and counted, with the time
// that its slot's other blocks leave for it. LIVE blocks have no checksum, nor
// have DATA blocks of version 1.0. There, what the recorder cannot have written
// is counted as damage and left out: a call that ends after the ones behind it
// in its slot (calls are appended as they end), or long after the slot's last
// clock sample; a clock sample that its neighbours contradict; a call in flight
// that began before a finished one ended. So a flipped bit cannot stretch a
// call far beyond the end of the next one.
//
// A running process may go on writing. LIVE blocks are copied first and the
// index made afterwards, so a record is in at least one of both.
//
// Memory: names, knots, begins of ranges whose end was not met yet (up to a
// bound), and for a running process its LIVE blocks; a reader one block for
// each thread that was active at the same time.
#ifndef INGERO_MERGE_CUDA_STREAM_H_
#define INGERO_MERGE_CUDA_STREAM_H_

#include <array>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "merge/clock_map.h"
#include "merge/stream.h"

namespace ingero::merge {

struct WireFunction {
  std::string name;
  uint8_t layer = 0, call_class = 0;
  std::array<uint8_t, INGERO_CALL_WORDS_MAX> words{};
};

struct WireCall {
  uint64_t start_ticks = 0, end_ticks = 0;
  uint32_t tid = 0;  // as the process sees it
  uint16_t func = 0, result = 0;
  uint8_t depth = 0, flags = 0, words_used = 0;
  bool no_end = false;  // in flight
  std::array<uint64_t, INGERO_CALL_WORDS_MAX> words{};
};

// An NVTX range.
struct WireRange {
  uint64_t start_ticks = 0, end_ticks = 0;
  uint32_t tid = 0;  // that ended it (open: began it), as the process sees it
  uint32_t name = 0, domain = 0;  // of nvtx_names(); 0 = none
  uint8_t kind = 0;  // enum ingero_nvtx_kind
  bool open = false;  // no end; end_ticks: the last that is known of the stream
};

// What the GPU did for the process.
struct WireGpuActivity {
  uint64_t start_ticks = 0, end_ticks = 0;
  uint64_t call_ticks = 0;  // start of the call that gave it; 0 = not known
  uint64_t stream = 0, kernel = 0, bytes = 0;
  uint32_t device = 0;
  uint8_t kind = 0;       // enum ingero_gpu_kind
  uint8_t direction = 0;  // enum ingero_copy_direction
};

class CudaStream {
 public:
  struct Loss {
    uint64_t count = 0, first_ticks = 0, last_ticks = 0;  // ticks 0: unknown
    uint32_t loss = 0;
  };
  struct Coverage {
    uint16_t way = 0, detail = 0;
    std::string text;
    uint64_t count = 0;
  };
  struct ThreadName {
    std::string comm;
    uint64_t first_ticks = 0;
  };

  static Result<std::unique_ptr<CudaStream>> Open(const std::string& path);

  const ingero_stream_header& header() const { return stream_.header; }
  const std::string& path() const { return stream_.file.path(); }
  uint64_t bytes() const { return stream_.bytes; }
  int64_t created_ns() const { return stream_.created_ns(); }
  // Knots in the host's CLOCK_MONOTONIC.
  const std::vector<Knot>& knots() const { return knots_; }
  // Adds to what is missing of this stream.
  void Count(ingero_loss loss, uint64_t count);

  const std::map<uint16_t, WireFunction>& functions() const {
    return functions_;
  }
  const std::map<uint64_t, std::string>& kernels() const { return kernels_; }
  const std::map<uint32_t, ThreadName>& threads() const { return threads_; }
  const std::vector<Coverage>& coverage() const { return coverage_; }
  const std::map<uint32_t, std::string>& nvtx_names() const {
    return nvtx_names_;
  }
  // Of a range or its domain; "" = none, or lost.
  const std::string& NvtxName(uint32_t id) const;
  uint64_t ranges() const { return ranges_; }
  // All ranges, slot by slot, each slot's by their end; then the open ones.
  Status EachRange(const std::function<Status(const WireRange&)>& visit) const;
  uint64_t gpu_activities() const { return gpu_activities_; }
  // As they were written.
  Status EachGpuActivity(
      const std::function<Status(const WireGpuActivity&)>& visit) const;
  const std::string& exe() const { return exe_; }
  const std::string& cmdline() const { return cmdline_; }
  // Losses counted by the recorder and by this reader.
  const std::vector<Loss>& losses() const { return losses_; }
  // Damage, for a person: where in the file, how much, what to do.
  const std::vector<std::string>& damage() const { return damage_.lines(); }
  uint64_t calls() const { return calls_; }
  uint64_t self_ticks() const { return self_ticks_; }
  // Smallest and largest tick of any record; 0, 0: no record.
  uint64_t first_ticks() const { return first_ticks_; }
  uint64_t last_ticks() const { return last_ticks_; }
  // Of everything that a recorder changes: equal = nothing new.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  friend class CallReader;
  struct Block {
    uint64_t index = 0;       // in the file
    uint32_t slot = 0, sequence = 0, tid = 0;
    uint32_t record_bytes = 0;  // whole, well-framed records
    bool live = false;
    uint64_t first_ticks = 0;  // smallest start of a call; 0 = none
    std::shared_ptr<std::string> copy;  // of a running process's LIVE block
    std::array<ingero_inflight, INGERO_INFLIGHT_DEPTH> inflight{};
    uint64_t last_ticks = 0;  // DATA: no call in it ends later; 0 = unknown
    uint64_t last_end = 0;    // of the slot's calls so far; 0 = none
    bool checked = false;     // DATA: its CRC fits
    std::vector<uint32_t> bad;  // offsets of damaged calls, ascending
  };
  // What the records of a slot so far say of the next ones.
  struct SlotClock {
    uint64_t last_end = 0;    // of a call
    uint64_t last_outer = 0;  // end of the last outermost call
    uint64_t anchor = 0;      // last known time that is no call's
    bool sampled = false;     // a clock sample was seen
  };

  // What a range's begin and end have in common.
  struct RangeKey {
    uint64_t start_ticks;
    uint32_t name, domain, tid;  // tid: 0 where another thread may end it
    uint8_t kind;
    auto operator<=>(const RangeKey&) const = default;
  };
  // Record: ingero_nvtx or ingero_nvtx_begin.
  template <typename Record>
  static RangeKey KeyOf(std::string_view record, uint32_t slot_tid);
  using OpenRanges = std::multimap<RangeKey, uint32_t>;  // tid that began it

  explicit CudaStream(OpenStream stream) : stream_(std::move(stream)) {}
  Status Index();
  Result<bool> IsWhole(ingero_block_header* header, uint64_t index) const;
  void RangeOfDamaged(uint32_t slot, uint32_t sequence);
  void DropAbsurdCounts();
  Result<bool> IsWritten(const Block& live) const;
  void Scan(Block* block, std::string_view records, uint32_t* tid);
  void DropDoubtfulOpen();
  void FindBadCalls(Block* block, std::string_view records, SlotClock* clock);
  Status LookBehind(const Block& block, const SlotClock& clock);
  void DropFalseInFlight(Block* block, const SlotClock& clock);
  void DropOddKnots();
  Status ReadRecords(const Block& block, std::string* records) const;
  void Seen(uint64_t ticks);

  OpenStream stream_;
  std::vector<Block> blocks_;  // by (slot, sequence)
  std::vector<Knot> knots_;
  std::map<uint16_t, WireFunction> functions_;
  std::map<uint64_t, std::string> kernels_;
  std::map<uint32_t, ThreadName> threads_;
  std::vector<Coverage> coverage_;
  std::map<uint32_t, std::string> nvtx_names_;
  OpenRanges open_;  // begun, with no end behind it
  std::string exe_, cmdline_;
  std::vector<Loss> losses_;
  DamageLines damage_;
  uint64_t calls_ = 0, ranges_ = 0, gpu_activities_ = 0, self_ticks_ = 0;
  uint64_t first_ticks_ = 0, last_ticks_ = 0;
  uint64_t fingerprint_ = 0;
  bool cut_ = false;  // bytes are missing at the end of the file
};

// All calls of a stream, by (start, depth): an outer call precedes the calls
// it contains. Threads are merged as they go, so a call whose outer call
// crossed a block may come late by up to that outer call's length; who stores
// calls sorts within a block.
class CallReader {
 public:
  explicit CallReader(const CudaStream& stream);
  ~CallReader();
  // False at the end. Damage met now (the file was cut) ends that thread.
  bool Next(WireCall* call);

 private:
  struct Slot;
  struct Later;
  bool Fill(Slot* slot);

  const CudaStream& stream_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> heap_;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_CUDA_STREAM_H_
