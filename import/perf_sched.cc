// SPDX-License-Identifier: Apache-2.0
// The text of `perf script`, of a recording of sched:sched_switch and kin.
//
//   comm pid/tid [cpu] seconds.fraction: sched:sched_switch: fields
//           address symbol+offset (file)      (with call chains)
//
// Which columns there are, the user chose (perf script -F); what a line cannot
// do without are CPU, time and the event's name. Comms hold any bytes, so
// numbers around them are found from where they cannot be part of one: a comm
// has at most 15 bytes. Formats: process_event() and kin in the kernel's
// tools/perf/builtin-script.c, the print formats in
// include/trace/events/sched.h, and what libtraceevent's plugin
// (plugins/plugin_sched_switch.c) makes of them.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/file_error.h"
#include "base/text.h"
#include "import/gz_buffer.h"
#include "import/sched.h"

namespace ingero::import {
namespace {

using Clock = SchedEvents::Clock;

constexpr uint32_t kNobody = SchedEvent::kNobody;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr size_t kMostLine = 16'384;
constexpr size_t kLineShown = 256;  // of one that is longer
constexpr uint32_t kMostCpus = 1 << 16;
constexpr uint32_t kMostTid = 1u << 30;
constexpr size_t kMostExe = 1024;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// A whole number and nothing else.
std::optional<uint64_t> Number(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  uint64_t n = 0;
  for (const char c : text) {
    if (!IsDigit(c)) return std::nullopt;
    n = n * 10 + static_cast<uint64_t>(c - '0');
  }
  return n;
}

std::optional<uint32_t> Tid(std::string_view text) {
  const auto n = Number(text);
  if (!n || *n > kMostTid) return std::nullopt;
  return static_cast<uint32_t>(*n);
}

bool IsPriority(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  return Number(text).has_value();
}

void TrimLeft(std::string_view* text) {
  while (!text->empty() && text->front() == ' ') text->remove_prefix(1);
}
void TrimRight(std::string_view* text) {
  while (!text->empty() && text->back() == ' ') text->remove_suffix(1);
}

// What precedes an event's name.
struct Head {
  uint32_t cpu = kNobody, tid = kNobody, tgid = kNobody;
  bool has_pid = false;  // pid/tid, not tid alone
  int64_t t = 0;
  bool whole_us = true;
  std::string_view comm;
  std::string_view event;  // its name and all after it
};

// "2026-11-30 20:41:57.174840", which -F +tod prints before the time.
bool TakeTimeOfDay(std::string_view* text) {
  constexpr std::string_view kForm = "0000-00-00 00:00:00.000000";
  if (text->size() < kForm.size()) return false;
  const std::string_view last = text->substr(text->size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == '0' ? !IsDigit(last[i]) : kForm[i] != last[i]) return false;
  text->remove_suffix(kForm.size());
  TrimRight(text);
  return true;
}

// The pid and tid at the end of `text`, and the comm before them. False: it is
// nothing of the kind.
bool ReadTask(std::string_view text, Head* head) {
  if (text.empty()) return true;
  const size_t space = text.rfind(' ');
  std::string_view ids = text.substr(space == text.npos ? 0 : space + 1);
  const std::string_view comm = space == text.npos ? "" : text.substr(0, space);
  std::string_view tid = ids, pid;
  if (const size_t slash = ids.find('/'); slash != ids.npos) {
    pid = ids.substr(0, slash);
    tid = ids.substr(slash + 1);
    head->has_pid = true;
  }
  // -1: it has ended, and has no number any more.
  const auto read = [](std::string_view from, uint32_t* to) {
    const auto n = Tid(from);
    if (n) *to = *n;
    return n || from == "-1";
  };
  if (!read(tid, &head->tid) || (head->has_pid && !read(pid, &head->tgid)))
    return false;
  if (head->has_pid && head->tgid != kNobody && head->tid != kNobody &&
      (head->tgid == 0) != (head->tid == 0))
    return false;
  head->comm = comm;
  while (!head->comm.empty() && head->comm.front() == ' ')
    head->comm.remove_prefix(1);
  return true;
}

// `dot`: a '.' of the line. Whether a time with it ends what precedes an event.
bool ReadHeadAt(std::string_view line, size_t dot, Head* head) {
  size_t begin = dot, end = dot + 1;
  while (begin > 0 && IsDigit(line[begin - 1])) --begin;
  while (end < line.size() && IsDigit(line[end])) ++end;
  const size_t digits = end - dot - 1;
  if (begin == dot || (digits != 6 && digits != 9) || end >= line.size() ||
      line[end] != ':' || (begin > 0 && line[begin - 1] != ' '))
    return false;
  *head = {};
  const auto seconds = Number(line.substr(begin, dot - begin));
  const auto fraction = Number(line.substr(dot + 1, digits));
  if (!seconds || !fraction || *seconds > INT64_MAX / kSecondNs / 2)
    return false;
  head->whole_us = digits == 6;
  head->t = static_cast<int64_t>(*seconds) * kSecondNs +
            static_cast<int64_t>(*fraction) * (digits == 6 ? 1000 : 1);
  std::string_view event = line.substr(end + 1);
  TrimLeft(&event);
  // -F +period prints a number before the name.
  size_t period = 0;
  while (period < event.size() && IsDigit(event[period])) ++period;
  if (period > 0 && period < event.size() && event[period] == ' ') {
    event.remove_prefix(period);
    TrimLeft(&event);
  }
  // A name, not the rest of what only looks like a time.
  if (event.empty() || IsDigit(event.front()) || event.front() == '[')
    return false;
  head->event = event;
  std::string_view before = line.substr(0, begin);
  TrimRight(&before);
  if (!TakeTimeOfDay(&before)) {
    // Then there is none.
  }
  if (before.ends_with(']')) {
    const size_t open = before.rfind('[');
    if (open == before.npos) return false;
    const auto cpu = Number(before.substr(open + 1, before.size() - open - 2));
    if (!cpu || *cpu >= kMostCpus) return false;
    head->cpu = static_cast<uint32_t>(*cpu);
    before.remove_suffix(before.size() - open);
    TrimRight(&before);
  }
  return ReadTask(before, head);
}

// The first place at which all that precedes an event can be read. With a CPU
// that is longer than a comm, so none can hold one; without, it is the last
// resort.
bool ReadHead(std::string_view line, Head* head) {
  bool found = false;
  for (size_t dot = line.find('.'); dot != line.npos;
       dot = line.find('.', dot + 1)) {
    Head at;
    if (!ReadHeadAt(line, dot, &at) || (found && at.cpu == kNobody)) continue;
    *head = at;
    found = true;
    if (at.cpu != kNobody) break;
  }
  return found;
}

// What a thread did when it left: "S", "R+", "D|K".
struct State {
  uint8_t state = INGERO_TASK_RUNNING;
  uint16_t flags = 0;
};

// pretty: as libtraceevent's plugin writes it, whose letters are older than
// the kernel's: for it 'W' is what the kernel calls 'I'.
std::optional<State> ReadState(std::string_view text, bool pretty) {
  if (text.empty() || text.size() > 16) return std::nullopt;
  State s;
  bool known = false;
  for (const char c : text) {
    known = true;
    switch (c) {
      case 'R': break;
      case 'S': s.state |= INGERO_TASK_INTERRUPTIBLE; break;
      case 'D':
      case 'P':  // parked: a kernel thread that waits to be let go on
      case 'K':
        s.state |= INGERO_TASK_UNINTERRUPTIBLE;
        break;
      case 'T': s.state |= INGERO_TASK_STOPPED; break;
      case 't': s.state |= INGERO_TASK_TRACED; break;
      case 'I':
        // Asleep without adding to the load: kernel threads alone.
        s.state |= INGERO_TASK_UNINTERRUPTIBLE;
        s.flags |= INGERO_PREV_KTHREAD;
        break;
      case 'W':
        s.state |= INGERO_TASK_UNINTERRUPTIBLE;
        if (pretty) s.flags |= INGERO_PREV_KTHREAD;
        break;
      case 'X':
      case 'Z':
      case 'x': s.flags |= INGERO_PREV_DEAD; break;
      case '+':
      case '|':
      case 'N': break;
      default: return std::nullopt;
    }
  }
  if (!known) return std::nullopt;
  if (s.state == INGERO_TASK_RUNNING && (s.flags & INGERO_PREV_DEAD) == 0)
    s.flags |= INGERO_PREV_PREEMPTED;
  return s;
}

// "comm:pid [prio]", and what follows it.
struct PrettyTask {
  std::string_view comm, rest;
  uint32_t tid = 0;
};
std::optional<PrettyTask> ReadPretty(std::string_view text, bool last) {
  // Before the last bracket of the kind: a comm may have others.
  const size_t open = last ? text.rfind(" [") : text.find(" [");
  for (size_t at = open; at != text.npos;
       at = last ? text.npos : text.find(" [", at + 1)) {
    const size_t close = text.find(']', at);
    if (close == text.npos || !IsPriority(text.substr(at + 2, close - at - 2)))
      continue;
    const std::string_view name = text.substr(0, at);
    const size_t colon = name.rfind(':');
    if (colon == name.npos) continue;
    const auto tid = Tid(name.substr(colon + 1));
    if (!tid) continue;
    return PrettyTask{name.substr(0, colon), text.substr(close + 1), *tid};
  }
  return std::nullopt;
}

struct SwitchText {
  std::string_view prev_comm, next_comm;
  uint32_t prev = 0, next = 0;
  State state;
};

std::optional<SwitchText> ReadSwitch(std::string_view text) {
  SwitchText s;
  constexpr std::string_view kPrev = "prev_comm=", kNext = "next_comm=",
                             kPid = " prev_pid=", kPriority = " prev_prio=",
                             kState = " prev_state=", kArrow = " ==> ",
                             kNextPid = " next_pid=",
                             kNextPriority = " next_prio=";
  if (text.starts_with(kPrev)) {
    text.remove_prefix(kPrev.size());
    for (size_t at = text.find(kPid); at != text.npos;
         at = text.find(kPid, at + 1)) {
      std::string_view rest = text.substr(at + kPid.size());
      const size_t priority = rest.find(kPriority);
      if (priority == rest.npos) return std::nullopt;
      const auto prev = Tid(rest.substr(0, priority));
      if (!prev) continue;  // this " prev_pid=" is of a comm
      rest.remove_prefix(priority + kPriority.size());
      const size_t state = rest.find(kState);
      if (state == rest.npos || !IsPriority(rest.substr(0, state))) continue;
      rest.remove_prefix(state + kState.size());
      const size_t arrow = rest.find(kArrow);
      if (arrow == rest.npos) return std::nullopt;
      const auto left = ReadState(rest.substr(0, arrow), false);
      rest.remove_prefix(arrow + kArrow.size());
      if (!left || !rest.starts_with(kNext)) return std::nullopt;
      rest.remove_prefix(kNext.size());
      const size_t pid = rest.rfind(kNextPid);
      if (pid == rest.npos) return std::nullopt;
      s.next_comm = rest.substr(0, pid);
      rest.remove_prefix(pid + kNextPid.size());
      const size_t next_priority = rest.find(kNextPriority);
      if (next_priority == rest.npos) return std::nullopt;
      const auto next = Tid(rest.substr(0, next_priority));
      std::string_view last = rest.substr(next_priority + kNextPriority.size());
      TrimRight(&last);
      if (!next || !IsPriority(last)) return std::nullopt;
      s.prev_comm = text.substr(0, at);
      s.prev = *prev;
      s.next = *next;
      s.state = *left;
      return s;
    }
    return std::nullopt;
  }
  for (size_t arrow = text.find(kArrow); arrow != text.npos;
       arrow = text.find(kArrow, arrow + 1)) {
    const auto prev = ReadPretty(text.substr(0, arrow), true);
    if (!prev) continue;
    std::string_view letters = prev->rest;
    TrimLeft(&letters);
    TrimRight(&letters);
    const auto left = ReadState(letters, true);
    const auto next = ReadPretty(text.substr(arrow + kArrow.size()), true);
    if (!left || !next) continue;
    s.prev_comm = prev->comm;
    s.next_comm = next->comm;
    s.prev = prev->tid;
    s.next = next->tid;
    s.state = *left;
    return s;
  }
  return std::nullopt;
}

struct WakeText {
  std::string_view comm;
  uint32_t tid = 0;
};
std::optional<WakeText> ReadWake(std::string_view text) {
  constexpr std::string_view kComm = "comm=", kPid = " pid=",
                             kPriority = " prio=";
  if (text.starts_with(kComm)) {
    text.remove_prefix(kComm.size());
    const size_t pid = text.rfind(kPid);
    if (pid == text.npos) return std::nullopt;
    std::string_view rest = text.substr(pid + kPid.size());
    const size_t priority = rest.find(kPriority);
    if (priority == rest.npos) return std::nullopt;
    const auto tid = Tid(rest.substr(0, priority));
    if (!tid) return std::nullopt;
    return WakeText{text.substr(0, pid), *tid};
  }
  const auto pretty = ReadPretty(text, false);
  if (!pretty) return std::nullopt;
  return WakeText{pretty->comm, pretty->tid};
}

// A number between `key` and the end of the text or the next blank.
std::optional<uint32_t> After(std::string_view text, std::string_view key) {
  const size_t at = text.rfind(key);
  if (at == text.npos) return std::nullopt;
  text.remove_prefix(at + key.size());
  return Tid(text.substr(0, text.find(' ')));
}

// ---- call chains ----------------------------------------------------------

struct SyscallRow {
  std::string_view name;
  int16_t number;
};
// Those that analysis/syscalls.cc tells apart, by x86-64's numbers.
constexpr SyscallRow kSyscalls[] = {
    {"read", 0},          {"write", 1},         {"poll", 7},
    {"ioctl", 16},        {"pread64", 17},      {"readv", 19},
    {"select", 23},       {"nanosleep", 35},    {"connect", 42},
    {"accept", 43},       {"sendto", 44},       {"recvfrom", 45},
    {"sendmsg", 46},      {"recvmsg", 47},      {"wait4", 61},
    {"fsync", 74},        {"fdatasync", 75},    {"rt_sigtimedwait", 128},
    {"futex", 202},       {"clock_nanosleep", 230}, {"epoll_wait", 232},
    {"waitid", 247},      {"pselect6", 270},    {"ppoll", 271},
    {"epoll_pwait", 281}, {"accept4", 288},     {"recvmmsg", 299},
    {"sendmmsg", 307},    {"io_uring_enter", 426}, {"epoll_pwait2", 441}};

bool BeginsWithAny(std::string_view text,
                   std::initializer_list<std::string_view> beginnings) {
  for (const std::string_view b : beginnings)
    if (text.starts_with(b)) return true;
  return false;
}

// What the frames of one event's chain say.
struct Chain {
  bool interrupt = false;  // on behalf of a device or a timer
  bool entry = false;      // how the kernel was come into is among them
  bool disk = false, yields = false;
  int16_t syscall = -1;  // by x86-64's number

