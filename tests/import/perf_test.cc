// SPDX-License-Identifier: Apache-2.0
// perf script's text: each form that it takes, cut at every byte and with every
// byte changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/tables.h"
#include "import/sched.h"
#include "merge/kernel_stream.h"
#include "tests/support/stream_builder.h"

namespace ingero::import {
namespace {

using ingero::testing::TempDir;
using ingero::testing::WriteFile;

Result<SchedEvents> ReadText(const TempDir& dir, const std::string& text) {
  WriteFile(dir / "t.txt", text);
  return ReadPerfSched(dir / "t.txt", nullptr);
}

// The one event of a text that has a switch of its own besides.
SchedEvent One(const TempDir& dir, const std::string& line) {
  auto events = ReadText(
      dir, "x 1 [000] 1.000000: sched:sched_switch: prev_comm=x prev_pid=1 "
           "prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 "
           "next_prio=120\n" + line);
  if (!events.ok() || events->events.size() != 2) {
    ADD_FAILURE() << line << ": "
                  << (events.ok() ? "not one event"
                                  : events.status().message());
    return {};
  }
  return events->events.back();
}

// Rows of a table of the kernel stream that is written of `text`.
struct Imported {
  Status status;
  KernelWritten written;
  std::vector<std::vector<uint64_t>> switches;  // by time
  std::vector<uint32_t> cpus;
  std::vector<std::vector<uint64_t>> losses;
  std::vector<std::string> tasks;
};
Imported Import(const TempDir& dir, const std::string& text,
                const ThreadsOf& threads_of = {}) {
  Imported out;
  auto events = ReadText(dir, text);
  if (!events.ok()) {
    out.status = events.status();
    return out;
  }
  const std::string folder = dir / "streams";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  auto written =
      WriteKernelStream(std::move(*events), threads_of, folder, nullptr);
  if (!written.ok()) {
    out.status = written.status();
    return out;
  }
  out.written = *written;
  auto stream =
      merge::KernelStream::Open(folder + "/kernel-1.ingero", true);
  if (!stream.ok()) {
    out.status = stream.status();
    ADD_FAILURE() << out.status.message();
    return out;
  }
  EXPECT_TRUE((*stream)->damage().empty());
  EXPECT_FALSE((*stream)->torn());
  std::string bytes;
  for (const merge::BlockRef& ref : (*stream)->blocks()) {
    EXPECT_TRUE((*stream)->Read(ref, &bytes).ok());
    Rows rows;
    EXPECT_TRUE(DecodeBlock(bytes, *FindTable(ref.table), &rows).ok());
    for (size_t r = 0; r < rows.size(); ++r) {
      const std::vector<uint64_t> row(rows.row(r).begin(), rows.row(r).end());
      if (ref.table == switch_table::kSchema.id) {
        out.switches.push_back(row);
        out.cpus.push_back(ref.owner);
      } else if (ref.table == loss_table::kSchema.id) {
        out.losses.push_back(row);
      } else if (ref.table == task_table::kSchema.id) {
        out.tasks.push_back(std::to_string(row[task_table::kEvent]) + " " +
                            std::to_string(row[task_table::kTgid]) + "/" +
                            std::to_string(row[task_table::kTid]) + " " +
                            std::string(rows.texts[r].c_str()));
      }
    }
  }
  return out;
}

std::string Switch(const char* time, const char* cpu, const char* prev,
                   const char* state, const char* next) {
  return "x " + std::string(prev) + "/" + prev + " [" + cpu + "] " + time +
         ": sched:sched_switch: prev_comm=t" + prev + " prev_pid=" + prev +
         " prev_prio=120 prev_state=" + state + " ==> next_comm=t" + next +
         " next_pid=" + next + " next_prio=120\n";
}

TEST(PerfText, ColumnsAreThoseThatTheUserChose) {
  TempDir dir;
  const std::string fields =
      "sched:sched_switch: prev_comm=a prev_pid=7 prev_prio=120 prev_state=D "
      "==> next_comm=b next_pid=8 next_prio=-1\n";
  for (const std::string& head : {
           std::string("            a     7 [003]     2.000005: "),
           std::string("a 7 [003] 2.000005: "),
           std::string("            a     7/7     [003]     2.000005000: "),
           std::string("7 [003] 2.000005: "),
           std::string("[003] 2.000005: "),
           std::string("a 7 [003] 2.000005:          1 "),
           std::string("a 7 [003] 2026-11-30 20:41:57.174840     2.000005: "),
           std::string("            -1    -1/-1   [003] 2.000005: "),
           std::string("a b [9] c  7 [003]  2.000005:       "),
           std::string(" 1 [0] 1.000000: 7/7 [003]  2.000005:       ")}) {
    const SchedEvent e = One(dir, head + fields);
    EXPECT_EQ(e.kind, SchedEvent::kSwitch) << head;
    EXPECT_EQ(e.t, 2'000'005'000) << head;
    EXPECT_EQ(e.cpu, 3u) << head;
    EXPECT_EQ(e.tid, 7u) << head;
    EXPECT_EQ(e.other, 8u) << head;
    EXPECT_EQ(e.state, INGERO_TASK_UNINTERRUPTIBLE) << head;
  }
  EXPECT_EQ(One(dir, "a 7 [003] 2.000005: sched_switch: prev_comm=a prev_pid=7 "
                     "prev_prio=120 prev_state=S ==> next_comm=b next_pid=8 "
                     "next_prio=9\r\n").other,
            8u);
}

TEST(PerfText, AnyBytesMayBeInAComm) {
  TempDir dir;
  for (const char* comm :
       {"", " ", "a b", "[001]", "a:b", "pid=5", " prev_pid=9", "==>",
        " ==> next_comm=", " next_pid=3 ", "1.000000: a:b: ", "sched_switch: ",
        "\xff\xfe\x01", "comm=x pid=1"}) {
    auto events = ReadText(
        dir, std::string(comm) + " 7 [001] 2.000005: sched:sched_switch: "
             "prev_comm=" + comm + " prev_pid=7 prev_prio=120 prev_state=R+ "
             "==> next_comm=" + comm + " next_pid=8 next_prio=120\n" +
             comm + " 7 [001] 2.000006: sched:sched_waking: comm=" + comm +
             " pid=9 prio=120 target_cpu=001\n");
    ASSERT_TRUE(events.ok()) << comm << events.status().message();
    ASSERT_EQ(events->events.size(), 2u) << comm;
    const SchedEvent& s = events->events[0];
    EXPECT_EQ(s.tid, 7u) << comm;
    EXPECT_EQ(s.other, 8u) << comm;
    EXPECT_EQ(events->texts[s.name], comm);
    EXPECT_EQ(events->texts[s.other_name], comm);
    EXPECT_EQ(s.flags, INGERO_PREV_PREEMPTED) << comm;
    EXPECT_EQ(events->events[1].tid, 9u) << comm;
    EXPECT_EQ(events->texts[events->events[1].name], comm);
  }
}

TEST(PerfText, StatesAreTheKernels) {
  TempDir dir;
  struct {
    const char* text;
    unsigned state, flags;
  } const kStates[] = {
      {"R", 0, INGERO_PREV_PREEMPTED},
      {"R+", 0, INGERO_PREV_PREEMPTED},
      {"S", 1, 0},
      {"D", 2, 0},
      {"D|K", 2, 0},
      {"S|W", 3, 0},
      {"T", 4, 0},
      {"t", 8, 0},
      {"I", 2, INGERO_PREV_KTHREAD},
      {"P", 2, 0},
      {"X", 0, INGERO_PREV_DEAD},
      {"Z", 0, INGERO_PREV_DEAD}};
  for (const auto& s : kStates) {
    const SchedEvent e = One(dir, Switch("2.000000", "001", "7", s.text, "8"));
    EXPECT_EQ(e.state, s.state) << s.text;
    EXPECT_EQ(e.flags, s.flags) << s.text;
  }
  auto odd = ReadText(dir, Switch("1.000000", "001", "7", "S", "8") +
                               Switch("2.000000", "001", "8", "?", "7"));
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(odd->switches, 1u);
  EXPECT_EQ(odd->odd_lines, 1u);
  EXPECT_TRUE(odd->first_odd.starts_with("line 2: ")) << odd->first_odd;
}

TEST(PerfText, FormOfTheLibrarysPlugin) {
  TempDir dir;
  SchedEvent e = One(dir, "a 7 [001] 2.0000001: x\n"
                          "a 7 [001] 2.000000: sched:sched_switch: "
                          "a: [b:7 [120] S ==> c d:8 [-2]\n");
  EXPECT_EQ(e.tid, 7u);
  EXPECT_EQ(e.other, 8u);
  EXPECT_EQ(e.state, INGERO_TASK_INTERRUPTIBLE);
  e = One(dir, "a 7 [001] 2.000000: sched:sched_switch: "
               "kworker/0:1:7 [120] W ==> swapper/0:0 [120]\n");
  EXPECT_EQ(e.flags, INGERO_PREV_KTHREAD);
  EXPECT_EQ(e.other, 0u);
  e = One(dir, "a 7 [001] 2.000000: sched:sched_wakeup: b [3:9 [120] "
               "success=1 CPU:002\n");
  EXPECT_EQ(e.kind, SchedEvent::kWakeup);
  EXPECT_EQ(e.tid, 9u);
  e = One(dir, "a 7 [001] 2.000000: sched:sched_wakeup_new: b:9 [120] CPU:002\n");
  EXPECT_EQ(e.kind, SchedEvent::kWakeNew);
}

TEST(PerfText, CallChainsTellWhoWokeAndWhereItSleeps) {
  TempDir dir;
  const std::string wake =
      "a 7 [001] 2.000000: sched:sched_waking: comm=b pid=9 prio=120 "
      "target_cpu=001\n";
  EXPECT_EQ(One(dir, wake).flags, INGERO_WAKE_UNKNOWN);
  // By itself.
  EXPECT_EQ(One(dir, wake + "\tffffffff813a89c4 try_to_wake_up+0x3a4 (k)\n"
                            "\tffffffff821ed511 do_syscall_64+0x71 (k)\n"
                            "\t           ee137 write+0x7 (/lib/libc.so)\n\n")
                .flags,
            0);
  // A timer came meanwhile: in user mode, or in a system call.
  EXPECT_EQ(One(dir, wake + "\tffffffff813a89c4 try_to_wake_up (k)\n"
                            "\tffffffff821f2521 sysvec_apic_timer_interrupt\n"
                            "\tffffffff821ed511 do_syscall_64+0x71 (k)\n\n")
                .flags,
            INGERO_WAKE_IRQ);
  // Without names nothing is known.
  EXPECT_EQ(One(dir, wake + "\tffffffff813a89c4 [unknown] (k)\n\n").flags,
            INGERO_WAKE_UNKNOWN);
  // While nobody runs, or in a thread that carries interrupts.
  EXPECT_EQ(One(dir, "swapper 0 [001] 2.000000: sched:sched_waking: comm=b "
                     "pid=9 prio=120 target_cpu=001\n").flags,
            INGERO_WAKE_IRQ);
  EXPECT_EQ(One(dir, "ksoftirqd/1 17 [001] 2.000000: sched:sched_waking: comm=b "
                     "pid=9 prio=120 target_cpu=001\n").flags,
            INGERO_WAKE_IRQ);
  // Where it becomes runnable, an interrupt only carries the news.
  const std::string wakeup =
      "a 7 [001] 2.000000: sched:sched_wakeup: comm=b pid=9 prio=120 "
      "target_cpu=001\n";
  EXPECT_EQ(One(dir, "swapper 0 [001] 2.000000: sched:sched_wakeup: comm=b "
                     "pid=9 prio=120 target_cpu=001\n").flags,
            INGERO_WAKE_UNKNOWN);
  EXPECT_EQ(One(dir, wakeup + "\tffffffff82 sysvec_call_function_single\n\n")
                .flags,
            INGERO_WAKE_UNKNOWN);
  EXPECT_EQ(One(dir, wakeup + "\tffffffff82 do_syscall_64+0x71\n\n").flags, 0);
  SchedEvent e = One(dir, Switch("2.000000", "001", "7", "S", "8") +
                              "\tffffffff81 __schedule+0x2e ([kernel])\n"
                              "\tffffffff82 __x64_sys_futex+0x1 ([kernel])\n"
                              "\tffffffff83 do_syscall_64+0x71 ([kernel])\n");
  EXPECT_EQ(e.syscall, 202);
  e = One(dir, Switch("2.000000", "001", "7", "D", "8") +
                   "\t io_schedule\n\t ksys_read\n");
  EXPECT_EQ(e.flags, INGERO_PREV_IOWAIT);
  EXPECT_EQ(e.syscall, 0);
  e = One(dir, Switch("2.000000", "001", "7", "R", "8") +
                   "\tffffffff82 __x64_sys_sched_yield+0x1 ([kernel])\n");
  EXPECT_EQ(e.flags, INGERO_PREV_YIELDED);
}

TEST(PerfText, WhatItsHeaderSaysOfClocks) {
  TempDir dir;
  const std::string line = Switch("2.000000001", "001", "7", "S", "8");
  auto plain = ReadText(dir, line);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->clock, SchedEvents::Clock::kNotTold);
  EXPECT_FALSE(plain->whole_us);
  auto perf = ReadText(dir, "# missing features: CLOCKID CLOCK_DATA \n" + line);
  EXPECT_EQ(perf->clock, SchedEvents::Clock::kPerf);
  auto mono = ReadText(
      dir,
      "# hostname : box\n# nrcpus online : 12\n# clockid: monotonic (1)\n"
      "# reference time: 2026-11-30 20:38:59.313531 = 1796071139.313531 (TOD) "
      "= 513.958794710 (monotonic)\n" + line);
  EXPECT_EQ(mono->clock, SchedEvents::Clock::kMonotonic);
  EXPECT_EQ(mono->real_minus_clock_ns,
            1'796'071'139'313'531'000 - 513'958'794'710);
  EXPECT_EQ(mono->host, "box");
  EXPECT_EQ(mono->cpus_online, 12u);
  auto raw = ReadText(dir, "# clockid: monotonic_raw (4)\n" + line);
  EXPECT_EQ(raw->clock, SchedEvents::Clock::kOther);
}

TEST(PerfRows, AWakeBelongsToTheNextSwitchOfASleeper) {
  TempDir dir;
  const auto wake = [](const char* time, const char* tid) {
    return "swapper 0/0 [000] " + std::string(time) +
           ": sched:sched_waking: comm=t pid=" + tid +
           " prio=120 target_cpu=000\n";
  };
  const Imported got = Import(
      dir, Switch("1.000000", "000", "7", "S", "0") + wake("1.000100", "7") +
               Switch("1.000105", "000", "0", "R", "7") +
               // It is awake, and is put off.
               wake("1.000110", "7") +
               Switch("1.000120", "000", "7", "R+", "8") +
               Switch("1.000130", "000", "8", "S", "7"));
  ASSERT_TRUE(got.status.ok()) << got.status.message();
  ASSERT_EQ(got.switches.size(), 4u);
  using namespace switch_table;
  EXPECT_EQ(got.switches[1][kWakeT], 1'000'100'000u);
  EXPECT_EQ(got.switches[1][kFlags] & INGERO_WAKE_IRQ, INGERO_WAKE_IRQ);
  EXPECT_EQ(got.switches[3][kWakeT], 0u);
  EXPECT_TRUE(got.losses.empty());
  EXPECT_EQ(got.written.threads, 2u);
}

TEST(PerfRows, ProcessesAreThoseThatTheTextTells) {
  TempDir dir;
  const std::string text =
      "x 0/0 [000] 0.000000: PERF_RECORD_FORK(20:21):(20:20)\n"
      "x 0/0 [000] 0.000000: PERF_RECORD_COMM: a:b:20/21\n" +
      Switch("1.000000", "000", "7", "S", "21") +
      "x 7/7 [001] 1.000001: sched:sched_process_fork: comm=t7 pid=7 "
      "child_comm=kid child_pid=30\n"
      "x 7/7 [001] 1.000002: PERF_RECORD_FORK(30:30):(7:7)\n"
      "x 30/30 [001] 1.000003: sched:sched_process_exec: "
      "filename=/bin/long name pid=30 old_pid=30\n" +
      Switch("1.000004", "001", "30", "Z", "0") +
      // The number is another's now.
      Switch("1.000005", "001", "0", "R", "30");
  const Imported got = Import(dir, text);
  ASSERT_TRUE(got.status.ok()) << got.status.message();
  EXPECT_EQ(std::count(got.tasks.begin(), got.tasks.end(), "7 20/21 a:b"), 1);
  EXPECT_EQ(std::count(got.tasks.begin(), got.tasks.end(), "1 30/30 kid"), 1);
  EXPECT_EQ(std::count(got.tasks.begin(), got.tasks.end(), "2 30/30 long name"),
            1);
  EXPECT_EQ(std::count(got.tasks.begin(), got.tasks.end(), "1 30/30 t30"), 1);
  // As another trace knows them.
  std::string tids = Switch("1.000000", "000", "7", "S", "8");
  tids.replace(tids.find("7/7"), 3, "7");
  EXPECT_EQ(Import(dir, tids).switches[0][switch_table::kNextTgid], 8u);
  EXPECT_EQ(
      Import(dir, tids, {{8, 5}}).switches[0][switch_table::kNextTgid], 5u);
}

TEST(PerfRows, WhatIsMissingIsALoss) {
  TempDir dir;
  const std::string first = Switch("1.000000", "000", "7", "S", "8") +
                            Switch("1.000010", "000", "8", "S", "7") +
                            Switch("1.000020", "000", "7", "S", "8");
  // Nobody saw 9 come.
  const std::string broken = Switch("1.000050", "000", "9", "S", "7");
  Imported got = Import(dir, first + broken);
  ASSERT_EQ(got.losses.size(), 1u);
  EXPECT_EQ(got.losses[0],
            (std::vector<uint64_t>{1'000'020'000, 1'000'050'000,
                                   INGERO_LOSS_NOT_IMPORTED, 1}));
  // perf counted them.
  got = Import(dir, first +
                        "x 7/7 [000] 1.000040: PERF_RECORD_LOST lost 41\n" +
                        broken);
  ASSERT_EQ(got.losses.size(), 1u);
  EXPECT_EQ(got.losses[0],
            (std::vector<uint64_t>{1'000'020'000, 1'000'040'000,
                                   INGERO_LOSS_NOT_IMPORTED, 41}));
  EXPECT_EQ(got.written.lost, 41u);
  // Not by CPU at all: of one program.
  std::string alone;
  for (int i = 0; i < 9; ++i)
    alone += Switch(("1.00000" + std::to_string(i)).c_str(), "000", "7", "S",
                    "8");
  got = Import(dir, alone);
  ASSERT_FALSE(got.status.ok());
  EXPECT_NE(got.status.message().find("perf record -a"), std::string::npos);
}

TEST(PerfText, WhatCannotBeUsedSaysWhatToDo) {
  TempDir dir;
  struct {
    const char *text, *says;
  } const kTexts[] = {
      {"x 7 1.000000: sched:sched_switch: prev_comm=x prev_pid=7 prev_prio=1 "
       "prev_state=S ==> next_comm=y next_pid=8 next_prio=1\n",
       "does not say on which CPU"},
      {"x 7 [001] 1.000000: prev_comm=x prev_pid=7 prev_prio=1 prev_state=S ==> "
       "next_comm=y next_pid=8 next_prio=1\n",
       "has no names of events"},
      {"          <idle>-0     [001] d..2.   1.000000: sched_switch: "
       "prev_comm=x prev_pid=0 prev_prio=1 prev_state=S ==> next_comm=y "
       "next_pid=8 next_prio=1\n",
       "ftrace or trace-cmd"},
      {"x 7 [001] 1.000000: cycles: 1234\n", "has no context switch"},
      {"x 7 [001] 1.000000: sched:sched_switch: nothing\n", "line 1"},
      {"\n", "has no context switch"}};
  for (const auto& t : kTexts) {
    auto events = ReadText(dir, t.text);
    ASSERT_FALSE(events.ok()) << t.text;
    EXPECT_NE(events.status().message().find(t.says), std::string::npos)
        << events.status().message();
    EXPECT_EQ(events.status().message().find('\n'), std::string::npos);
  }
}

std::string Fixture(const char* name) {
  auto text = ReadWholeFile(std::string(INGERO_PERF_FIXTURES) + "/" + name);
  EXPECT_TRUE(text.ok());
  return text.ok() ? *text : "";
}

// Where events begin: a cut there leaves whole ones alone.
std::set<size_t> EventBegins(const std::string& text) {
  std::set<size_t> begins = {text.size()};
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
    if (text[at] != '\t' && text[at] != '\n') begins.insert(at);
  return begins;
}

TEST(PerfDamage, CutAtEveryByte) {
  TempDir dir;
  for (const char* name :
       {"plain.txt", "lost.txt", "joined.txt", "chains.txt"}) {
    std::string whole = Fixture(name);
    // With a switch soon.
    whole.erase(0, whole.rfind('\n', whole.find("sched_switch: ")) + 1);
    const bool chains = std::string(name) == "chains.txt";
    whole.resize(whole.find(chains ? "\n\n" : "\n", 1000) + (chains ? 2 : 1));
    const std::set<size_t> begins = EventBegins(whole);
    uint64_t before = 0;
    for (size_t size = 0; size < whole.size(); ++size) {
      WriteFile(dir / "t.txt", whole.substr(0, size));
      auto events = ReadPerfSched(dir / "t.txt", nullptr);
      if (!events.ok()) {
        EXPECT_EQ(events.status().message().find('\n'), std::string::npos);
        EXPECT_EQ(before, 0u) << size;
        continue;
      }
      // Whole lines are all there, and a cut one is no other event.
      EXPECT_GE(events->switches, before) << size;
      EXPECT_LE(events->switches, before + 1) << size;
      EXPECT_EQ(events->odd_lines, 0u) << size;
      EXPECT_EQ(events->no_events, 0u) << size;
      before = events->switches;
      // Behind the first line alone nothing shows that a chain would follow.
      if (whole[size - 1] == '\n' &&
          std::count(whole.begin(), whole.begin() + static_cast<long>(size),
                     '\n') == 1)
        continue;
      const bool between = begins.contains(size);
      EXPECT_EQ(events->cut.empty(), between)
          << name << " " << size << " " << events->cut;
      EXPECT_EQ(events->gaps.size(), between ? 0u : 1u) << size;
      const std::vector<std::string> told = NotTold(*events);
      EXPECT_EQ(std::any_of(told.begin(), told.end(),
                            [](const std::string& line) {
                              return line.starts_with("the end: the text was "
                                                      "cut");
                            }),
                !between)
          << size;
    }
    EXPECT_GT(before, 0u) << name;
  }
}

TEST(PerfDamage, ACutIsALossAtTheEnd) {
  TempDir dir;
  const std::string whole = Switch("1.000000", "000", "7", "S", "8") +
                            Switch("1.000010", "000", "8", "S", "7");
  const std::string next = Switch("1.000020", "000", "7", "S", "8");
  EXPECT_TRUE(Import(dir, whole).losses.empty());
  for (const std::string& end : {std::string(" "), next.substr(0, 20),
                                 next.substr(0, next.size() - 5)}) {
    const Imported got = Import(dir, whole + end);
    ASSERT_EQ(got.losses.size(), 1u) << end;
    const uint64_t t = got.switches.back()[switch_table::kT];
    EXPECT_EQ(got.losses[0],
              (std::vector<uint64_t>{t, t, INGERO_LOSS_NOT_IMPORTED, 1}));
  }
  auto nothing = ReadText(dir, next.substr(0, 60));
  ASSERT_FALSE(nothing.ok());
  EXPECT_NE(nothing.status().message().find("in line 1 where it was cut"),
            std::string::npos)
      << nothing.status().message();
}

TEST(PerfDamage, LinesThatAreNoEventsAreSaid) {
  TempDir dir;
  const std::string first = Switch("1.000000", "000", "7", "S", "8"),
                    second = Switch("1.000010", "000", "8", "S", "7"),
                    third = Switch("1.000020", "000", "7", "S", "8");
  const std::string half = first.substr(40);
  using Loss = std::vector<uint64_t>;
  const auto one = [&](const std::string& text, Loss loss, const char* at) {
    auto events = ReadText(dir, text);
    ASSERT_TRUE(events.ok());
    EXPECT_EQ(events->no_events, 1u) << text;
    EXPECT_TRUE(events->first_no_event.starts_with(at))
        << events->first_no_event;
    EXPECT_EQ(events->cut, "");
    const Imported got = Import(dir, text);
    ASSERT_EQ(got.losses.size(), 1u) << text;
    EXPECT_EQ(got.losses[0], loss) << text;
    EXPECT_EQ(got.written.lost, 1u);
  };
  constexpr uint64_t kId = INGERO_LOSS_NOT_IMPORTED;
  // Before the first event: half of one, words, a frame of none.
  for (const std::string& garbage :
       {half, std::string("Dear diary\n"), std::string("\tfff81 schedule\n"),
        std::string(20'000, 'x') + "\n"})
    one(garbage + first + second, Loss{1'000'000'000, 1'000'000'000, kId, 1},
        "line 1: ");
  // Between two, where nothing shows what it was.
  one(first + half + second, Loss{1'000'000'000, 1'000'010'000, kId, 1},
      "line 2: ");
  // What is missing there is counted once.
  one(first + half + third, Loss{1'000'000'000, 1'000'020'000, kId, 1},
      "line 2: ");
  // After the last.
  one(first + second + "Killed\n", Loss{1'000'010'000, 1'000'010'000, kId, 1},
      "line 3: ");
  // An event that cannot be read, on a CPU that is known.
  auto odd = Switch("1.000005", "000", "8", "S", "9");
  odd.replace(odd.find("==>"), 3, "   ");
  const Imported got = Import(dir, first + odd + second);
  ASSERT_EQ(got.losses.size(), 1u);
  EXPECT_EQ(got.losses[0], (Loss{1'000'000'000, 1'000'005'000, kId, 1}));
  // perf's own lines, and those of its header, are no garbage.
  auto well = ReadText(
      dir, "# " + std::string(20'000, 'x') + "\n\n" + first +
               "x 7/7 [000] 1.000001: PERF_RECORD_LOST_SAMPLES lost 7 (BPF)\n"
               "x 7/7 [000] 1.000001: PERF_RECORD_MMAP2 7/7: [0x5(0x1) @ 0]\n"
               "\n" + second);
  ASSERT_TRUE(well.ok());
  EXPECT_EQ(well->no_events + well->odd_lines + well->gaps.size(), 0u);
  EXPECT_EQ(well->cut, "");
}

TEST(PerfDamage, EveryByteChanged) {
  TempDir dir;
  constexpr char kOthers[] = {'\0', '9', ':', '[', '\n', '\xff', ' '};
  for (const char* name : {"lost.txt", "chains.txt"}) {
    std::string whole = Fixture(name);
    whole.erase(0, whole.rfind('\n', whole.find("sched_switch: ")) + 1);
    whole.resize(std::min<size_t>(whole.size(), 600));
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string bytes = whole;
      bytes[at] = kOthers[at % std::size(kOthers)];
      const Imported got = Import(dir, bytes);
      if (!got.status.ok()) {
        EXPECT_EQ(got.status.message().find('\n'), std::string::npos) << at;
      }
    }
  }
}

}  // namespace
}  // namespace ingero::import
