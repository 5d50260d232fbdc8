// SPDX-License-Identifier: Apache-2.0
#include "merge/kernel_ingest.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/tables.h"
#include "merge/block_joiner.h"
#include "merge/block_queue.h"
#include "merge/row_cursor.h"
#include "merge/switch_row.h"

namespace ingero::merge {
namespace {

using analysis::kNone;
using analysis::ThreadIndex;
using analysis::ThreadState;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kMinuteNs = 60 * kSecondNs;
constexpr size_t kBlockRows = 8192;
constexpr size_t kLossBlockRows = 512;  // a block waits for each CPU
// Of those that come in no order, so many are sorted at once that a block holds
// those of a short time.
constexpr size_t kLateRows = 65'536, kLateBlockRows = 4096;
constexpr size_t kMinuteSums = 32'768;
// A keyframe lists every thread; with more threads than this they come more
// rarely, so that keyframes stay a small part of a store.
constexpr size_t kThreadsPerKeyframeSecond = 4096;
// Where switches are many, keyframes come sooner, so that a window of the
// attribution can begin at one and its switches fit in a cache.
constexpr int64_t kLeastKeyframeNs = 200'000'000;
constexpr size_t kSwitchesPerKeyframe = 16'384;
constexpr size_t kSwitchesPerKeyframeThread = 64;
// Where they are few, to replay them costs less than to store keyframes.
constexpr size_t kFewSwitches = 8192;
constexpr int64_t kMostKeyframeNs = 10 * kSecondNs;

int64_t FloorTo(int64_t unit, int64_t t) {
  const int64_t floor = t / unit * unit;
  return t < floor ? floor - unit : floor;
}
int64_t FloorSecond(int64_t t) { return FloorTo(kSecondNs, t); }

// Adds rows to a table, in blocks.
class TableWriter {
 public:
  TableWriter(StoreWriter* writer, const TableSchema& schema, uint32_t owner)
      : writer_(writer), owner_(owner) {
    rows_.schema = &schema;
  }
  Status Add(std::span<const uint64_t> row) {
    rows_.Append(row);
    return rows_.size() >= kBlockRows ? Flush() : Status();
  }
  Status Flush() { return writer_->PutRows(&rows_, owner_); }

 private:
  StoreWriter* writer_;
  uint32_t owner_;
  Rows rows_;
};

// The same for rows that come in no order; by time and the column after it.
class LateWriter {
 public:
  LateWriter(StoreWriter* writer, const TableSchema& schema, uint32_t owner)
      : writer_(writer), owner_(owner) {
    rows_.schema = block_.schema = &schema;
  }
  Status Add(std::span<const uint64_t> row) {
    rows_.Append(row);
    return rows_.size() >= kLateRows ? Flush() : Status();
  }
  Status Flush() {
    SortByTimeAnd(&rows_, 1);
    for (size_t r = 0; r < rows_.size(); ++r) {
      block_.Append(rows_.row(r));
      if (block_.size() == kLateBlockRows || r + 1 == rows_.size())
        INGERO_RETURN_IF_ERROR(writer_->PutRows(&block_, owner_));
    }
    rows_.Clear();
    return {};
  }

 private:
  StoreWriter* writer_;
  uint32_t owner_;
  Rows rows_, block_;
};

// Rows of sched_summary, none of them over the border of a minute, summed by
// minute and process.
class MinuteSums {
 public:
  explicit MinuteSums(StoreWriter* writer)
      : rows_(writer, sched_minutes_table::kSchema, 0) {}
  Status Add(analysis::ProcessIndex process, std::span<const uint64_t> row) {
    namespace from = sched_summary_table;
    namespace to = sched_minutes_table;
    const int64_t minute =
        FloorTo(kMinuteNs, static_cast<int64_t>(row[from::kT]));
    Sum& sum = sums_[{minute, process}];
    sum[to::kT] = static_cast<uint64_t>(minute);
    sum[to::kProcess] = process;
    for (size_t c = from::kPreempted; c <= from::kMajFaults; ++c) {
      uint64_t& value = sum[c - from::kPreempted + to::kPreempted];
      value = c == from::kWorstOffCpuNs ? std::max(value, row[c])
                                        : value + row[c];
    }
    sum[to::kKernelNs] += row[from::kKernelNs];
    return sums_.size() >= kMinuteSums ? Flush() : Status();
  }
  Status Flush() {
    for (const auto& [key, sum] : sums_)
      INGERO_RETURN_IF_ERROR(rows_.Add(sum));
    sums_.clear();
    return rows_.Flush();
  }

