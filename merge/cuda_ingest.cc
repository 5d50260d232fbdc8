// SPDX-License-Identifier: Apache-2.0
#include "merge/cuda_ingest.h"

#include <algorithm>
#include <bitset>
#include <optional>
#include <unordered_map>

#include "base/histogram.h"
#include "base/tables.h"
#include "merge/memory_ranges.h"

namespace ingero::merge {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr size_t kBlockRows = 8192;

// The value of the first word with this meaning, or nullptr.
const uint64_t* WordOf(const WireFunction& f, const WireCall& call,
                       ingero_word word) {
  for (size_t i = 0; i < call.words_used; ++i)
    if (f.words[i] == word) return &call.words[i];
  return nullptr;
}

// Follows allocations, and says what a copy's host side is.
class CopyJudge {
 public:
  // Flags that the call gets: resolved direction and kind of host memory.
  uint64_t Judge(const WireFunction& f, const WireCall& call) {
    uint64_t flags = call.flags;
    if (call.result != 0 || call.no_end) return flags;
    const uint64_t* address = WordOf(f, call, INGERO_WORD_ADDRESS);
    const uint64_t* bytes = WordOf(f, call, INGERO_WORD_BYTES);
    switch (f.call_class) {
      case INGERO_CLASS_ALLOC_HOST:
        if (address && bytes) ranges_.Add(*address, *bytes, MemoryKind::kPinned);
        break;
      case INGERO_CLASS_ALLOC:
      case INGERO_CLASS_ALLOC_ASYNC:
        if (address && bytes) ranges_.Add(*address, *bytes, MemoryKind::kDevice);
        break;
      case INGERO_CLASS_ALLOC_MANAGED:
        if (address && bytes)
          ranges_.Add(*address, *bytes, MemoryKind::kManaged);
        break;
      case INGERO_CLASS_FREE:
      case INGERO_CLASS_FREE_ASYNC:
      case INGERO_CLASS_FREE_HOST:
        if (address) ranges_.Remove(*address);
        break;
      case INGERO_CLASS_COPY:
      case INGERO_CLASS_COPY_ASYNC:
        flags = JudgeCopy(f, call);
        break;
      default:
        break;
    }
    return flags;
  }

 private:
  uint64_t JudgeCopy(const WireFunction& f, const WireCall& call) const {
    constexpr uint64_t kMask = 7u << INGERO_CALL_DIRECTION_SHIFT;
    uint64_t flags = call.flags;
    uint64_t direction = (flags & kMask) >> INGERO_CALL_DIRECTION_SHIFT;
    if ((flags & INGERO_CALL_HOST_PINNED) != 0)
      return flags | call_table::kHostPinned;
    if ((flags & INGERO_CALL_HOST_PAGEABLE) != 0)
      return flags | call_table::kHostPageable;
    const uint64_t* dst = WordOf(f, call, INGERO_WORD_DST);
    const uint64_t* src = WordOf(f, call, INGERO_WORD_SRC);
    const MemoryKind* dst_kind = dst ? ranges_.Find(*dst) : nullptr;
    const MemoryKind* src_kind = src ? ranges_.Find(*src) : nullptr;
    const auto device = [](const MemoryKind* k) {
      return k != nullptr && *k == MemoryKind::kDevice;
    };
    if ((direction == INGERO_COPY_DEFAULT ||
         direction == INGERO_COPY_UNKNOWN) &&
        dst && src) {
      // With one side on the device and the other not known to be, the other
      // is the host: device memory is only had through calls that are seen.
      if (device(dst_kind) && device(src_kind))
        direction = INGERO_COPY_D2D;
      else if (device(dst_kind))
        direction = INGERO_COPY_H2D;
      else if (device(src_kind))
        direction = INGERO_COPY_D2H;
      flags = (flags & ~kMask) | direction << INGERO_CALL_DIRECTION_SHIFT;
    }
    const uint64_t* host = direction == INGERO_COPY_H2D   ? src
                           : direction == INGERO_COPY_D2H ? dst
                                                          : nullptr;
    if (host == nullptr) return flags;
    const MemoryKind* kind = host == src ? src_kind : dst_kind;
    if (kind == nullptr) return flags | call_table::kHostPageable;
    if (*kind == MemoryKind::kPinned) return flags | call_table::kHostPinned;
    return flags;  // managed: neither
  }

  MemoryRanges ranges_;
};

constexpr int64_t kMinuteNs = 60 * kSecondNs;

// Calls of one second, and of one minute, by function.
class Summary {
 public:
  Summary(StoreWriter* writer, uint32_t process)
      : writer_(writer), process_(process) {
    rows_.schema = &op_summary_table::kSchema;
    minute_rows_.schema = &op_minutes_table::kSchema;
  }

