// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/losses.h"

#include <gtest/gtest.h>

#include <vector>

namespace ingero::kernel_probe {
namespace {

// As count_loss() in bpf/emit.bpf.h does.
void Lose(ingero_cpu_state* cpu, int slot, uint64_t t_ns) {
  ingero_loss_counter& c = cpu->lost[slot];
  if (c.count == c.reported) c.first_ns = t_ns;
  c.last_ns = t_ns;
  ++c.count;
}

std::vector<Loss> Poll(LossReader* reader, uint64_t now_ns) {
  std::vector<Loss> losses;
  reader->Poll(now_ns, [&](const Loss& l) { losses.push_back(l); });
  return losses;
}

TEST(LossReaderTest, NothingLostSaysNothing) {
  ingero_cpu_state cpus[2] = {};
  LossReader reader(cpus);
  EXPECT_TRUE(Poll(&reader, 100).empty());
}

TEST(LossReaderTest, EachCpuAndKindHasItsCountAndRange) {
  ingero_cpu_state cpus[2] = {};
  LossReader reader(cpus);
  Lose(&cpus[0], INGERO_CPU_LOST_STORAGE, 20);
  Lose(&cpus[1], INGERO_CPU_LOST_SWITCH, 10);
  Lose(&cpus[1], INGERO_CPU_LOST_SWITCH, 30);
  const auto losses = Poll(&reader, 100);
  ASSERT_EQ(losses.size(), 2u);
  EXPECT_EQ(losses[0].cpu, 0u);
  EXPECT_EQ(losses[0].loss, INGERO_LOSS_TASK_STORAGE);
  EXPECT_EQ(losses[0].count, 1u);
  EXPECT_EQ(losses[1].cpu, 1u);
  EXPECT_EQ(losses[1].loss, INGERO_LOSS_SWITCH_RING_FULL);
  EXPECT_EQ(losses[1].first_ns, 10u);
  EXPECT_EQ(losses[1].last_ns, 30u);
  EXPECT_EQ(losses[1].count, 2u);
}

TEST(LossReaderTest, ALaterLossBeginsItsOwnRange) {
  ingero_cpu_state cpu[1] = {};
  LossReader reader(cpu);
  Lose(&cpu[0], INGERO_CPU_LOST_SWITCH, 10);
  ASSERT_EQ(Poll(&reader, 15).size(), 1u);
  EXPECT_TRUE(Poll(&reader, 20).empty());
  Lose(&cpu[0], INGERO_CPU_LOST_SWITCH, 1000);
  const auto losses = Poll(&reader, 1100);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].first_ns, 1000u);
  EXPECT_EQ(losses[0].last_ns, 1000u);
  EXPECT_EQ(losses[0].count, 1u);
}

TEST(LossReaderTest, ARaceWidensTheRangeAndNeverTheCount) {
  ingero_cpu_state cpu[1] = {};
  LossReader reader(cpu);
  Lose(&cpu[0], INGERO_CPU_LOST_SWITCH, 10);
  ASSERT_EQ(Poll(&reader, 15).size(), 1u);
  // The program lost one between our read of count and store to reported.
  cpu[0].lost[INGERO_CPU_LOST_SWITCH].reported = 0;
  Lose(&cpu[0], INGERO_CPU_LOST_SWITCH, 50);
  const auto losses = Poll(&reader, 60);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_LE(losses[0].first_ns, 50u);
  EXPECT_GE(losses[0].first_ns, 10u);
  EXPECT_EQ(losses[0].last_ns, 50u);
  EXPECT_EQ(losses[0].count, 1u);
}

}  // namespace
}  // namespace ingero::kernel_probe