 private:
  using Sum = std::array<uint64_t, sched_minutes_table::kCount>;
  using Key = std::pair<int64_t, analysis::ProcessIndex>;
  struct Hash {
    size_t operator()(const Key& key) const {
      return std::hash<int64_t>()(key.first / kMinuteNs << 32 ^ key.second);
    }
  };
  std::unordered_map<Key, Sum, Hash> sums_;
  LateWriter rows_;
};

// What threads do between switches, summed by second and kept as keyframes.
class Timelines {
 public:
  Timelines(StoreWriter* writer, Lives* lives)
      : lives_(lives),
        seconds_(writer, sched_summary_table::kSchema, kSchedSeconds),
        late_(writer, sched_summary_table::kSchema, kSchedLate),
        minutes_(writer),
        writer_(writer) {
    keyframe_.schema = &keyframe_table::kSchema;
  }

  Status OnSwitch(std::span<const uint64_t> row, uint16_t cpu);
  // `thread` came to `cpu` at or before `t` and left it unseen.
  void Forget(ThreadIndex thread, uint16_t cpu, int64_t t);
  // Pages of a thread that has not switched yet; the switch repeats them.
  Status OnPages(ThreadIndex thread, int64_t t, uint64_t pages) {
    INGERO_RETURN_IF_ERROR(Advance(t));
    State& s = Dirty(thread);
    s.sum[sched_summary_table::kPages] += pages;
    s.pages_told += pages;
    return {};
  }
  // Scheduling is recorded from `t` on.
  void Open(int64_t t) { origin_ = t; }
  // Scheduling was not recorded between `t` and what comes next.
  Status Close(int64_t t);
  Status Finish();

 private:
  struct State {
    ThreadState state = ThreadState::kUnknown;
    bool dirty = false;
    bool lost = false;  // kUnknown: it was known, until a switch was not seen
    bool outside = false;  // kRunning: its end may have been left out
    uint16_t cpu = 0;
    uint32_t syscall = 0;  // plus 1
    int64_t since = 0;
    uint64_t pages_told = 0;  // by OnPages since its last switch-out
    std::array<uint64_t, sched_summary_table::kCount> sum{};
  };
  // References live until the next call with a thread that is new.
  State& At(ThreadIndex thread) {
    if (thread >= states_.size()) states_.resize(thread + 1024);
    return states_[thread];
  }
  State& Dirty(ThreadIndex thread) {
    State& s = At(thread);
    if (!s.dirty) {
      s.dirty = true;
      dirty_.push_back(thread);
    }
    return s;
  }
  // Since when a thread that has not switched yet could have been seen.
  int64_t Known(ThreadIndex thread) const {
    return std::max(origin_, lives_->thread_begin(thread).value);
  }
  Status Advance(int64_t t);
  Status FlushSecond();
  Status Keyframe(int64_t t);
  Status AddSpan(ThreadIndex thread, ThreadState state, int64_t begin,
                 int64_t end);
  std::array<uint64_t, sched_summary_table::kCount> NewRow(ThreadIndex thread,
                                                           int64_t second);

