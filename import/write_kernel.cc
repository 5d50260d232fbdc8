// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "base/block_codec.h"
#include "base/file.h"
#include "base/stream_check.h"
#include "base/tables.h"
#include "base/text.h"
#include "import/sched.h"
#include "import/stream_file.h"

namespace ingero::import {
namespace {

constexpr uint32_t kNobody = SchedEvent::kNobody;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kLongestNs = 30 * 86'400 * kSecondNs;
constexpr uint32_t kKthreadd = 2;
constexpr size_t kBlockRows = 4096;
// What tells of a birth twice does so within this.
constexpr int64_t kSameBirthNs = kSecondNs;
// More breaks than this: the recording is not of whole CPUs.
constexpr double kMostBreaks = 0.5;
// A call begins while its thread runs, but for what two clocks differ.
constexpr int64_t kClockErrorNs = 50'000;
constexpr double kLeastRunning = 0.5;
constexpr size_t kLeastCalls = 8;

uint64_t U(int64_t t) { return static_cast<uint64_t>(t); }

bool IsScheduling(const SchedEvent& e) {
  return e.kind <= SchedEvent::kWakeNew;
}

// Blocks of one table and owner, into a file.
class Blocks {
 public:
  Blocks(int fd, const std::string& path, uint64_t* at,
         const TableSchema& schema, uint32_t owner)
      : fd_(fd), path_(path), at_(at), owner_(owner) {
    rows_.schema = &schema;
  }
  Status Add(std::span<const uint64_t> row, std::string_view text = {}) {
    rows_.Append(row, text);
    text_bytes_ += text.size();
    return rows_.size() >= kBlockRows || text_bytes_ > kMaxBlockTextBytes / 2
               ? Flush()
               : Status();
  }
  Status Flush() {
    if (rows_.size() == 0) return {};
    std::string block;
    EncodeBlock(rows_, owner_, &block);
    rows_.Clear();
    text_bytes_ = 0;
    INGERO_RETURN_IF_ERROR(WriteAllAt(fd_, block, *at_).In(path_));
    *at_ += block.size();
    return {};
  }

 private:
  int fd_;
  const std::string& path_;
  uint64_t* at_;
  uint32_t owner_;
  Rows rows_;
  size_t text_bytes_ = 0;
};

// A thread from its birth to its end; its tid may be another's later.
struct Life {
  uint32_t tid = 0;
  uint32_t tgid = kNobody;
  uint32_t parent = kNobody;  // tid
  uint32_t name = 0;          // last seen
  int64_t born = INT64_MIN;   // INT64_MIN = before the recording
  int64_t seen = INT64_MIN;   // first on a CPU, leaving one, or woken
  bool dead = false, kernel = false;
  bool ran = false;        // it was seen on a CPU, or leaving one
  bool runnable = false;   // it left its CPU without going to sleep
  // The newest wake, which its next switch tells.
  int64_t wake = INT64_MIN;
  uint32_t waker = kNobody;  // a life
  uint16_t wake_flags = 0;
  bool waking = false;  // that was sched_waking, which says more
};

struct Row {
  int64_t t, wake;
  uint32_t cpu, prev, next, waker;  // lives; kNobody = the idle task, nobody
  uint16_t flags;
  int16_t syscall;
  uint8_t state;
};

// Of a thread's life, with a text.
struct TaskRow {
  int64_t t;
  ingero_task_event event;
  uint32_t life;
  uint32_t name;
  uint32_t more;  // RENAME: the name before; EXEC: the file
};

struct LossRow {
  uint32_t cpu;
  int64_t begin, end;
  uint64_t count;
};

class Builder {
 public:
  explicit Builder(const SchedEvents& in) : in_(in) {}
  Status Build();

  std::vector<Life> lives;
  std::vector<Row> rows;
  std::vector<TaskRow> tasks;
  std::vector<LossRow> losses;
  int64_t begin = 0, end = 0;
  uint64_t lost = 0;

