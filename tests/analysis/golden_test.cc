// SPDX-License-Identifier: Apache-2.0
// golden/<case>/trace.txt in, golden/<case>/expected.txt out. To accept a
// changed answer: INGERO_UPDATE_GOLDEN=1 analysis_golden_test, then read the
// diff.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.h"
#include "tests/analysis/invariants.h"
#include "tests/support/trace_text.h"
#include "wire/wire.h"

namespace ingero::testing {
namespace {

using namespace analysis;  // NOLINT: a printer of the analysis's output

std::string Read(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

const char* Name(Severity s) {
  static const char* const kNames[] = {"INFO", "LOW", "MEDIUM", "HIGH"};
  return kNames[static_cast<int>(s)];
}

std::string Summary(const Report& r) {
  std::ostringstream out;
  out << "verdict: " << r.verdict << "\n";
  for (const Feeding& f : r.feeding)
    out << "feeding " << r.processes[f.process].name << " device " << f.device
        << ": span " << FormatDuration(f.span) << ", idle "
        << FormatDuration(f.idle_at_least) << " to "
        << FormatDuration(f.idle_at_most) << ", busy "
        << FormatDuration(f.known_busy) << ", cold "
        << FormatDuration(f.cold_start) << ", host copy "
        << FormatDuration(f.host_copy) << "\n";
  for (const Finding& f : r.findings) {
    static const char* const kConfidence[] = {"low", "medium", "high"};
    out << Name(f.severity) << " " << f.cause << " lost "
        << FormatDuration(f.lost) << " (at most "
        << FormatDuration(f.lost_at_most) << "), confidence "
        << kConfidence[static_cast<int>(f.confidence)] << ", " << f.coverage
        << "\n  " << f.claim << "\n";
    out << "  when";
    for (Interval w : f.windows)
      out << " " << FormatDuration(w.begin) << " to " << FormatDuration(w.end)
          << ",";
    out << " elsewhere " << FormatDuration(f.outside_windows) << "\n";
    for (const Culprit& c : f.culprits)
      out << "  culprit " << c.name << " " << FormatPercent(c.share) << "\n";
    for (const TimelineLine& t : f.timeline)
      out << "  "
          << (t.layer == TimelineLine::Layer::kSystem ? "[SYSTEM] "
              : t.layer == TimelineLine::Layer::kHost ? "[HOST] "
                                                      : "[CUDA] ")
          << "+" << FormatDuration(t.at) << " " << t.text << "\n";
    for (const Evidence& e : f.evidence)
      out << "  evidence " << e.name << ": " << e.text << " `" << e.query
          << "`\n";
    for (const Recommendation& x : f.recommendations)
      out << "  fix (up to " << FormatDuration(x.gain) << "): " << x.text
          << "\n";
    for (const std::string& s : f.symptoms) out << "  symptom " << s << "\n";
  }
  for (const Account& a : r.accounts) {
    out << "sum:";
    for (const auto& [cause, lost] : a.causes)
      out << " " << FormatDuration(lost) << " " << cause << " +";
    out << " " << FormatDuration(a.below) << " below + "
        << FormatDuration(a.unexplained)
        << " unexplained = " << FormatDuration(a.starved) << "; unseen "
        << FormatDuration(a.unseen) << ", waited for ingero "
        << FormatDuration(a.waited_for_ingero);
    Ns held;
    for (const auto& [process, time] : a.held_by_ingero) {
      out << " " << r.processes[process].name << "/"
          << r.processes[process].pid;
      held += time;
    }
    EXPECT_EQ(held, a.waited_for_ingero);
    out << "\n";
    Ns parts = a.below + a.unexplained;
    for (const auto& [cause, lost] : a.causes) parts += lost;
    EXPECT_EQ(parts, a.starved);
  }
  for (const StepSummary& x : r.steps) out << "steps: " << x.text << "\n";
  for (const std::string& line : r.facts.system)
    out << "system: " << line << "\n";
  for (const NotEvaluated& n : r.not_evaluated)
    if (!n.why.ends_with("(NVML)"))
      out << "not evaluated: " << n.cause << ": " << n.why << "\n";
  return out.str();
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, ReportIsAsExpectedAndInvariantsHold) {
  const std::filesystem::path folder =
      std::filesystem::path(GOLDEN_DIR) / GetParam();
  Result<MemoryTrace> trace = ParseTrace(Read(folder / "trace.txt"));
  ASSERT_TRUE(trace.ok()) << folder << ": " << trace.status().message();
  const MemoryReportSource source(*trace);
  ExpectInvariants(*trace, source.attributed());
  for (int64_t ms : {10, 30, 70, 200, 1000}) {
    const Attributed other =
        RunAttribution(*trace, kMillisecond * ms, /*exact=*/true);
    SCOPED_TRACE("window of " + std::to_string(ms) + " ms");
    ExpectSame(source.attributed(), other);
  }
  const std::string actual = Summary(BuildReport(source, {}));
  const std::filesystem::path expected = folder / "expected.txt";
  if (std::getenv("INGERO_UPDATE_GOLDEN")) {
    std::ofstream(expected) << actual;
    return;
  }
  EXPECT_EQ(Read(expected), actual) << "in " << folder;
}

// Library calls around every CUDA call, one within the other, with all that
// would mean something in a CUDA call.
void AddLibraries(MemoryTrace* trace) {
  const auto func = static_cast<FuncIndex>(trace->function_list.size());
  for (const auto& [name, call_class] :
       {std::pair("cublasSgemm_v2", INGERO_CLASS_CUBLAS),
        std::pair("cublasLtMatmul", INGERO_CLASS_CUBLASLT)})
    trace->function_list.push_back({.name = name,
                                    .layer = Layer::kLibrary,
                                    .call_class =
                                        static_cast<CallClass>(call_class)});
  std::vector<Call> added;
  for (const Call& call : trace->calls) {
    if (call.depth > 0) continue;
    for (uint8_t depth : {0, 1}) {
      Call c = call;
      c.begin = call.begin - Ns(1000 * (2 - depth));
      c.end = call.end + Ns(1000 * (2 - depth));
      c.func = func + depth;
      c.depth = depth;
      c.result = 700;
      c.first_use = c.first_call = true;
      c.bytes = 1 << 30;
      c.stream = c.object = 0x77;
      added.push_back(c);
    }
  }
  trace->calls.insert(trace->calls.end(), added.begin(), added.end());
  trace->Sort();
}

TEST_P(GoldenTest, LibrariesChangeNothing) {
  const std::filesystem::path folder =
      std::filesystem::path(GOLDEN_DIR) / GetParam();
  Result<MemoryTrace> plain = ParseTrace(Read(folder / "trace.txt"));
  ASSERT_TRUE(plain.ok());
  MemoryTrace with = *plain;
  AddLibraries(&with);
  const MemoryReportSource a(*plain), b(with);
  ExpectSame(a.attributed(), b.attributed());
  const Report report = BuildReport(b, {});
  EXPECT_EQ(Summary(BuildReport(a, {})), Summary(report));
  // Not because they were passed over: they have rows of their own.
  uint64_t rows = 0;
  for (const auto& o : report.operations)
    rows += report.functions[o.func].layer == Layer::kLibrary;
  EXPECT_EQ(rows > 0, !plain->calls.empty());
}

std::vector<std::string> Cases() {
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(GOLDEN_DIR))
    if (e.is_directory()) names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, ::testing::ValuesIn(Cases()),
                         [](const ::testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ingero::testing