  void Add(std::string_view symbol) {
    if (BeginsWithAny(
            symbol,
            {"asm_sysvec_", "sysvec_", "asm_common_interrupt",
             "common_interrupt", "__common_interrupt", "irq_exit", "__irq_exit",
             "__do_softirq", "do_softirq", "handle_softirqs", "run_ksoftirqd",
             "irq_thread", "do_IRQ", "apic_timer_interrupt",
             "smp_apic_timer_interrupt", "asm_exc_nmi", "gic_handle_irq",
             "el1_irq", "el0_irq", "el1h_64_irq", "el0t_64_irq",
             "call_on_irq_stack"}))
      interrupt = true;
    else if (BeginsWithAny(symbol, {"io_schedule"}))
      disk = true;
    // The entry may be a frame of its own, or have been inlined or jumped from.
    for (const std::string_view call :
         {"__x64_sys_", "__arm64_sys_", "__se_sys_", "__do_sys_", "ksys_",
          "do_", "do_sys_"}) {
      if (!symbol.starts_with(call)) continue;
      const std::string_view name = symbol.substr(call.size());
      for (const SyscallRow& row : kSyscalls)
        if (name == row.name) syscall = row.number;
      yields |= name == "sched_yield";
    }
    entry |= BeginsWithAny(
        symbol, {"do_syscall_64", "entry_SYSCALL", "entry_SYSENTER",
                 "entry_INT80", "do_fast_syscall", "__x64_sys_", "el0_svc",
                 "do_el0_svc", "invoke_syscall", "ret_from_fork",
                 "asm_exc_page_fault"});
  }
};

// The symbol of a frame: after its address, where that is printed.
std::string_view SymbolOf(std::string_view line) {
  while (!line.empty() && (line.front() == ' ' || line.front() == '\t'))
    line.remove_prefix(1);
  const auto word = [&line] {
    const std::string_view w = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(line.size(), w.size() + 1));
    return w;
  };
  std::string_view symbol = word();
  const bool address =
      symbol.size() >= 3 &&
      symbol.find_first_not_of("0123456789abcdef") == symbol.npos;
  if (address && !line.empty()) symbol = word();
  return symbol.substr(0, symbol.find('+'));
}

// ---- the whole text -------------------------------------------------------

class Reader {
 public:
  explicit Reader(SchedEvents* out) : out_(out) {}