 private:
  struct Cpu {
    bool seen = false;
    uint32_t tid = 0;
    int64_t t = 0;
    bool lost = false;  // since t, and told
  };
  uint32_t NewLife(uint32_t tid, int64_t born) {
    const auto index = static_cast<uint32_t>(lives.size());
    Life life;
    life.tid = tid;
    life.born = born;
    lives.push_back(life);
    return current_[tid] = index;
  }
  // Of a thread that does something at `t`.
  uint32_t Alive(uint32_t tid, int64_t t) {
    const auto at = current_.find(tid);
    if (at == current_.end()) return NewLife(tid, INT64_MIN);
    return lives[at->second].dead ? NewLife(tid, t) : at->second;
  }
  static void Saw(Life* life, int64_t t) {
    if (life->seen == INT64_MIN) life->seen = t;
  }
  void Named(uint32_t life, int64_t t, uint32_t name) {
    Life& l = lives[life];
    if (name == l.name || name == 0) return;
    if (l.name != 0)
      tasks.push_back({t, INGERO_TASK_EVENT_RENAME, life, name, l.name});
    l.name = name;
  }
  Cpu& At(uint32_t cpu) {
    if (cpu >= cpus_.size()) cpus_.resize(cpu + 1);
    return cpus_[cpu];
  }
  void OnSwitch(const SchedEvent& e);
  void OnWake(const SchedEvent& e);
  void OnFork(const SchedEvent& e);
  void OnLost(const SchedEvent& e);
  void OnGap(const SchedEvents::Gap& gap);