  struct Totals {
    uint64_t calls = 0, total = 0, outermost = 0, max = 0, first_uses = 0,
             first_use_ns = 0, errors = 0, bytes = 0;
    Histogram histogram;
    void Add(const Totals& t) {
      calls += t.calls;
      total += t.total;
      outermost += t.outermost;
      max = std::max(max, t.max);
      first_uses += t.first_uses;
      first_use_ns += t.first_use_ns;
      errors += t.errors;
      bytes += t.bytes;
      histogram.Merge(t.histogram);
    }
  };

  // first_use: with the time that no first use around it holds already.
  Status Add(uint32_t func, int64_t begin, uint64_t duration, bool outermost,
             std::optional<uint64_t> first_use, bool error, uint64_t bytes) {
    const int64_t second = begin / kSecondNs * kSecondNs;
    if (second > second_) {
      INGERO_RETURN_IF_ERROR(Flush());
      second_ = second;
    }
    Totals& t = totals_[func];
    if (first_use) {
      ++t.first_uses;
      t.first_use_ns += *first_use;
    } else {
      ++t.calls;
      t.total += duration;
      if (outermost) t.outermost += duration;
      t.max = std::max(t.max, duration);
      t.histogram.Add(duration);
    }
    if (error) ++t.errors;
    t.bytes += bytes;
    return {};
  }

  Status Flush() {
    const int64_t minute = second_ / kMinuteNs * kMinuteNs;
    if (minute > minute_) {
      INGERO_RETURN_IF_ERROR(FlushMinute());
      minute_ = minute;
    }
    for (auto& [func, t] : totals_) minutes_[func].Add(t);
    return Append(&totals_, second_, &rows_);
  }
  Status Finish() {
    INGERO_RETURN_IF_ERROR(Flush());
    INGERO_RETURN_IF_ERROR(FlushMinute());
    INGERO_RETURN_IF_ERROR(writer_->PutRows(&rows_, process_));
    return writer_->PutRows(&minute_rows_, process_);
  }

 private:
  using ByFunction = std::map<uint32_t, Totals>;
  Status FlushMinute() { return Append(&minutes_, minute_, &minute_rows_); }
  Status Append(ByFunction* totals, int64_t begin, Rows* rows) {
    for (auto& [func, t] : *totals) {
      const uint64_t row[] = {static_cast<uint64_t>(begin), func, t.calls,
                              t.total, t.outermost, t.max, t.first_uses,
                              t.first_use_ns, t.errors, t.bytes};
      static_assert(std::size(row) == op_summary_table::kCount);
      rows->Append(row, t.histogram.Serialize());
    }
    totals->clear();
    return rows->size() >= kBlockRows / 4 ? writer_->PutRows(rows, process_)
                                          : Status();
  }

  StoreWriter* writer_;
  uint32_t process_;
  Rows rows_, minute_rows_;
  int64_t second_ = INT64_MIN, minute_ = INT64_MIN;
  ByFunction totals_, minutes_;
};

// Depths in a stream count all recorded calls around. What is stored counts
// calls of one kind (CUDA's, or those of libraries), so that CUDA calls read the
// same whether the libraries around them were recorded or not.
class Nesting {
 public:
  // Calls of a thread, by (start, depth). An outer call that comes late, or
  // was lost, does not count.
  uint8_t Depth(const WireCall& call, bool library) {
    std::vector<Open>& open = open_[call.tid];
    while (!open.empty() && (open.back().depth >= call.depth ||
                             open.back().end_ticks < call.start_ticks))
      open.pop_back();
    uint8_t depth = 0;
    for (const Open& o : open) depth += o.library == library;
    if (open.size() < UINT8_MAX)
      open.push_back({call.no_end ? UINT64_MAX : call.end_ticks, call.depth,
                      library});
    return depth;
  }

 private:
  struct Open {
    uint64_t end_ticks;
    uint8_t depth;
    bool library;
  };
  std::unordered_map<uint32_t, std::vector<Open>> open_;
};

// Whether the calls of a thread lie within each other, or behind each other, as
// they were made. Where they do not, the clock that stamped them went wrong.
class NestingCheck {
 public:
  // Calls by (start, depth); `depth` counts all recorded calls around.
  bool Fits(const WireCall& call, size_t depth) {
    if (call.no_end) return true;
    if (last_.size() <= depth) last_.resize(depth + 1);
    Span span{call.start_ticks, call.end_ticks};
    bool fits = span.start >= last_[depth].end;
    if (depth > 0) {
      const Span& outer = last_[depth - 1];
      if (span.start < outer.end && span.end > outer.end) {
        fits = false;
        span.end = outer.end;  // counted once
      }
    }
    if (depth + 1 < last_.size()) {
      const Span& inner = last_[depth + 1];
      if (inner.start < span.start && inner.end > span.start) fits = false;
    }
    last_[depth] = span;
    return fits;
  }