  // ended: with the end of its line. It may be cut where it is not.
  void Line(std::string_view line, bool ended) {
    ++lines_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) {
      if (in_event_ && !name_.empty()) blank_after_[name_] = has_chain_;
      EndChain();
      return;
    }
    if (line.front() == '#') {
      Comment(line);
      return;
    }
    Head head;
    if (ReadHead(line, &head)) {
      if (in_event_ && !name_.empty()) blank_after_[name_] = false;
      EndChain();
      Event(line, head, ended);
      return;
    }
    if (in_event_ && (line.front() == '\t' || line.front() == ' ')) {
      if (chained_) chain_.Add(SymbolOf(line));
      has_chain_ = true;
      return;
    }
    if (!ended || line.find_first_not_of(" \t") == line.npos) return;
    // Of trace-cmd and ftrace: "comm-tid [cpu]".
    if (line.find("sched_switch:") != line.npos) {
      ++foreign_;
      Odd(line);
    } else {
      NoEvent(line);
    }
    gap_ = true;
  }
  // One that is too long for an event; `line` is its beginning.
  void LongLine(std::string_view line) {
    ++lines_;
    if (line.starts_with('#')) return;
    Head head;
    if (in_event_ && (line.front() == '\t' || line.front() == ' ') &&
        !ReadHead(line, &head)) {
      has_chain_ = true;  // a frame's symbol may be that long
      return;
    }
    EndChain();
    NoEvent(line);
    gap_ = true;
  }
  // cut: the last line had no end.
  void Finish(bool cut) {
    // perf ends each line, and with call chains each event by an empty line.
    const auto before = blank_after_.find(name_);
    if (cut)
      out_->cut = "in line " + std::to_string(lines_);
    else if (in_event_ && !name_.empty() &&
             (has_chain_ || (before != blank_after_.end() && before->second)))
      out_->cut = "after line " + std::to_string(lines_);
    EndChain();
    if (gap_ || !out_->cut.empty()) AddGap(newest_);
  }