  const SchedEvents& in_;
  std::unordered_map<uint32_t, uint32_t> current_;  // by tid
  std::vector<Cpu> cpus_;
  bool heads_ = false;  // ids before events are those in them
  uint64_t breaks_ = 0;
  std::vector<size_t> gaps_;  // of losses: which no break has shown yet
};

void Builder::OnSwitch(const SchedEvent& e) {
  Cpu& cpu = At(e.cpu);
  if (cpu.seen && cpu.tid != e.tid) {
    ++breaks_;
    if (!cpu.lost) {
      const LossRow row{e.cpu, cpu.t, e.t, 1};
      // What is missing here is what a gap hid, once.
      if (!gaps_.empty() && losses[gaps_.back()].end >= cpu.t) {
        losses[gaps_.back()] = row;
        gaps_.pop_back();
      } else {
        losses.push_back(row);
        ++lost;
      }
    }
  }
  cpu = {true, e.other, e.t, false};
  Row row{};
  row.t = e.t;
  row.cpu = e.cpu;
  row.prev = row.next = row.waker = kNobody;
  row.flags = e.flags;
  row.state = e.state;
  row.syscall = e.syscall;
  if (e.tid != 0) {
    row.prev = Alive(e.tid, e.t);
    Life& prev = lives[row.prev];
    Saw(&prev, e.t);
    prev.ran = true;
    prev.runnable = e.state == INGERO_TASK_RUNNING;
    prev.dead = (e.flags & INGERO_PREV_DEAD) != 0;
    prev.kernel |= (e.flags & INGERO_PREV_KTHREAD) != 0;
    if (heads_ && e.self == e.tid && e.self_tgid != kNobody)
      prev.tgid = e.self_tgid;
    Named(row.prev, e.t, e.name);
  }
  if (e.other != 0) {
    row.next = Alive(e.other, e.t);
    Named(row.next, e.t, e.other_name);
    Life& next = lives[row.next];
    Saw(&next, e.t);
    // A wake that found it runnable ended no sleep.
    if (next.wake != INT64_MIN && !(next.ran && next.runnable)) {
      row.wake = next.wake;
      row.waker = next.waker;
      row.flags |= next.wake_flags;
    }
    next.ran = true;
    next.wake = INT64_MIN;
    next.waking = false;
  }
  rows.push_back(row);
}

void Builder::OnWake(const SchedEvent& e) {
  if (e.tid == 0) return;
  const auto known = current_.find(e.tid);
  // A new thread under a number that was another's.
  if (e.kind == SchedEvent::kWakeNew && known != current_.end() &&
      (lives[known->second].ran || lives[known->second].dead))
    NewLife(e.tid, e.t);
  else if (e.kind == SchedEvent::kWakeNew && known == current_.end())
    NewLife(e.tid, e.t);
  const uint32_t life = Alive(e.tid, e.t);
  Named(life, e.t, e.name);
  uint32_t self = kNobody;
  if (heads_ && e.self != kNobody && e.self != 0) {
    self = Alive(e.self, e.t);
    if (e.self_tgid != kNobody) lives[self].tgid = e.self_tgid;
  }
  Life& l = lives[life];
  Saw(&l, e.t);
  if (e.kind == SchedEvent::kWakeup && l.waking) return;
  l.waking = e.kind != SchedEvent::kWakeup;
  l.wake = e.t;
  l.wake_flags = e.flags;
  l.waker = kNobody;
  if (e.flags & (INGERO_WAKE_IRQ | INGERO_WAKE_UNKNOWN)) return;
  l.waker = self;
  if (self == kNobody) l.wake_flags |= INGERO_WAKE_UNKNOWN;
}

void Builder::OnFork(const SchedEvent& e) {
  if (e.tid == 0) return;
  const auto known = current_.find(e.tid);
  uint32_t life;
  if (e.t == 0 || e.t < begin) {
    // perf lists what there was when it began.
    life = known == current_.end() ? NewLife(e.tid, INT64_MIN) : known->second;
  } else if (known != current_.end() && !lives[known->second].ran &&
             lives[known->second].born != INT64_MIN &&
             e.t - lives[known->second].born < kSameBirthNs) {
    life = known->second;
  } else {
    life = NewLife(e.tid, e.t);
  }
  Life& l = lives[life];
  l.parent = e.other;
  if (e.tgid != kNobody) l.tgid = e.tgid;
  l.kernel |= e.other == kKthreadd || e.tid == kKthreadd;
  Named(life, e.t, e.name);
}

void Builder::OnLost(const SchedEvent& e) {
  lost += e.count;
  int64_t from = begin;
  if (e.cpu == kNobody) {
    for (Cpu& cpu : cpus_) cpu.lost = true;
  } else {
    Cpu& cpu = At(e.cpu);
    if (cpu.seen) from = cpu.t;
    cpu.lost = true;
  }
  losses.push_back({e.cpu == kNobody ? 0 : e.cpu, std::min(from, e.t), e.t,
                    e.count});
}

void Builder::OnGap(const SchedEvents::Gap& gap) {
  const int64_t t = std::clamp(gap.t, begin, end);
  gaps_.push_back(losses.size());
  losses.push_back({0, std::clamp(gap.since, begin, t), t, 1});
  ++lost;
}

Status Builder::Build() {
  uint64_t same = 0, other = 0;
  begin = INT64_MAX;
  end = INT64_MIN;
  for (const SchedEvent& e : in_.events) {
    if (!IsScheduling(e)) continue;
    begin = std::min(begin, e.t);
    end = std::max(end, e.t);
    if (e.kind == SchedEvent::kSwitch && e.self != kNobody)
      ++(e.self == e.tid ? same : other);
  }
  // In a container perf numbers threads as the container does.
  heads_ = same > other;
  if (begin < 0 || end - begin > kLongestNs)
    return Status::Error("its times cannot be true: from " +
                         std::to_string(begin) + " to " +
                         std::to_string(end) + " ns");
  auto gap = in_.gaps.begin();
  for (const SchedEvent& e : in_.events) {
    for (; gap != in_.gaps.end() && gap->t <= e.t; ++gap) OnGap(*gap);
    switch (e.kind) {
      case SchedEvent::kSwitch: OnSwitch(e); break;
      case SchedEvent::kWaking:
      case SchedEvent::kWakeup:
      case SchedEvent::kWakeNew: OnWake(e); break;
      case SchedEvent::kFork: OnFork(e); break;
      case SchedEvent::kName: {
        if (e.tid == 0) break;
        const uint32_t life = Alive(e.tid, e.t);
        lives[life].tgid = e.tgid;
        Named(life, e.t, e.name);
        break;
      }
      case SchedEvent::kExec: {
        if (e.tid == 0) break;
        // A thread that is not the first takes the first one's number.
        if (e.other != e.tid) {
          for (Cpu& cpu : cpus_)
            if (cpu.seen && cpu.tid == e.other) cpu.tid = e.tid;
          lives[Alive(e.other, e.t)].dead = true;
          if (const auto at = current_.find(e.tid); at != current_.end())
            lives[at->second].dead = false;
        }
        tasks.push_back({e.t, INGERO_TASK_EVENT_EXEC, Alive(e.tid, e.t), 0,
                         e.name});
        break;
      }
      case SchedEvent::kLost: OnLost(e); break;
    }
  }
  for (; gap != in_.gaps.end(); ++gap) OnGap(*gap);
  std::stable_sort(
      losses.begin(), losses.end(),
      [](const LossRow& a, const LossRow& b) { return a.begin < b.begin; });
  if (static_cast<double>(breaks_) >
      kMostBreaks * static_cast<double>(rows.size()))
    return Status::Error(
        "is of some programs alone, or most of it is missing: who came next on "
        "a CPU is seldom who leaves it then; record all CPUs with `perf sched "
        "record`, or perf record -a");
  return {};
}

std::string ExecText(const std::string& file) {
  const size_t slash = file.rfind('/');
  const std::string comm =
      file.substr(slash == file.npos ? 0 : slash + 1)
          .substr(0, INGERO_COMM_LEN - 1);
  return comm + '\0' + file + '\0';
}

}  // namespace

Result<KernelWritten> WriteKernelStream(SchedEvents events,
                                        const ThreadsOf& threads_of,
                                        const std::string& folder,
                                        Placement* placement) {
  Builder built(events);
  INGERO_RETURN_IF_ERROR(built.Build().In(events.path));
  std::vector<SchedEvent>().swap(events.events);
  // Which process: as the text says, else the other trace, else itself.
  std::unordered_map<uint32_t, uint32_t> process_of;  // by tid
  for (Life& l : built.lives) {
    if (l.tgid == kNobody || l.tgid == 0) {
      const auto at = threads_of.find(l.tid);
      l.tgid = at == threads_of.end() ? l.tid : at->second;
    }
    l.kernel |= l.tgid == kKthreadd;
    process_of[l.tid] = l.tgid;
  }

  const std::string path = folder + "/kernel-1.ingero";
  INGERO_ASSIGN_OR_RETURN(const Fd file,
                          OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, 0600));
  auto h = Zeroed<ingero_stream_header>();
  h.magic = INGERO_MAGIC_KERNEL;
  h.major = INGERO_WIRE_MAJOR;
  h.minor = INGERO_WIRE_MINOR;
  h.header_bytes = INGERO_HEADER_BYTES;
  h.clock = INGERO_CLOCK_MONOTONIC;
  h.exited = 1;
  h.clock_ticks_per_s = 100;
  // One boot for all of a recording, and another one for each.
  const uint64_t boot = std::hash<std::string>()(events.host + "perf") ^
                        U(built.begin) * 0x9e3779b97f4a7c15u ^
                        U(built.end - built.begin);
  std::memcpy(h.boot_id, &boot, sizeof(boot));
  h.stream_id = boot | 1;
  h.created_mono_ns = U(built.begin);
  // Else not told: when it was imported says nothing of it.
  if (events.real_minus_clock_ns != 0)
    h.created_real_ns = U(built.begin + events.real_minus_clock_ns);
  CopyText(h.comm, "perf");
  CopyText(h.host, events.host.empty() ? "imported" : events.host);
  CopyText(h.tool_version, INGERO_VERSION);
  SealStreamHeader(&h);
  std::string head(reinterpret_cast<const char*>(&h), sizeof(h));
  head.resize(INGERO_HEADER_BYTES);
  INGERO_RETURN_IF_ERROR(WriteAllAt(file.get(), head, 0).In(path));
  uint64_t at = head.size();