  Lives* lives_;
  TableWriter seconds_;
  LateWriter late_;
  MinuteSums minutes_;
  StoreWriter* writer_;
  Rows keyframe_;
  std::vector<State> states_;
  std::vector<ThreadIndex> dirty_;
  int64_t origin_ = 0;
  int64_t second_ = INT64_MIN;
  int64_t next_keyframe_ = INT64_MIN;
  int64_t soonest_keyframe_ = INT64_MIN;
  size_t switches_ = 0;  // since the last one
  size_t many_switches_ = kSwitchesPerKeyframe;
};

std::array<uint64_t, sched_summary_table::kCount> Timelines::NewRow(
    ThreadIndex thread, int64_t second) {
  std::array<uint64_t, sched_summary_table::kCount> row{};
  const analysis::Thread& t = lives_->threads()[thread];
  row[sched_summary_table::kT] = static_cast<uint64_t>(second);
  row[sched_summary_table::kTid] = t.tid;
  row[sched_summary_table::kTgid] = lives_->processes()[t.process].pid;
  return row;
}

Status Timelines::FlushSecond() {
  std::sort(dirty_.begin(), dirty_.end());
  for (ThreadIndex thread : dirty_) {
    State& s = states_[thread];
    auto row = NewRow(thread, second_);
    for (size_t c = sched_summary_table::kPreempted; c < row.size(); ++c)
      row[c] = s.sum[c];
    s.sum = {};
    s.dirty = false;
    INGERO_RETURN_IF_ERROR(seconds_.Add(row));
    INGERO_RETURN_IF_ERROR(
        minutes_.Add(lives_->threads()[thread].process, row));
  }
  dirty_.clear();
  return {};
}

Status Timelines::Keyframe(int64_t t) {
  size_t listed = 0;
  for (ThreadIndex i = 0; i < states_.size(); ++i) {
    const State& s = states_[i];
    if (s.state == ThreadState::kUnknown || s.state == ThreadState::kDead)
      continue;
    using namespace keyframe_table;
    std::array<uint64_t, kCount> row{};
    const analysis::Thread& thread = lives_->threads()[i];
    row[kT] = static_cast<uint64_t>(t);
    row[kTid] = thread.tid;
    row[kTgid] = lives_->processes()[thread.process].pid;
    row[kState] = static_cast<uint64_t>(s.state);
    row[kSince] = static_cast<uint64_t>(s.since);
    row[kCpu] = s.cpu;
    row[kSyscall] = s.syscall;
    keyframe_.Append(row);
    ++listed;
    if (keyframe_.size() == kMaxBlockRows)
      INGERO_RETURN_IF_ERROR(writer_->PutRows(&keyframe_, 0));
  }
  // A keyframe's rows are a block of their own: found by key, read alone.
  INGERO_RETURN_IF_ERROR(writer_->PutRows(&keyframe_, 0));
  next_keyframe_ =
      t + kSecondNs *
              static_cast<int64_t>(1 + listed / kThreadsPerKeyframeSecond);
  soonest_keyframe_ = t + kLeastKeyframeNs;
  switches_ = 0;
  many_switches_ =
      std::max(kSwitchesPerKeyframe, kSwitchesPerKeyframeThread * listed);
  return {};
}

Status Timelines::Advance(int64_t t) {
  if (next_keyframe_ == INT64_MIN) {
    next_keyframe_ = t + kSecondNs;
    soonest_keyframe_ = t + kLeastKeyframeNs;
  }
  const bool due = t >= next_keyframe_ &&
                   (switches_ >= kFewSwitches ||
                    t >= next_keyframe_ + kMostKeyframeNs);
  if (due || (switches_ >= many_switches_ && t >= soonest_keyframe_))
    INGERO_RETURN_IF_ERROR(Keyframe(t));
  const int64_t second = FloorSecond(t);
  if (second > second_) {
    INGERO_RETURN_IF_ERROR(FlushSecond());
    second_ = second;
  }
  return {};
}

// What lies in the current second is summed; parts of earlier seconds get rows
// of their own, whole seconds one a minute. So a sleep is written once, when it
// ends and its true length is known.
Status Timelines::AddSpan(ThreadIndex thread, ThreadState state, int64_t begin,
                          int64_t end) {
  using namespace sched_summary_table;
  size_t column;
  switch (state) {
    case ThreadState::kRunning: column = kRunningNs; break;
    case ThreadState::kRunnable: column = kRunnableNs; break;
    case ThreadState::kSleeping:
    case ThreadState::kBlocked:
    case ThreadState::kStopped: column = kSleepingNs; break;
    case ThreadState::kDisk: column = kIoNs; break;
    default: return {};
  }
  if (end <= begin) return {};
  const auto late = [&](int64_t from, int64_t to, int64_t seconds) -> Status {
    auto row = NewRow(thread, FloorSecond(from));
    row[column] = static_cast<uint64_t>(to - from);
    row[kSeconds] = static_cast<uint64_t>(seconds);
    INGERO_RETURN_IF_ERROR(late_.Add(row));
    return minutes_.Add(lives_->threads()[thread].process, row);
  };
  const auto part = [&](int64_t from, int64_t to) -> Status {
    if (to <= from) return {};
    if (FloorSecond(from) != second_) return late(from, to, 0);
    Dirty(thread).sum[column] += static_cast<uint64_t>(to - from);
    return {};
  };
  const int64_t first_whole = FloorSecond(begin + kSecondNs - 1);
  const int64_t last_whole = FloorSecond(end);
  if (first_whole >= last_whole) {
    const int64_t edge = std::clamp(first_whole, begin, end);
    INGERO_RETURN_IF_ERROR(part(begin, edge));
    return part(edge, end);
  }
  INGERO_RETURN_IF_ERROR(part(begin, first_whole));
  for (int64_t from = first_whole, to; from < last_whole; from = to) {
    to = std::min(last_whole, FloorTo(kMinuteNs, from) + kMinuteNs);
    INGERO_RETURN_IF_ERROR(late(from, to, (to - from) / kSecondNs));
  }
  return part(last_whole, end);
}

Status Timelines::OnSwitch(std::span<const uint64_t> row, uint16_t cpu) {
  using namespace switch_table;
  const auto t = static_cast<int64_t>(row[kT]);
  const uint64_t flags = row[kFlags];
  INGERO_RETURN_IF_ERROR(Advance(t));
  ++switches_;

  if (row[kPrevTid] != 0) {
    const ThreadIndex thread =
        lives_->Current(static_cast<uint32_t>(row[kPrevTid]),
                        static_cast<uint32_t>(row[kPrevTgid]), Ns(t));
    if (flags & INGERO_PREV_KTHREAD) lives_->MarkKernel(thread);
    if (!(flags & INGERO_PREV_OUTSIDE)) lives_->MarkInScope(thread);
    lives_->Seen(thread, Ns(t));
    State& s = Dirty(thread);
    // Not seen coming: it ran at least since it was made; or, where it was
    // off the CPU, for a time that is not known, so nothing is claimed.
    if (s.state == ThreadState::kRunning && s.cpu == cpu)
      INGERO_RETURN_IF_ERROR(
          AddSpan(thread, ThreadState::kRunning, s.since, t));
    else if (s.state == ThreadState::kUnknown && !s.lost)
      INGERO_RETURN_IF_ERROR(
          AddSpan(thread, ThreadState::kRunning, Known(thread), t));
    s.state = StateAfter(flags, row[kPrevState]);
    s.lost = s.state == ThreadState::kUnknown;
    s.outside = false;
    s.since = t;
    s.cpu = cpu;
    s.syscall = static_cast<uint32_t>(row[kPrevSyscall]);
    using namespace sched_summary_table;
    if (flags & INGERO_PREV_YIELDED)
      ++s.sum[kYielded];
    else if (s.state == ThreadState::kRunnable)
      ++s.sum[kPreempted];
    else if (s.state != ThreadState::kDead &&
             s.state != ThreadState::kUnknown)
      ++s.sum[kSlept];
    s.sum[kPages] +=
        row[kPrevPages] - std::min(row[kPrevPages], s.pages_told);
    s.pages_told = 0;
    s.sum[kMinFaults] += row[kPrevMinFaults];
    s.sum[kMajFaults] += row[kPrevMajFaults];
    s.sum[kKernelNs] += row[kPrevKernelUs] * 1000;
  }

  if (row[kNextTid] != 0) {
    const ThreadIndex thread =
        lives_->Current(static_cast<uint32_t>(row[kNextTid]),
                        static_cast<uint32_t>(row[kNextTgid]), Ns(t));
    if (flags & INGERO_NEXT_KTHREAD) lives_->MarkKernel(thread);
    // What one outside did before it came is not known.
    const bool outside = flags & INGERO_NEXT_OUTSIDE;
    if (!outside) lives_->MarkInScope(thread);
    lives_->Seen(thread, Ns(t));
    State& s = At(thread);
    const bool was_known = s.state != ThreadState::kUnknown;
    int64_t since = s.since;
    ThreadState state = s.state;
    if (outside) {
      state = ThreadState::kUnknown;
    } else if (!was_known && !s.lost) {
      // Its first switch: it was asleep if something woke it.
      since = Known(thread);
      state = row[kWakeT] != 0 && !(flags & INGERO_WAKE_NEW)
                  ? ThreadState::kSleeping
                  : ThreadState::kRunnable;
    }
    if (state != ThreadState::kRunning && state != ThreadState::kDead &&
        state != ThreadState::kUnknown) {
      int64_t wake = since;
      if (state != ThreadState::kRunnable) {
        wake = row[kWakeT] == 0 ? t : static_cast<int64_t>(row[kWakeT]);
        wake = std::clamp(wake, std::min(since, t), t);
        INGERO_RETURN_IF_ERROR(AddSpan(thread, state, since, wake));
      }
      INGERO_RETURN_IF_ERROR(
          AddSpan(thread, ThreadState::kRunnable, wake, t));
      if (was_known && t > since) {
        uint64_t& worst =
            Dirty(thread).sum[sched_summary_table::kWorstOffCpuNs];
        worst = std::max(worst, static_cast<uint64_t>(t - since));
      }
    }
    s.state = ThreadState::kRunning;
    s.lost = false;
    s.outside = outside;
    s.since = t;
    s.cpu = cpu;
    s.syscall = 0;
  }
  return {};
}

void Timelines::Forget(ThreadIndex thread, uint16_t cpu, int64_t t) {
  State& s = At(thread);
  if (s.state != ThreadState::kRunning || s.cpu != cpu || s.since > t) return;
  s.state = ThreadState::kUnknown;
  s.lost = true;
}

Status Timelines::Close(int64_t t) {
  for (ThreadIndex i = 0; i < states_.size(); ++i) {
    const State s = states_[i];
    states_[i].lost = false;
    if (s.state == ThreadState::kUnknown) continue;
    if (!s.outside)
      INGERO_RETURN_IF_ERROR(AddSpan(i, s.state, s.since, t));
    states_[i].state = ThreadState::kUnknown;
  }
  return FlushSecond();
}

Status Timelines::Finish() {
  INGERO_RETURN_IF_ERROR(FlushSecond());
  INGERO_RETURN_IF_ERROR(seconds_.Flush());
  INGERO_RETURN_IF_ERROR(late_.Flush());
  return minutes_.Flush();
}

// Each CPU's switches form a chain: who came is who leaves next. Where they do
// not, a switch in between was not recorded. What no loss explains, the kernel
// did not show, and that is a loss of its own: recorded + lost = happened.
class Chains {
 public:
  struct Gap {
    uint32_t tid, tgid;  // came and left unseen; 0 = the idle task
    int64_t since;
  };