  uint64_t foreign() const { return foreign_; }
  uint64_t without_cpu() const { return without_cpu_; }
  uint64_t events_read() const { return events_read_; }
  uint64_t lines() const { return lines_; }
  uint64_t nameless() const { return nameless_; }

 private:
  std::string Place(std::string_view line) const {
    return "line " + std::to_string(lines_) + ": " +
           SanitizeForTerminal(line, 120);
  }
  void Odd(std::string_view line) {
    if (out_->odd_lines++ == 0) out_->first_odd = Place(line);
  }
  void NoEvent(std::string_view line) {
    if (out_->no_events++ == 0) out_->first_no_event = Place(line);
  }
  void AddGap(int64_t t) {
    out_->gaps.push_back({std::min(newest_, t), t});
    gap_ = false;
  }

  // "# clockid: monotonic (1)" and kin, which --header prints.
  void Comment(std::string_view line) {
    const auto value = [&line](std::string_view key) {
      if (!line.starts_with(key)) return std::string_view();
      std::string_view v = line.substr(key.size());
      return v;
    };
    if (const auto host = value("# hostname : "); !host.empty()) {
      out_->host = SanitizeForTerminal(host, 63);
    } else if (const auto cpus = value("# nrcpus online : "); !cpus.empty()) {
      const auto n = Number(cpus);
      if (n && *n > 0 && *n < kMostCpus)
        out_->cpus_online = static_cast<uint32_t>(*n);
    } else if (const auto missing = value("# missing features: ");
               !missing.empty()) {
      if (missing.find("CLOCKID ") != missing.npos &&
          out_->clock == Clock::kNotTold)
        out_->clock = Clock::kPerf;
    } else if (const auto clock = value("# clockid: "); !clock.empty()) {
      out_->clock_name =
          SanitizeForTerminal(clock.substr(0, clock.find(' ')), 32);
      out_->clock = out_->clock_name == "monotonic" ? Clock::kMonotonic
                                                    : Clock::kOther;
    } else if (const auto at = value("# reference time: "); !at.empty()) {
      // "DATE TIME = 1796071139.313531 (TOD) = 513.958794710 (monotonic)"
      const size_t real = at.find(" = ");
      const size_t tod = at.find(" (TOD) = ");
      if (real == at.npos || tod == at.npos || tod < real) return;
      const auto a = Time(at.substr(real + 3, tod - real - 3));
      std::string_view rest = at.substr(tod + 9);
      const auto b = Time(rest.substr(0, rest.find(' ')));
      if (a && b) out_->real_minus_clock_ns = *a - *b;
    }
  }