  KernelWritten written;
  written.begin_ns = built.begin;
  written.end_ns = built.end;
  written.lost = built.lost;

  Blocks samples(file.get(), path, &at, sample_table::kSchema, 0);
  const auto sample = [&](Metric metric, uint64_t instance, uint64_t value,
                          const std::string& text) {
    const uint64_t row[] = {U(built.begin), static_cast<uint64_t>(metric),
                            instance, value};
    static_assert(std::size(row) == sample_table::kCount);
    return samples.Add(row, text);
  };
  INGERO_RETURN_IF_ERROR(sample(Metric::kRecorder, 0, 1, "perf"));
  if (events.cpus_online != 0)
    INGERO_RETURN_IF_ERROR(
        sample(Metric::kCpuOnline, 0, events.cpus_online, ""));
  uint64_t row_number = 0;
  for (const std::string& line : NotTold(events))
    INGERO_RETURN_IF_ERROR(
        sample(Metric::kProbeSkipped, row_number++, 1, line));
  INGERO_RETURN_IF_ERROR(samples.Flush());

  // Births, in order of time: those from before first.
  std::vector<TaskRow> tasks;
  std::vector<uint32_t> first_name(built.lives.size());
  for (uint32_t i = 0; i < built.lives.size(); ++i)
    first_name[i] = built.lives[i].name;
  // The names before were others where it was renamed.
  for (auto r = built.tasks.rbegin(); r != built.tasks.rend(); ++r)
    if (r->event == INGERO_TASK_EVENT_RENAME) first_name[r->life] = r->more;
  for (uint32_t i = 0; i < built.lives.size(); ++i) {
    const Life& l = built.lives[i];
    // Who comes without a wake was runnable since the recording began, for
    // merge: not so where wakes are not recorded.
    const int64_t since = events.wakes ? built.begin
                                       : std::max(l.seen, built.begin);
    tasks.push_back({l.born == INT64_MIN ? since : l.born,
                     l.born == INT64_MIN ? INGERO_TASK_EVENT_EXISTING
                                         : INGERO_TASK_EVENT_FORK,
                     i, first_name[i], 0});
    if (placement != nullptr && l.born != INT64_MIN && l.tid == l.tgid)
      placement->born_ns[l.tgid] = l.born;
  }
  tasks.insert(tasks.end(), built.tasks.begin(), built.tasks.end());
  std::stable_sort(
      tasks.begin(), tasks.end(),
      [](const TaskRow& a, const TaskRow& b) { return a.t < b.t; });
  std::unordered_map<uint32_t, int64_t> start_of;  // by tgid: its newest
  Blocks task_blocks(file.get(), path, &at, task_table::kSchema, 0);
  for (const TaskRow& r : tasks) {
    const Life& l = built.lives[r.life];
    // Threads begin with their process, whose own begin may not be known.
    if (r.event == INGERO_TASK_EVENT_FORK && l.tid == l.tgid)
      start_of[l.tgid] = r.t;
    const auto start = start_of.find(l.tgid);
    std::array<uint64_t, task_table::kCount> row{};
    row[task_table::kT] = U(std::max(r.t, built.begin));
    row[task_table::kEvent] = r.event;
    row[task_table::kTid] = l.tid;
    row[task_table::kTgid] = l.tgid;
    if (r.event == INGERO_TASK_EVENT_FORK ||
        r.event == INGERO_TASK_EVENT_EXISTING) {
      const auto parent = process_of.find(l.parent);
      const uint32_t parent_tgid =
          parent == process_of.end() ? l.parent : parent->second;
      // Of a thread it is its process.
      if (l.parent != kNobody && parent_tgid != l.tgid) {
        row[task_table::kParentTid] = l.parent;
        row[task_table::kParentTgid] = parent_tgid;
      }
      row[task_table::kStartNs] =
          start == start_of.end() ? 0 : U(start->second);
    }
    INGERO_RETURN_IF_ERROR(task_blocks.Add(
        row, r.event == INGERO_TASK_EVENT_EXEC
                 ? ExecText(events.texts[r.more])
                 : SanitizeForTerminal(events.texts[r.name],
                                       INGERO_COMM_LEN - 1)));
  }
  INGERO_RETURN_IF_ERROR(task_blocks.Flush());