  // A loss that the companion counted. All, before the first row.
  void AddLoss(uint32_t cpu, std::span<const uint64_t> row) {
    using namespace loss_table;
    uint32_t on = cpu;
    switch (row[kLoss]) {
      case INGERO_LOSS_SWITCH_RING_FULL:
      case INGERO_LOSS_NOT_IMPORTED:
        break;
      // Not kept by CPU.
      case INGERO_LOSS_WRITE_FAILED:
      case INGERO_LOSS_WRITER_BEHIND:
      case INGERO_LOSS_BPF_MISSED: on = kAnyCpu; break;
      default: return;
    }
    losses_[on].push_back({Ns(static_cast<int64_t>(row[kT])),
                           Ns(static_cast<int64_t>(row[kEndT]) + 1)});
  }
  void EndOfLosses() {
    for (auto& [cpu, ranges] : losses_) {
      std::sort(ranges.begin(), ranges.end(), [](Interval a, Interval b) {
        return a.begin < b.begin;
      });
      // Ends in order too, for the search.
      for (size_t i = 1; i < ranges.size(); ++i)
        ranges[i].end = std::max(ranges[i].end, ranges[i - 1].end);
    }
  }

  // A stream begins. explained: any of its switches may be missing.
  void Open(bool explained) {
    explained_ = explained;
    cpus_.clear();
  }
  // *gap: the break before this row, if there is one.
  Status OnSwitch(std::span<const uint64_t> row, uint32_t cpu,
                  StoreWriter* writer, std::optional<Gap>* gap) {
    using namespace switch_table;
    const auto t = static_cast<int64_t>(row[kT]);
    if (cpu >= cpus_.size()) cpus_.resize(cpu + 1);
    Cpu& c = cpus_[cpu];
    gap->reset();
    // A thread that calls exec takes its process's pid without a switch.
    const bool exec = row[kPrevTid] == row[kPrevTgid] &&
                      row[kPrevTgid] == c.next_tgid && c.next_tid != 0;
    const bool left_out = row[kFlags] & INGERO_PREV_LEFT_OUT;
    if (c.seen && (left_out || (row[kPrevTid] != c.next_tid && !exec))) {
      *gap = Gap{c.next_tid, c.next_tgid, c.t};
      if (!left_out && !explained_ && !Lost(cpu, c.t, t) && !Lost(kAnyCpu, c.t, t)) {
        Unseen& u = unseen_[cpu];
        if (u.count != 0 && FloorSecond(u.last) != FloorSecond(t)) {
          Add(&u);
          if (u.rows.size() >= kLossBlockRows)
            INGERO_RETURN_IF_ERROR(writer->PutRows(&u.rows, cpu));
        }
        if (u.count++ == 0) u.first = c.t;
        u.last = t;
      }
    }
    c = {true, static_cast<uint32_t>(row[kNextTid]),
         static_cast<uint32_t>(row[kNextTgid]), t};
    return {};
  }
  Status Finish(StoreWriter* writer) {
    for (auto& [cpu, unseen] : unseen_) {
      if (unseen.count != 0) Add(&unseen);
      INGERO_RETURN_IF_ERROR(writer->PutRows(&unseen.rows, cpu));
    }
    return {};
  }

