// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/xid_log.h"

#include <gtest/gtest.h>

namespace ingero::kernel_probe {
namespace {

TEST(XidLogTest, ReadsNumberAndLine) {
  const auto xid = ParseXid(
      "4,1234,5140900,-;NVRM: Xid (PCI:0000:18:00): 79, pid=2254, "
      "name=python3, GPU has fallen off the bus.\n SUBSYSTEM=pci\n");
  ASSERT_TRUE(xid.has_value());
  EXPECT_EQ(xid->number, 79u);
  EXPECT_EQ(xid->line,
            "NVRM: Xid (PCI:0000:18:00): 79, pid=2254, name=python3, GPU has "
            "fallen off the bus.");
}

TEST(XidLogTest, OtherLinesAreNone) {
  for (const char* record :
       {"", "6,1,2,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
        "6,1,2,-;usb 1-1: Xid (PCI:1): 3", "6,1,2,-;NVRM: Xid (PCI:0000:01",
        "6,1,2,-;NVRM: Xid (PCI:0000:01): many", "NVRM: Xid (PCI:1): 3"})
    EXPECT_FALSE(ParseXid(record).has_value()) << record;
}

TEST(XidLogTest, LinesAreCapped) {
  const auto xid =
      ParseXid("6,1,2,-;NVRM: Xid (PCI:1): 31, " + std::string(4000, 'x'));
  ASSERT_TRUE(xid.has_value());
  EXPECT_EQ(xid->line.size(), 256u);
}

}  // namespace
}  // namespace ingero::kernel_probe