  std::map<uint32_t, Blocks> loss_blocks;
  for (const LossRow& l : built.losses) {
    const uint64_t row[] = {U(l.begin), U(l.end), INGERO_LOSS_NOT_IMPORTED,
                            l.count};
    static_assert(std::size(row) == loss_table::kCount);
    INGERO_RETURN_IF_ERROR(
        loss_blocks
            .try_emplace(l.cpu, file.get(), path, &at, loss_table::kSchema, l.cpu)
            .first->second.Add(row));
  }
  for (auto& [cpu, blocks] : loss_blocks)
    INGERO_RETURN_IF_ERROR(blocks.Flush());

  std::map<uint32_t, Blocks> switch_blocks;
  for (const Row& r : built.rows) {
    using namespace switch_table;
    std::array<uint64_t, kCount> row{};
    const auto ids = [&](uint32_t life, size_t tid, size_t tgid) {
      if (life == kNobody) return;
      row[tid] = built.lives[life].tid;
      row[tgid] = built.lives[life].tgid;
    };
    uint64_t flags = r.flags;
    if (r.prev != kNobody && built.lives[r.prev].kernel)
      flags |= INGERO_PREV_KTHREAD;
    if (r.next != kNobody && built.lives[r.next].kernel)
      flags |= INGERO_NEXT_KTHREAD;
    row[kT] = U(r.t);
    ids(r.prev, kPrevTid, kPrevTgid);
    ids(r.next, kNextTid, kNextTgid);
    row[kFlags] = flags;
    row[kPrevState] = r.state;
    row[kPrevSyscall] = static_cast<uint64_t>(r.syscall + 1);
    row[kWakeT] = U(r.wake);
    ids(r.waker, kWakerTid, kWakerTgid);
    INGERO_RETURN_IF_ERROR(
        switch_blocks
            .try_emplace(r.cpu, file.get(), path, &at, switch_table::kSchema, r.cpu)
            .first->second.Add(row));
  }
  for (auto& [cpu, blocks] : switch_blocks)
    INGERO_RETURN_IF_ERROR(blocks.Flush());