 private:
  static constexpr uint32_t kAnyCpu = UINT32_MAX;
  struct Cpu {
    bool seen = false;
    uint32_t next_tid = 0, next_tgid = 0;
    int64_t t = 0;
  };
  struct Unseen {
    int64_t first = 0, last = 0;
    uint64_t count = 0;
    Rows rows;  // of before
  };
  bool Lost(uint32_t cpu, int64_t from, int64_t to) const {
    const auto of_cpu = losses_.find(cpu);
    if (of_cpu == losses_.end()) return false;
    const auto& ranges = of_cpu->second;
    const auto after = std::lower_bound(
        ranges.begin(), ranges.end(), Ns(from),
        [](const Interval& i, Ns t) { return i.end <= t; });
    return after != ranges.end() && after->begin <= Ns(to);
  }
  static void Add(Unseen* u) {
    u->rows.schema = &loss_table::kSchema;
    const uint64_t row[] = {static_cast<uint64_t>(u->first),
                            static_cast<uint64_t>(u->last),
                            INGERO_LOSS_SWITCH_UNSEEN, u->count};
    u->rows.Append(row);
    u->count = 0;
  }

  bool explained_ = false;
  std::vector<Cpu> cpus_;
  std::map<uint32_t, Unseen> unseen_;
  std::map<uint32_t, std::vector<Interval>> losses_;
};

// Rows of a block that are not in `window`'s past are kept.
Status PutFrom(const std::string& block, const TableSchema& schema,
               uint32_t owner, int64_t from, StoreWriter* writer) {
  Rows rows, kept;
  INGERO_RETURN_IF_ERROR(DecodeBlock(block, schema, &rows));
  kept.schema = &schema;
  for (size_t r = 0; r < rows.size(); ++r)
    if (static_cast<int64_t>(rows.at(r, 0)) >= from)
      kept.Append(rows.row(r), schema.has_text ? rows.texts[r] : "");
  return writer->PutRows(&kept, owner);
}

}  // namespace

Status IngestKernel(const std::vector<std::unique_ptr<KernelStream>>& streams,
                    size_t decoders, StoreWriter* writer, Lives* lives,
                    KernelFacts* facts,
                    const std::function<void(double, uint64_t)>& progress) {
  std::vector<BlockRef> switches, tasks;
  BlockJoiner joiner(writer);
  Chains chains;
  std::vector<int64_t> from(streams.size(), INT64_MIN);
  int64_t covered = INT64_MIN;
  std::string bytes;
  uint64_t total = 0, done = 0;
  for (const auto& stream : streams) total += stream->bytes();
  for (size_t i = 0; i < streams.size(); ++i) {
    const KernelStream& stream = *streams[i];
    from[i] = covered;
    covered = std::max(covered, stream.span().end.value + 1);
    Interval switch_span;
    bool scoped = false;
    std::map<uint64_t, uint64_t> left_out;  // by CPU
    const size_t first_knot = facts->knots.size();
    for (BlockRef ref : stream.blocks()) {
      done += ref.bytes;
      if (ref.last_ns < from[i]) continue;
      const TableSchema* schema = FindTable(ref.table);
      if (schema == nullptr) continue;  // counted by the caller
      INGERO_RETURN_IF_ERROR(stream.Read(ref, &bytes));
      ref.source = static_cast<uint16_t>(i);
      if (ref.first_ns < from[i])
        INGERO_RETURN_IF_ERROR(
            PutFrom(bytes, *schema, ref.owner, from[i], writer));
      else
        INGERO_RETURN_IF_ERROR(joiner.Put(bytes, *schema));
      if (ref.table == switch_table::kSchema.id) {
        const Ns begin(std::max(ref.first_ns, from[i])), end(ref.last_ns + 1);
        switch_span = switch_span.empty()
                          ? Interval{begin, end}
                          : Interval{std::min(switch_span.begin, begin),
                                     std::max(switch_span.end, end)};
        switches.push_back(ref);
      } else if (ref.table == task_table::kSchema.id) {
        tasks.push_back(ref);
      } else if (ref.table == knot_table::kSchema.id) {
        Rows rows;
        INGERO_RETURN_IF_ERROR(DecodeBlock(bytes, knot_table::kSchema, &rows));
        for (size_t r = 0; r < rows.size(); ++r)
          facts->knots.push_back(
              {rows.at(r, knot_table::kTsc),
               static_cast<int64_t>(rows.at(r, knot_table::kT)),
               rows.at(r, knot_table::kWindowTicks)});
      } else if (ref.table == loss_table::kSchema.id) {
        Rows rows;
        INGERO_RETURN_IF_ERROR(DecodeBlock(bytes, loss_table::kSchema, &rows));
        for (size_t r = 0; r < rows.size(); ++r)
          chains.AddLoss(ref.owner, rows.row(r));
      } else if (ref.table == sample_table::kSchema.id) {
        Rows rows;
        INGERO_RETURN_IF_ERROR(
            DecodeBlock(bytes, sample_table::kSchema, &rows));
        for (size_t r = 0; r < rows.size(); ++r) {
          if (static_cast<int64_t>(rows.at(r, 0)) < from[i]) continue;
          ++facts->samples;
          const auto metric =
              static_cast<Metric>(rows.at(r, sample_table::kMetric));
          const uint64_t value = rows.at(r, sample_table::kValue);
          if (metric == Metric::kCpuOnline) facts->cpus = value;
          if (metric == Metric::kScope) {
            scoped = true;
            facts->scope = rows.texts[r];
          }
          if (metric == Metric::kSwitchesLeftOut)
            left_out[rows.at(r, sample_table::kInstance)] = value;
          if (metric == Metric::kPageCostNs) facts->page_cost_ns = value;
          if (metric == Metric::kCudaProcess)
            facts->cuda_processes.push_back(
                {Ns(static_cast<int64_t>(rows.at(r, sample_table::kT))),
                 static_cast<uint32_t>(rows.at(r, sample_table::kInstance)),
                 value, rows.texts[r]});
        }
      }
      progress(0.3 * static_cast<double>(done) /
                   static_cast<double>(std::max<uint64_t>(total, 1)),
               0);
    }
    for (const auto& [cpu, count] : left_out) facts->left_out += count;
    // A tree may be asleep for long. The first knot comes after the probes
    // were attached, the last but one before they were detached.
    if (scoped && facts->knots.size() >= first_knot + 2) {
      const Interval knots{
          Ns(std::max(facts->knots[first_knot].mono_ns, from[i])),
          Ns(facts->knots[facts->knots.size() - 2].mono_ns)};
      if (switch_span.empty())
        switch_span = knots;
      else
        switch_span = {std::min(switch_span.begin, knots.begin),
                       std::max(switch_span.end, knots.end)};
    }
    if (!switch_span.empty()) facts->spans.push_back(switch_span);
  }

  INGERO_RETURN_IF_ERROR(joiner.Finish());
  chains.EndOfLosses();

  const BlockReader read = [&](const BlockRef& ref, std::string* out) {
    return streams[ref.source]->Read(ref, out);
  };
  // Rows of a stream from before the time that an earlier one covers are in
  // neither cursor: blocks carry their source, rows are checked below.
  const Interval always{Ns(INT64_MIN), Ns(INT64_MAX)};
  uint64_t rows_to_come = 0;
  for (const auto& stream : streams) rows_to_come += stream->rows();
  Timelines timelines(writer, lives);
  uint64_t rows = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    // One stream after another: their times do not overlap any more.
    const auto of_stream = [&](const std::vector<BlockRef>& all) {
      std::vector<BlockRef> mine;
      for (const BlockRef& ref : all)
        if (ref.source == i) mine.push_back(ref);
      return mine;
    };
    const Interval window{Ns(from[i]), always.end};
    RowCursor task_rows(task_table::kSchema, of_stream(tasks), window, read);
    RowCursor switch_rows(switch_table::kSchema, of_stream(switches), window,
                          read, decoders);
    timelines.Open(
        std::max(from[i], streams[i]->span().begin.value));
    const ingero_stream_header& header = streams[i]->header();
    chains.Open(streams[i]->skipped_places() > 0 ||
                std::any_of(std::begin(header.lost), std::end(header.lost),
                            [](uint64_t count) { return count != 0; }));
    std::optional<Chains::Gap> gap;
    bool have_task = task_rows.Next(), have_switch = switch_rows.Next();
    while (have_task || have_switch) {
      if (have_task &&
          (!have_switch || task_rows.time() <= switch_rows.time())) {
        const auto row = task_rows.row();
        lives->OnTask(row, task_rows.text());
        if (row[task_table::kEvent] == INGERO_TASK_EVENT_PAGES) {
          const Ns t(task_rows.time());
          INGERO_RETURN_IF_ERROR(timelines.OnPages(
              lives->Current(static_cast<uint32_t>(row[task_table::kTid]),
                             static_cast<uint32_t>(row[task_table::kTgid]), t),
              t.value, row[task_table::kCode]));
        }
        if (row[task_table::kEvent] == INGERO_TASK_EVENT_RECLAIM ||
            row[task_table::kEvent] == INGERO_TASK_EVENT_COMPACTION)
          ++facts->memory_stalls;
        ++facts->tasks;
        have_task = task_rows.Next();
      } else {
        const auto row = switch_rows.row();
        const auto cpu = static_cast<uint16_t>(switch_rows.owner());
        INGERO_RETURN_IF_ERROR(chains.OnSwitch(row, cpu, writer, &gap));
        if (gap && gap->tid != 0)
          timelines.Forget(
              lives->Current(gap->tid, gap->tgid, Ns(gap->since)), cpu,
              gap->since);
        INGERO_RETURN_IF_ERROR(timelines.OnSwitch(row, cpu));
        ++facts->switches;
        have_switch = switch_rows.Next();
      }
      if ((++rows & 0xffff) == 0)
        progress(0.3 + 0.7 * static_cast<double>(rows) /
                           static_cast<double>(std::max<uint64_t>(
                               rows_to_come, 1)),
                 rows);
    }
    INGERO_RETURN_IF_ERROR(timelines.Close(streams[i]->span().end.value));
  }
  if (!facts->scope.empty()) lives->LimitScope();
  INGERO_RETURN_IF_ERROR(chains.Finish(writer));
  return timelines.Finish();
}

}  // namespace ingero::merge