  static std::optional<int64_t> Time(std::string_view text) {
    const size_t dot = text.find('.');
    if (dot == text.npos) return std::nullopt;
    const auto seconds = Number(text.substr(0, dot));
    const std::string_view digits = text.substr(dot + 1);
    auto fraction = Number(digits);
    if (!seconds || !fraction || digits.size() > 9 ||
        *seconds > INT64_MAX / kSecondNs / 2)
      return std::nullopt;
    for (size_t i = digits.size(); i < 9; ++i) *fraction *= 10;
    return static_cast<int64_t>(*seconds) * kSecondNs +
           static_cast<int64_t>(*fraction);
  }

  void Event(std::string_view line, const Head& head, bool ended) {
    in_event_ = true;
    chained_ = false;
    chain_ = {};
    has_chain_ = false;
    ++events_read_;
    if (gap_) AddGap(head.t);
    newest_ = std::max(newest_, head.t);
    name_.clear();
    std::string_view text = head.event;
    if (text.starts_with("PERF_RECORD_")) {
      if (ended && !Record(text.substr(12), head)) Odd(line);
      return;
    }
    const size_t colon = text.find(": ");
    const size_t blank = text.find(' ');
    if (colon == text.npos || blank < colon) {
      if (text.starts_with("prev_comm=")) ++nameless_;
      return;
    }
    std::string_view name = text.substr(0, colon);
    name_ = name;
    text.remove_prefix(colon + 2);
    TrimLeft(&text);
    if (name.starts_with("sched:")) name.remove_prefix(6);
    name = name.substr(0, name.find_first_of("/:"));
    SchedEvent e;
    e.t = head.t;
    e.cpu = head.cpu;
    e.self = head.tid;
    e.self_tgid = head.tgid;
    bool understood = true;
    if (name == "sched_switch") {
      const auto s = ReadSwitch(text);
      understood = s.has_value();
      if (s) {
        e.kind = SchedEvent::kSwitch;
        e.tid = s->prev;
        e.other = s->next;
        e.name = Name(s->prev_comm);
        e.other_name = Name(s->next_comm);
        e.state = s->state.state;
        e.flags = s->state.flags;
      }
    } else if (name == "sched_waking" || name == "sched_wakeup" ||
               name == "sched_wakeup_new") {
      const auto w = ReadWake(text);
      understood = w.has_value();
      if (w) {
        e.kind = name == "sched_waking"   ? SchedEvent::kWaking
                 : name == "sched_wakeup" ? SchedEvent::kWakeup
                                          : SchedEvent::kWakeNew;
        e.tid = w->tid;
        e.name = Name(w->comm);
        // Until its chain says more.
        e.flags = e.kind == SchedEvent::kWakeNew
                      ? INGERO_WAKE_NEW
                  : e.kind == SchedEvent::kWaking &&
                          (head.tid == 0 || CarriesInterrupts(head.comm))
                      ? INGERO_WAKE_IRQ
                      : INGERO_WAKE_UNKNOWN;
      }
    } else if (name == "sched_process_fork") {
      if (!ended) return;
      const auto child = After(text, " child_pid=");
      const size_t comm = text.rfind(" child_comm=");
      const auto parent = comm == text.npos
                              ? std::nullopt
                              : After(text.substr(0, comm), " pid=");
      const size_t end = text.rfind(" child_pid=");
      understood = child && parent && comm + 12 <= end;
      if (understood) {
        e.kind = SchedEvent::kFork;
        e.tid = *child;
        e.other = *parent;
        e.name = Name(text.substr(comm + 12, end - comm - 12));
      }
    } else if (name == "sched_process_exec") {
      if (!ended) return;
      constexpr std::string_view kFile = "filename=";
      const auto old = After(text, " old_pid=");
      const size_t pid = text.rfind(" pid=");
      const auto tid = After(text, " pid=");
      understood = text.starts_with(kFile) && tid && old && pid >= kFile.size();
      if (understood) {
        e.kind = SchedEvent::kExec;
        e.tid = *tid;
        e.other = *old;
        e.name = out_->texts.Index(
            text.substr(kFile.size(), std::min(pid - kFile.size(), kMostExe)));
      }
    } else {
      return;
    }
    if (!understood) {
      if (!ended) return;
      Odd(line);
      e.kind = SchedEvent::kLost;
      e.count = 1;
      out_->events.push_back(e);
      return;
    }
    if (head.cpu == kNobody && e.kind == SchedEvent::kSwitch) {
      ++without_cpu_;
      return;
    }
    out_->whole_us &= head.whole_us;
    out_->pids |= head.has_pid;
    out_->switches += e.kind == SchedEvent::kSwitch;
    out_->wakes |=
        e.kind == SchedEvent::kWaking || e.kind == SchedEvent::kWakeup;
    out_->events.push_back(e);
    chained_ = true;
  }