  written.switches = built.rows.size();
  written.threads = built.lives.size();
  written.cpus = switch_blocks.size();
  if (placement != nullptr) {
    placement->boot = boot;
    placement->real_minus_clock_ns = events.real_minus_clock_ns;
  }
  return written;
}

Status CheckTogether(const Events& events, const std::string& events_path,
                     const SchedEvents& sched, const std::string& sched_path) {
  using Clock = SchedEvents::Clock;
  const std::string how =
      "; record with perf record -k mono, and write the text with " +
      std::string(kPerfScript);
  if (sched.clock == Clock::kPerf)
    return Status::Error(sched_path +
                         ": its times are of perf's own clock, which no other "
                         "trace has" + how);
  if (sched.clock == Clock::kOther)
    return Status::Error(sched_path + ": its times are of the clock " +
                         sched.clock_name + ", which runs at its own rate" +
                         how);
  if (sched.clock == Clock::kNotTold || sched.real_minus_clock_ns == 0)
    return Status::Error(
        sched_path + ": does not say which clock its times are of" + how);
  int64_t begin = INT64_MAX, end = INT64_MIN;
  for (const HostCall& c : events.calls) {
    begin = std::min(begin, c.begin);
    end = std::max(end, c.end);
  }
  const int64_t to_sched =
      events.real_ns_at_zero - sched.real_minus_clock_ns;
  if (events.calls.empty() ||
      events.real_ns_at_zero + begin < kSecondNs * 1'000'000'000)
    return Status::Error(events_path +
                         ": does not say at which time of day it was recorded, "
                         "so it cannot be joined with " + sched_path);
  int64_t first = INT64_MAX, last = INT64_MIN;
  struct OnCpu {
    std::vector<std::pair<int64_t, int64_t>> ran;  // by begin
    int64_t since = INT64_MIN;
  };
  std::unordered_map<uint32_t, OnCpu> of;
  for (const HostCall& c : events.calls) of[c.tid];
  for (const SchedEvent& e : sched.events) {
    if (e.kind != SchedEvent::kSwitch) continue;
    first = std::min(first, e.t);
    last = std::max(last, e.t);
    if (const auto in = of.find(e.other); in != of.end()) in->second.since = e.t;
    if (const auto out = of.find(e.tid); out != of.end()) {
      if (out->second.since != INT64_MIN)
        out->second.ran.emplace_back(out->second.since, e.t);
      out->second.since = INT64_MIN;
    }
  }
  if (end + to_sched < first || begin + to_sched > last) {
    const int64_t apart = std::max(first - (end + to_sched),
                                   begin + to_sched - last);
    return Status::Error(events_path + " and " + sched_path +
                         ": are not of one time (" + FormatDuration(Ns(apart)) +
                         " apart); import each alone");
  }
  uint64_t running = 0, not_running = 0;
  bool any = false;
  for (const HostCall& c : events.calls) {
    const OnCpu& cpu = of[c.tid];
    const int64_t t = c.begin + to_sched;
    any |= !cpu.ran.empty();
    if (cpu.ran.empty() || t < cpu.ran.front().first ||
        t > cpu.ran.back().second)
      continue;
    const auto after = std::upper_bound(
        cpu.ran.begin(), cpu.ran.end(), t + kClockErrorNs,
        [](int64_t v, const auto& ran) { return v < ran.first; });
    const bool ran = after != cpu.ran.begin() &&
                     std::prev(after)->second + kClockErrorNs >= t;
    ++(ran ? running : not_running);
  }
  if (!any)
    return Status::Error(
        events_path + ": no thread that made its CUDA calls is in " +
        sched_path + " (a program in a container has other numbers inside than "
                     "outside, where perf saw it); import each alone");
  const uint64_t placed = running + not_running;
  if (placed >= kLeastCalls && static_cast<double>(running) <
                                   kLeastRunning * static_cast<double>(placed))
    return Status::Error(fmt::format(
        "{} and {}: do not fit: {} of {} CUDA calls begin while their thread "
        "has no CPU, so these are other threads or clocks; import each alone",
        events_path, sched_path, not_running, placed));
  return {};
}

}  // namespace ingero::import