 private:
  struct Span {
    uint64_t start = 0, end = 0;
  };
  std::vector<Span> last_;  // by depth
};

// Calls come nearly in order; within a block they are in order.
void SortCalls(Rows* rows) { SortByTimeAnd(rows, call_table::kDepth); }

}  // namespace

uint32_t FunctionTable::Index(const WireFunction& f) {
  const auto [it, added] = index_.try_emplace(
      {f.name, f.layer, f.call_class, f.words},
      static_cast<uint32_t>(functions_.size()));
  if (added) functions_.push_back(f);
  return it->second;
}

Result<IngestedCalls> IngestCalls(const CudaStream& stream, const CudaTarget& target,
                             FunctionTable* functions, Lives* lives,
                             StoreWriter* writer,
                             const std::function<void(uint64_t)>& progress) {
  // Stream-local id -> what it means.
  std::vector<uint32_t> index(UINT16_MAX + 1, analysis::kNone);
  std::vector<WireFunction> local(UINT16_MAX + 1);
  const auto function = [&](uint16_t id) -> const WireFunction& {
    if (index[id] == analysis::kNone) {
      const auto it = stream.functions().find(id);
      if (it != stream.functions().end())
        local[id] = it->second;
      else
        local[id].name = "function#" + std::to_string(id);  // name was lost
      index[id] = functions->Index(local[id]);
    }
    return local[id];
  };

  Rows rows;
  rows.schema = &call_table::kSchema;
  CopyJudge judge;
  Summary summary(writer, target.process);
  std::bitset<UINT16_MAX + 1> called;
  struct OfThread {
    uint32_t host_tid = 0;
    NestingCheck nesting;
  };
  std::unordered_map<uint32_t, OfThread> tids;  // by own tid
  // Of a thread's last, CUDA's and libraries' apart.
  std::unordered_map<uint32_t, int64_t> first_use_end[2];
  Nesting nesting;
  bool libraries = false;
  for (const auto& [id, f] : stream.functions())
    libraries |= f.layer == INGERO_LAYER_LIBRARY;
  uint64_t count = 0, layers = 0, damaged = 0, violations = 0;
  CallReader reader(stream);
  WireCall call;
  while (reader.Next(&call)) {
    const WireFunction& f = function(call.func);
    const bool library = f.layer == INGERO_LAYER_LIBRARY;
    const uint8_t recorded_depth = call.depth;
    if (libraries) call.depth = nesting.Depth(call, library);
    const int64_t begin = target.clock->ToNs(call.start_ticks);
    const int64_t end =
        call.no_end ? std::max(begin, target.end_of_unfinished.value)
                    : std::max(begin, target.clock->ToNs(call.end_ticks));
    if (Ns(begin) < target.plausible.begin || Ns(end) > target.plausible.end) {
      ++damaged;
      continue;
    }
    uint64_t flags = judge.Judge(f, call);
    if (call.no_end) flags |= call_table::kNoEnd;
    if (!called[call.func]) {
      called[call.func] = true;
      flags |= call_table::kFirstCall;
      layers |= uint64_t{1} << (f.layer & 63);
    }
    auto tid = tids.find(call.tid);
    if (tid == tids.end()) {
      const analysis::ThreadIndex thread =
          lives->ForStreamThread(target.process, call.tid, Ns(begin));
      const auto name = stream.threads().find(call.tid);
      if (name != stream.threads().end() &&
          lives->threads()[thread].name.empty())
        lives->threads()[thread].name = name->second.comm;
      tid = tids.emplace(call.tid, OfThread{lives->threads()[thread].tid, {}})
                .first;
    }
    violations += !tid->second.nesting.Fits(call, recorded_depth);
    std::array<uint64_t, call_table::kCount> row{};
    row[call_table::kT] = static_cast<uint64_t>(begin);
    row[call_table::kDuration] = static_cast<uint64_t>(end - begin);
    row[call_table::kTid] = tid->second.host_tid;
    row[call_table::kFunc] = index[call.func];
    row[call_table::kResult] = call.result;
    row[call_table::kDepth] = call.depth;
    row[call_table::kFlags] = flags;
    for (size_t w = 0; w < call.words.size(); ++w)
      row[call_table::kWord0 + w] = call.words[w];
    rows.Append(row);
    if (!call.no_end) {
      const bool first_use = (flags & INGERO_CALL_FIRST_USE) != 0 ||
                             (flags & call_table::kFirstCall) != 0 ||
                             f.call_class == INGERO_CLASS_CONTEXT ||
                             f.call_class == INGERO_CLASS_MODULE;
      std::optional<uint64_t> first_use_ns;
      if (first_use) {
        // The driver's call inside a runtime's first use is its time, too.
        int64_t& until = first_use_end[library][call.tid];
        first_use_ns = begin < until ? 0 : static_cast<uint64_t>(end - begin);
        until = std::max(until, end);
      }
      const bool asks = f.call_class == INGERO_CLASS_QUERY_STREAM ||
                        f.call_class == INGERO_CLASS_QUERY_EVENT;
      const bool error =
          call.result != 0 && !(asks && call.result == kResultNotReady);
      const uint64_t* bytes = WordOf(f, call, INGERO_WORD_BYTES);
      INGERO_RETURN_IF_ERROR(
          summary.Add(index[call.func], begin,
                      static_cast<uint64_t>(end - begin), call.depth == 0,
                      first_use_ns, error, bytes ? *bytes : 0));
    }
    if (rows.size() == kBlockRows) {
      INGERO_RETURN_IF_ERROR(
          writer->PutRows(&rows, target.process, SortCalls));
      progress(count);
    }
    ++count;
  }
  INGERO_RETURN_IF_ERROR(writer->PutRows(&rows, target.process, SortCalls));
  INGERO_RETURN_IF_ERROR(summary.Finish());
  return IngestedCalls{count, layers, damaged, violations};
}