  // "FORK(8338:8348):(8338:8338)", "COMM exec: sleep:8348/8348",
  // "LOST lost 41". False: it is none of them though it begins so.
  bool Record(std::string_view text, const Head& head) {
    SchedEvent e;
    e.t = head.t;
    e.cpu = head.cpu;
    if (text.starts_with("LOST")) {
      const size_t at = text.find(" lost ");
      const uint64_t count =
          at == text.npos ? UINT64_MAX
                          : Number(text.substr(at + 6)).value_or(UINT64_MAX);
      // What a program of the user's left out is not lost.
      if (text.ends_with(" (BPF)") || count == 0) return true;
      if (count > 1ull << 40) return false;
      e.kind = SchedEvent::kLost;
      e.count = count;
    } else if (text.starts_with("FORK(")) {
      const auto ids = [](std::string_view of)
          -> std::optional<std::pair<uint32_t, uint32_t>> {
        const size_t colon = of.find(':');
        if (colon == of.npos) return std::nullopt;
        const auto a = Tid(of.substr(0, colon)), b = Tid(of.substr(colon + 1));
        if (!a || !b) return std::nullopt;
        return std::pair(*a, *b);
      };
      const size_t middle = text.find("):(");
      if (middle == text.npos || !text.ends_with(')')) return false;
      const auto child = ids(text.substr(5, middle - 5));
      const auto parent =
          ids(text.substr(middle + 3, text.size() - middle - 4));
      if (!child || !parent) return false;
      e.kind = SchedEvent::kFork;
      e.tgid = child->first;
      e.tid = child->second;
      e.other = parent->first;
      out_->pids = true;
    } else if (text.starts_with("COMM")) {
      const size_t begin = text.find(": "), end = text.rfind(':');
      const size_t slash = text.rfind('/');
      if (begin == text.npos || end <= begin + 1 || slash == text.npos ||
          slash < end)
        return false;
      const auto tgid = Tid(text.substr(end + 1, slash - end - 1));
      const auto tid = Tid(text.substr(slash + 1));
      if (!tgid || !tid) return false;
      e.kind = SchedEvent::kName;
      e.tgid = *tgid;
      e.tid = *tid;
      e.name = Name(text.substr(begin + 2, end - begin - 2));
      out_->pids = true;
    } else {
      return true;
    }
    out_->events.push_back(e);
    return true;
  }

