// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/proc.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/task_stat.h"

namespace ingero::kernel_probe {
namespace {

TEST(ProcTest, ReadsCpuTimesOfEachCpu) {
  const SystemStat s = ParseStat(
      "cpu  30 0 20 400 10 0 2 5 0 0\n"
      "cpu0 10 1 10 200 4 2 1 5 3 0\n"
      "cpu12 20 0 10 200 6 0 1 0 0 0\n"
      "intr 100 1 2\nctxt 123456789\nbtime 1700000000\n");
  ASSERT_EQ(s.cpus.size(), 2u);
  EXPECT_EQ(s.cpus[0].cpu, 0u);
  EXPECT_EQ(s.cpus[0].busy_ns, 24u * 10'000'000);
  EXPECT_EQ(s.cpus[0].idle_ns, 204u * 10'000'000);
  EXPECT_EQ(s.cpus[0].steal_ns, 5u * 10'000'000);
  EXPECT_EQ(s.cpus[0].irq_ns, 2u * 10'000'000);
  EXPECT_EQ(s.cpus[0].softirq_ns, 1u * 10'000'000);
  EXPECT_EQ(s.cpus[1].cpu, 12u);
  EXPECT_EQ(s.context_switches, 123456789u);
}

TEST(ProcTest, DamagedStatGivesWhatThereIs) {
  EXPECT_TRUE(ParseStat("").cpus.empty());
  EXPECT_TRUE(ParseStat("cpux 1 2\ncpu\nctxt many\n").cpus.empty());
  EXPECT_FALSE(ParseStat("ctxt many\n").context_switches.has_value());
  const SystemStat s = ParseStat("cpu0 7");
  ASSERT_EQ(s.cpus.size(), 1u);
  EXPECT_EQ(s.cpus[0].busy_ns, 70'000'000u);
}

TEST(ProcTest, ReadsLoad) {
  EXPECT_EQ(ParseLoad1("2.57 1.20 0.80 3/120 4567\n"), 2570u);
  EXPECT_EQ(ParseLoad1("0.00 0 0"), 0u);
  EXPECT_FALSE(ParseLoad1("high").has_value());
}

TEST(ProcTest, ReadsPressure) {
  const Pressure p = ParsePressure(
      "some avg10=0.12 avg60=0.00 avg300=0.00 total=987654\n"
      "full avg10=0.00 avg60=0.00 avg300=0.00 total=123\n");
  EXPECT_EQ(p.some_us, 987654u);
  EXPECT_EQ(p.full_us, 123u);
  EXPECT_FALSE(ParsePressure("").some_us.has_value());
  EXPECT_FALSE(ParsePressure("some avg10=1\n").some_us.has_value());
}

TEST(ProcTest, ReadsMemory) {
  const Memory m = ParseMemory(
      "MemTotal:       24683652 kB\nMemFree:  1 kB\n"
      "MemAvailable:   23900000 kB\nSwapTotal: 1000 kB\nSwapFree: 400 kB\n");
  EXPECT_EQ(m.total_bytes, uint64_t{24683652} * 1024);
  EXPECT_EQ(m.available_bytes, uint64_t{23900000} * 1024);
  EXPECT_EQ(m.swap_used_bytes, 600u * 1024);
  EXPECT_FALSE(ParseMemory("").total_bytes.has_value());
}

TEST(ProcTest, NamesWithBlanksAndParenthesesDoNotShiftFields) {
  const auto s = ParseTaskStat(
      "4242 (a) b (c) S 17 4242 4242 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 "
      "998877 1000 200 18446744073709551615");
  ASSERT_TRUE(s.has_value());
  EXPECT_EQ(s->comm, "a) b (c");
  EXPECT_EQ(s->parent_pid, 17u);
  EXPECT_EQ(s->cpu_ticks, 11u);
  EXPECT_EQ(s->start_ticks, 998877u);
  for (const char* bad : {"", "1 (x", "1 (x)", "1 (x) S", "1 (x) S 2 3 4"})
    EXPECT_FALSE(ParseTaskStat(bad).has_value()) << bad;
}

TEST(ProcTest, TheInnermostNamespacePidIsTheLast) {
  const NamespacePids p = ParseNamespacePids(
      "Name:\tx\nTgid:\t300\nNStgid:\t300\t12\t1\nNSpid:\t305\t17\t6\n"
      "NSpgid:\t300\t12\t1\n");
  EXPECT_EQ(p.tid, 6u);
  EXPECT_EQ(p.tgid, 1u);
  EXPECT_EQ(ParseNamespacePids("NSpid:\t7\n").tid, 7u);
  EXPECT_EQ(ParseNamespacePids("").tid, 0u);
}

TEST(ProcTest, CommandArgumentsAreSeparatedAndBounded) {
  using namespace std::string_view_literals;
  EXPECT_EQ(CommandText("python3\0-c\0\0"sv), "python3\x1f-c");
  EXPECT_EQ(CommandText(""), "");
  EXPECT_EQ(CommandText(std::string(10000, 'x')).size(), kMaxCommandBytes);
}

TEST(ProcTest, TextIsOnlyOfTheProcessThatWasMeant) {
  const auto own = ReadTaskStat(static_cast<uint32_t>(getpid()));
  ASSERT_TRUE(own.has_value());
  const uint64_t tick_ns =
      1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  const uint64_t start_ns = own->start_ticks * tick_ns + tick_ns / 2;
  const std::string text =
      ExeAndCommand(static_cast<uint32_t>(getpid()), start_ns);
  EXPECT_NE(text.find("kernel_probe_test"), std::string::npos);
  EXPECT_NE(text.find('\0'), std::string::npos);
  // The pid was reused by a process that started a second later.
  EXPECT_EQ(ExeAndCommand(static_cast<uint32_t>(getpid()),
                          start_ns + 1'000'000'000),
            "");
}

TEST(ProcTest, TasksAreAddedOnce) {
  std::vector<ingero_ring_task> tasks;
  AddTasksOfProc(&tasks);
  const size_t all = tasks.size();
  ASSERT_GT(all, 0u);
  size_t own = 0;
  for (const ingero_ring_task& t : tasks)
    if (t.tid == static_cast<uint32_t>(getpid())) {
      ++own;
      EXPECT_EQ(t.tgid, t.tid);
      EXPECT_EQ(t.parent_tgid, static_cast<uint32_t>(getppid()));
    }
  EXPECT_EQ(own, 1u);
  AddTasksOfProc(&tasks);
  own = 0;
  for (const ingero_ring_task& t : tasks)
    own += t.tid == static_cast<uint32_t>(getpid());
  EXPECT_EQ(own, 1u);
}

}  // namespace
}  // namespace ingero::kernel_probe
