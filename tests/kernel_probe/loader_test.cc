// SPDX-License-Identifier: Apache-2.0
// Each probe degrades alone (CASES 32).
#include "kernel_probe/loader.h"

#include <gtest/gtest.h>

#include <map>

#include "base/file.h"
#include "tests/kernel_probe/companion.h"

namespace ingero::kernel_probe {
namespace {

// By tracepoint: whether it is attached.
std::map<std::string, bool> Attached(const Loader& loader) {
  std::map<std::string, bool> attached;
  for (const ProbeState& s : loader.States())
    attached[s.tracepoint] = s.attached;
  return attached;
}

TEST(LoaderTest, AProbeThatReadsAMissingFieldIsSkippedAloneAndNamed) {
  if (const std::string why = test::WhyNoCompanion(); !why.empty())
    GTEST_SKIP() << why;
  const auto object = ReadWholeFile(INGERO_MISSING_FIELD_OBJECT);
  ASSERT_TRUE(object.ok()) << object.status().message();
  const auto* begin = reinterpret_cast<const unsigned char*>(object->data());
  LoaderOptions options;
  options.ring_bytes = 4096;
  std::map<std::string, bool> expected;
  {
    auto loader = Loader::Load(options);
    ASSERT_TRUE(loader.ok()) << loader.status().message();
    ASSERT_TRUE((*loader)->AttachTaskProbes().ok());
    ASSERT_TRUE((*loader)->AttachScheduler().ok());
    expected = Attached(**loader);
  }
  EXPECT_TRUE(expected["sched_switch"]);
  expected["sched_process_free"] = false;

  std::string said;
  options.report = [&](const std::string& line) { said += line + "\n"; };
  options.extra = {{begin, begin + object->size(), "on_missing_field",
                    "sched_process_free", "the signal of this test"}};
  auto loader = Loader::Load(options);
  ASSERT_TRUE(loader.ok()) << loader.status().message();
  ASSERT_TRUE((*loader)->AttachTaskProbes().ok());
  ASSERT_TRUE((*loader)->AttachScheduler().ok());
  EXPECT_EQ(Attached(**loader), expected);
  const size_t at = said.find("probe sched_process_free: skipped, because ");
  ASSERT_NE(at, std::string::npos) << said;
  const std::string line = said.substr(at, said.find('\n', at) - at);
  EXPECT_NE(line.find("(missing: the signal of this test)"), std::string::npos)
      << line;
  const std::vector<ProbeState> states = (*loader)->States();
  EXPECT_EQ(states.back().tracepoint, std::string("sched_process_free"));
  EXPECT_FALSE(states.back().skipped.empty());
}

}  // namespace
}  // namespace ingero::kernel_probe