  static bool CarriesInterrupts(std::string_view comm) {
    return BeginsWithAny(comm, {"ksoftirqd/", "irq/", "ktimers/"});
  }

  uint32_t Name(std::string_view comm) {
    return out_->texts.Index(comm.substr(0, INGERO_COMM_LEN - 1));
  }

  // What the frames said, of the last event.
  void EndChain() {
    if (in_event_ && chained_ && has_chain_) {
      SchedEvent& e = out_->events.back();
      if (e.kind == SchedEvent::kSwitch) {
        e.syscall = chain_.syscall;
        if (chain_.disk && e.state != INGERO_TASK_RUNNING)
          e.flags |= INGERO_PREV_IOWAIT;
        if (chain_.yields && (e.flags & INGERO_PREV_PREEMPTED) != 0)
          e.flags = static_cast<uint16_t>(
              (e.flags & ~INGERO_PREV_PREEMPTED) | INGERO_PREV_YIELDED);
        out_->chains |= chain_.entry;
      } else if (e.flags & INGERO_WAKE_UNKNOWN) {
        // A wakeup is carried to another CPU by an interrupt, whoever woke.
        if (!chain_.interrupt && chain_.entry)
          e.flags = 0;
        else if (chain_.interrupt && e.kind == SchedEvent::kWaking)
          e.flags = INGERO_WAKE_IRQ;
        out_->chains |= chain_.entry;
      }
    }
    in_event_ = false;
  }

  SchedEvents* out_;
  uint64_t lines_ = 0, foreign_ = 0, without_cpu_ = 0, events_read_ = 0,
           nameless_ = 0;
  int64_t newest_ = 0;  // the time of the last event
  bool gap_ = false;    // since it there are lines that are no events
  // Whether events of a name end, with their chains, by an empty line.
  std::map<std::string, bool, std::less<>> blank_after_;
  // Of the last event.
  std::string name_;  // "": of perf itself, or not told
  bool in_event_ = false, has_chain_ = false;
  bool chained_ = false;  // it is out_->events.back()
  Chain chain_;
};

}  // namespace