Result<IngestedRanges> IngestRanges(const CudaStream& stream,
                                    const CudaTarget& target, Lives* lives,
                                    StoreWriter* writer) {
  using namespace nvtx_table;
  struct Row {
    std::array<uint64_t, kCount> values;
    std::string text;
  };
  std::vector<Row> block;
  IngestedRanges ranges;
  const auto flush = [&]() -> Status {
    // They come by their end; within a block they are by begin.
    std::stable_sort(block.begin(), block.end(), [](const Row& a, const Row& b) {
      return static_cast<int64_t>(a.values[kT]) <
             static_cast<int64_t>(b.values[kT]);
    });
    Rows rows;
    rows.schema = &kSchema;
    for (const Row& r : block) rows.Append(r.values, r.text);
    block.clear();
    return writer->PutRows(&rows, target.process);
  };
  INGERO_RETURN_IF_ERROR(stream.EachRange([&](const WireRange& r) -> Status {
    int64_t end = target.clock->ToNs(r.end_ticks);
    const int64_t begin = std::min(end, target.clock->ToNs(r.start_ticks));
    if (r.open && Ns(begin) <= target.plausible.end)
      end = std::max({begin, target.end_of_unfinished.value,
                      std::min(end, target.plausible.end.value)});
    // A range may lie long before the first CUDA call, and so the stream.
    if (begin < 0 || Ns(end) > target.plausible.end) {
      ++ranges.damaged;
      return {};
    }
    const analysis::ThreadIndex thread = lives->ForStreamThread(
        target.process, r.tid, Ns(r.open ? begin : end));
    Row row;
    row.values = {static_cast<uint64_t>(begin),
                  static_cast<uint64_t>(end - begin),
                  lives->threads()[thread].tid, r.kind, r.open};
    row.text = stream.NvtxName(r.domain) + '\0' + stream.NvtxName(r.name);
    block.push_back(std::move(row));
    ++ranges.count;
    return block.size() >= kBlockRows ? flush() : Status();
  }));
  INGERO_RETURN_IF_ERROR(flush());
  return ranges;
}

Result<IngestedRanges> IngestGpuActivity(const CudaStream& stream,
                                         const CudaTarget& target,
                                         StoreWriter* writer) {
  using namespace gpu_activity_table;
  Rows rows;
  rows.schema = &kSchema;
  IngestedRanges done;
  INGERO_RETURN_IF_ERROR(
      stream.EachGpuActivity([&](const WireGpuActivity& a) -> Status {
        const int64_t begin = target.clock->ToNs(a.start_ticks);
        const int64_t end = std::max(begin, target.clock->ToNs(a.end_ticks));
        if (Ns(begin) < target.plausible.begin ||
            Ns(end) > target.plausible.end) {
          ++done.damaged;
          return {};
        }
        std::array<uint64_t, kCount> row{};
        row[kT] = static_cast<uint64_t>(begin);
        row[kDuration] = static_cast<uint64_t>(end - begin);
        row[kKind] = a.kind;
        row[kDevice] = a.device;
        row[kStream] = a.stream;
        row[kKernel] = a.kernel;
        row[kBytes] = a.bytes;
        row[kDirection] = a.direction;
        if (a.call_ticks != 0)
          row[kCall] = static_cast<uint64_t>(target.clock->ToNs(a.call_ticks));
        rows.Append(row);
        ++done.count;
        return rows.size() == kBlockRows
                   ? writer->PutRows(&rows, target.process, SortByTime)
                   : Status();
      }));
  INGERO_RETURN_IF_ERROR(writer->PutRows(&rows, target.process, SortByTime));
  return done;
}

}  // namespace ingero::merge
