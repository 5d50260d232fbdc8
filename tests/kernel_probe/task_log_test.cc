// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/task_log.h"

#include <gtest/gtest.h>

namespace ingero::kernel_probe {
namespace {

ingero_ring_task Task(uint16_t event, uint32_t tid) {
  ingero_ring_task t{};
  t.kind = INGERO_RING_TASK;
  t.event = event;
  t.tid = tid;
  return t;
}

TEST(TaskLogTest, ATaskBornDuringTheDumpCountsOnce) {
  const auto kept = WithoutBorn({Task(INGERO_TASK_EVENT_EXISTING, 1),
                                 Task(INGERO_TASK_EVENT_EXISTING, 2),
                                 Task(INGERO_TASK_EVENT_EXISTING, 3)},
                                {Task(INGERO_TASK_EVENT_FORK, 2),
                                 Task(INGERO_TASK_EVENT_EXIT, 3),
                                 Task(INGERO_TASK_EVENT_FORK, 9)});
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].tid, 1u);
  EXPECT_EQ(kept[1].tid, 3u);
}

}  // namespace
}  // namespace ingero::kernel_probe