Result<SchedEvents> ReadPerfSched(const std::string& path,
                                  const Progress& progress) {
  GzBuffer buffer(path);
  if (!buffer.opened()) return CannotOpen(path, errno);
  const int64_t bytes = buffer.bytes();
  SchedEvents events;
  events.path = path;
  Reader reader(&events);
  std::string text;
  std::vector<char> chunk(1 << 18);
  bool too_long = false;
  uint64_t chunks = 0;
  for (std::streamsize got;
       (got = buffer.sgetn(chunk.data(),
                           static_cast<std::streamsize>(chunk.size()))) > 0;) {
    std::string_view rest(chunk.data(), static_cast<size_t>(got));
    for (size_t end; (end = rest.find('\n')) != rest.npos;) {
      // A line of no end is no event.
      if (too_long || text.size() + end > kMostLine) {
        reader.LongLine(text.empty() ? rest.substr(0, end) : text);
      } else if (text.empty()) {
        reader.Line(rest.substr(0, end), true);
      } else {
        text += rest.substr(0, end);
        reader.Line(text, true);
      }
      too_long = false;
      text.clear();
      rest.remove_prefix(end + 1);
    }
    if (!too_long) {
      too_long = text.size() + rest.size() > kMostLine;
      text += rest.substr(0, too_long ? kLineShown : rest.size());
    }
    if (++chunks % 16 == 0 && progress)
      progress(bytes > 0 ? static_cast<double>(buffer.offset()) /
                               static_cast<double>(bytes)
                         : 1,
               reader.events_read());
  }
  const bool cut = !text.empty();
  if (too_long)
    reader.LongLine(text);
  else if (cut)
    reader.Line(text, false);
  reader.Finish(cut);
  if (const std::string problem = buffer.Problem(); !problem.empty())
    return Status::Error(path + ": is cut or damaged (" + problem +
                         "); write it again, or copy it again");
  if (events.switches > 0) {
    const auto before = [](const SchedEvent& a, const SchedEvent& b) {
      return a.t < b.t;
    };
    // perf script sorts them, unless it was told not to.
    if (!std::is_sorted(events.events.begin(), events.events.end(), before))
      std::stable_sort(events.events.begin(), events.events.end(), before);
    std::sort(events.gaps.begin(), events.gaps.end(),
              [](const SchedEvents::Gap& a, const SchedEvents::Gap& b) {
                return a.t < b.t;
              });
    return events;
  }
  const std::string write = "write it with " + std::string(kPerfScript);
  if (reader.without_cpu() > 0)
    return Status::Error(path + ": does not say on which CPU events were; " +
                         write);
  if (reader.nameless() > 0)
    return Status::Error(path + ": has no names of events; " + write);
  if (reader.foreign() > 0)
    return Status::Error(
        path + ": is a trace of ftrace or trace-cmd, or has no times; ingero "
               "reads what perf script prints of `perf sched record`");
  if (events.odd_lines > 0)
    return Status::Error(path + ": its events cannot be read (" +
                         events.first_odd + "); " + write);
  if (!events.cut.empty())
    return Status::Error(path + ": has no context switch before the place " +
                         events.cut + " where it was cut; write it again, or "
                                      "copy it again");
  return Status::Error(
      path + ": has no context switch; record with `perf sched record`, or "
             "perf record -a -e sched:sched_switch -e sched:sched_waking");
}

std::vector<std::string> NotTold(const SchedEvents& events) {
  std::vector<std::string> lines;
  if (!events.cut.empty())
    lines.push_back("the end: the text was cut " + events.cut +
                    ", write it or copy it again (missing: what came after)");
  if (const uint64_t unread = events.odd_lines + events.no_events; unread > 0)
    lines.push_back(
        (unread == 1 ? "a line" : FormatCount(unread) + " lines") +
        " of the text: damaged or not perf's, write it again (missing: what "
        "such a line told)");
  if (!events.wakes)
    lines.push_back(
        "sched_waking: not in the text, record it too (missing: when threads "
        "were woken, so that waiting for a CPU after a sleep counts as asleep; "
        "who woke them)");
  if (!events.chains)
    lines.push_back(
        "call chains: not in the text, record with -g (missing: who woke whom, "
        "in which system call threads slept, and for a disk)");
  if (!events.pids)
    lines.push_back(
        "pid: the text has thread ids alone, write it with " +
        std::string(kPerfScript) +
        " (missing: which threads are one process; each stands for itself)");
  lines.push_back(
      "pages, faults, CPU quota, exit status, GPUs: not in such a recording "
      "(missing: what memory, quotas and GPUs had to do with it)");
  return lines;
}

}  // namespace ingero::import
