// SPDX-License-Identifier: Apache-2.0
// `ingero store`, and every command that reads a store on stores that are
// damaged, cut or none (CASES 60): the same answer as of the whole store, or one
// line and a status; never a signal, never another answer.
#include <gtest/gtest.h>
#include <lmdb.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "base/stream_frame.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/render/json.h"
#include "merge/merge.h"
#include "merge/store.h"
#include "merge/trace_reader.h"
#include "tests/support/stream_builder.h"

namespace ingero::cli {
namespace {

using testing::CudaStreamBuilder;
using testing::KernelStreamBuilder;
using testing::ReadFile;
using testing::TempDir;
using testing::WriteFile;

struct Outcome {
  int status = 0;
  std::string out, err;
};

Outcome RunIt(const Args& args) {
  char *out = nullptr, *err = nullptr;
  size_t out_size = 0, err_size = 0;
  Io io;
  io.out = open_memstream(&out, &out_size);
  io.err = open_memstream(&err, &err_size);
  Outcome outcome;
  outcome.status = Run(args, io);
  fclose(io.out);
  fclose(io.err);
  outcome.out.assign(out, out_size);
  outcome.err.assign(err, err_size);
  free(out);
  free(err);
  return outcome;
}

Json JsonOf(const Args& args) {
  const Outcome o = RunIt(args);
  EXPECT_EQ(o.status, kDone) << o.err;
  return Json::parse(o.out, nullptr, false);
}

// The kept H200 recording, as this ingero writes it.
class StoreCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    store_ = dir_ / "a.store";
    const Outcome o =
        RunIt({"store", "compact", INGERO_KEPT_STORE, "-o", store_});
    ASSERT_EQ(o.status, kDone) << o.err;
  }
  TempDir dir_;
  std::string store_;
};

TEST_F(StoreCommand, CompactingChangesNoAnswer) {
  EXPECT_LT(std::filesystem::file_size(store_ + "/data.mdb"),
            std::filesystem::file_size(std::string(INGERO_KEPT_STORE) +
                                       "/data.mdb"));
  for (const Args& more : {Args{"explain", "--json"}, Args{"stats", "--json"},
                           Args{"explain", "--json", "--from", "100s"}}) {
    Args before = more, after = more;
    before.insert(before.end(), {"--db", INGERO_KEPT_STORE});
    after.insert(after.end(), {"--db", store_});
    Json a = JsonOf(before), b = JsonOf(after);
    for (Json* j : {&a, &b}) {
      j->erase("store");
      if (j->contains("trace")) (*j)["trace"].erase("store");
    }
    // Commands that name the store.
    std::string was = a.dump(), is = b.dump();
    for (size_t at; (at = was.find(INGERO_KEPT_STORE)) != was.npos;)
      was.replace(at, std::string(INGERO_KEPT_STORE).size(), "DB");
    for (size_t at; (at = is.find(store_)) != is.npos;)
      is.replace(at, store_.size(), "DB");
    EXPECT_EQ(was, is);
  }
  EXPECT_EQ(RunIt({"store", "check", store_}).status, kDone);
  // Once is enough.
  const Outcome again = RunIt({"store", "compact", store_});
  EXPECT_EQ(again.status, kDone);
  EXPECT_NE(again.out.find("Nothing to gain"), std::string::npos) << again.out;
}

// The same rows, by whichever command.
TEST_F(StoreCommand, RowsAreCountedAlike) {
  const auto rows = [](const std::string& store) {
    return FormatCount(
        JsonOf({"store", "check", store, "--json"})["rows"].get<uint64_t>());
  };
  const std::string kept = rows(INGERO_KEPT_STORE);
  EXPECT_EQ(rows(store_), kept);
  const Outcome again =
      RunIt({"store", "compact", INGERO_KEPT_STORE, "-o", dir_ / "b.store"});
  std::istringstream text(again.out);
  std::string words;
  for (std::string word; text >> word;) words += word + " ";
  EXPECT_NE(words.find(kept + " and " + kept + " rows"), std::string::npos)
      << kept << ": " << words;
}

// Whoever names an output gets one, or is told why not.
TEST_F(StoreCommand, WithNothingToDoAnOutputIsACopy) {
  const auto answer = [&](const std::string& store) {
    Json a = JsonOf({"explain", "--json", "--db", store});
    a.erase("store");
    a["trace"].erase("store");
    return a["findings"][0]["claim"].dump() + a["feeding"].dump() +
           a["trace"]["missing"].dump();
  };
  for (const Args& args :
       {Args{"store", "compact", store_, "-o", store_ + ".compact"},
        Args{"store", "prune", store_, "--keep", "100h", "-o",
             store_ + ".prune"}}) {
    const Outcome o = RunIt(args);
    EXPECT_EQ(o.status, kDone) << o.err;
    EXPECT_NE(o.out.find("Nothing to "), std::string::npos) << o.out;
    EXPECT_NE(o.out.find("is a copy of it"), std::string::npos) << o.out;
    EXPECT_EQ(RunIt({"store", "check", args.back()}).status, kDone);
    EXPECT_EQ(answer(args.back()), answer(store_));
  }
}

TEST_F(StoreCommand, EveryCommandThatReadsAStoreTakesDb) {
  for (const Args& args :
       {Args{"explain"}, Args{"stats"}, Args{"timeline", "--tid", "1"},
        Args{"query", "SELECT 1"}, Args{"dump", "--table", "facts"},
        Args{"report", "-o", dir_ / "r.html"},
        Args{"export", "--format", "folded", "-o", dir_ / "f"},
        Args{"share", "-o", dir_ / "shared"}, Args{"store", "info"},
        Args{"store", "check"},
        Args{"store", "compact", "-o", dir_ / "compact"},
        Args{"store", "prune", "--keep", "1s", "-o", dir_ / "prune"}}) {
    Args with = args;
    with.insert(with.end(), {"--db", store_});
    const Outcome o = RunIt(with);
    // What is wrong, if anything is, is not the option.
    EXPECT_NE(o.status, kUsage) << args[0] << ": " << o.err;
    EXPECT_EQ(o.err.find("--db"), std::string::npos)
        << args[0] << ": " << o.err;
    if (args[0] != "timeline") {
      EXPECT_EQ(o.status, kDone) << args[0] << ": " << o.err;
    }
  }
}

TEST_F(StoreCommand, InfoAddsUp) {
  const Json info = JsonOf({"store", "info", store_, "--json"});
  uint64_t bytes = info["other_bytes"].get<uint64_t>();
  std::map<std::string, uint64_t> rows;
  for (const Json& t : info["tables"]) {
    bytes += t["page_bytes"].get<uint64_t>();
    rows[t["name"].get<std::string>()] = t["rows"].get<uint64_t>();
  }
  EXPECT_EQ(bytes, std::filesystem::file_size(store_ + "/data.mdb"));
  EXPECT_EQ(rows["calls"], 21760u);
  EXPECT_EQ(rows["switches"], 49307u);
  EXPECT_EQ(info["events"].get<uint64_t>(), 87678u);
  const Outcome text = RunIt({"store", "info", store_});
  for (const char* word : {"Span", "123 s", "switches", "49,307", "Bytes/row"})
    EXPECT_NE(text.out.find(word), std::string::npos) << word << text.out;
}

// What is left says the same as the whole recording says of that time.
TEST_F(StoreCommand, APrunedStoreAnswersAsTheWholeOneDoesOfThatTime) {
  const std::string last = dir_ / "last.store";
  const Outcome pruned =
      RunIt({"store", "prune", store_, "--keep", "20s", "-o", last});
  ASSERT_EQ(pruned.status, kDone) << pruned.err;
  EXPECT_EQ(RunIt({"store", "check", last}).status, kDone);
  const Json info = JsonOf({"store", "info", last, "--json"});
  const auto begin = info["span"]["begin_ns"].get<int64_t>();
  const Json whole_info = JsonOf({"store", "info", store_, "--json"});
  EXPECT_EQ(info["span"]["end_ns"], whole_info["span"]["end_ns"]);
  EXPECT_EQ(begin % 1'000'000'000, 0);
  EXPECT_GE(info["span"]["end_ns"].get<int64_t>() - begin, 20'000'000'000);
  EXPECT_EQ(info["events"].get<uint64_t>() +
                info["pruned_events"].get<uint64_t>(),
            whole_info["events"].get<uint64_t>());
  EXPECT_NE(info["missing"].dump().find("pruned: this store keeps the last"),
            std::string::npos);

  const auto offset =
      begin - whole_info["span"]["begin_ns"].get<int64_t>();
  char from[32];
  snprintf(from, sizeof(from), "%.9fs", static_cast<double>(offset) / 1e9);
  Json a = JsonOf({"explain", "--json", "--db", store_, "--from", from});
  Json b = JsonOf({"explain", "--json", "--db", last});
  ASSERT_EQ(a["trace"]["window"]["begin_ns"].get<int64_t>(), begin);
  for (const char* part : {"verdict", "feeding", "accounts", "processes"})
    EXPECT_EQ(a[part], b[part]) << part;
  ASSERT_FALSE(a["findings"].empty());
  ASSERT_EQ(a["findings"].size(), b["findings"].size());
  for (size_t i = 0; i < a["findings"].size(); ++i)
    for (const char* part : {"id", "claim", "lost_ns", "lost_at_most_ns"})
      EXPECT_EQ(a["findings"][i][part], b["findings"][i][part]);
  const Json sa = JsonOf({"stats", "--json", "--db", store_, "--from", from});
  const Json sb = JsonOf({"stats", "--json", "--db", last});
  EXPECT_EQ(sa["operations"], sb["operations"]);
  const Args timeline = {"timeline", "--json", "--pid", "2912", "--db"};
  Args ta = timeline, tb = timeline;
  ta.insert(ta.end(), {store_, "--from", from});
  tb.push_back(last);
  EXPECT_EQ(JsonOf(ta)["states"], JsonOf(tb)["states"]);

  // Again, and longer than there is.
  const Outcome again = RunIt({"store", "prune", last, "--keep", "5s"});
  ASSERT_EQ(again.status, kDone) << again.err;
  const Json five = JsonOf({"store", "info", last, "--json"});
  EXPECT_EQ(five["events"].get<uint64_t>() +
                five["pruned_events"].get<uint64_t>(),
            whole_info["events"].get<uint64_t>());
  EXPECT_EQ(five["missing"].dump().find("pruned"),
            five["missing"].dump().rfind("pruned"));
  const Outcome all = RunIt({"store", "prune", last, "--keep", "1h"});
  EXPECT_EQ(all.status, kDone);
  EXPECT_NE(all.out.find("Nothing to drop"), std::string::npos) << all.out;
}

TEST(StorePrune, MergingAgainDoesNotBringBackWhatWasPruned) {
  TempDir dir;
  constexpr uint64_t kT0 = 100'000'000'000, kMs = 1'000'000;
  CudaStreamBuilder s(10, kT0);
  s.Name(1, "cudaStreamSynchronize", INGERO_LAYER_RUNTIME,
         INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
  for (uint64_t i = 0; i < 9000; ++i) s.Call(10, 1, kT0 + i * kMs, 500);
  s.Write(dir / "cuda-10-1.ingero");
  merge::MergeOptions options;
  options.dirs = {dir.path()};
  auto merged = merge::Merge(options);
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  const Outcome pruned =
      RunIt({"store", "prune", merged->store_path, "--keep", "2s"});
  ASSERT_EQ(pruned.status, kDone) << pruned.err;
  // The same streams: there is nothing to add.
  auto again = merge::Merge(options);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->added_events, 0u);
  EXPECT_LT(again->calls, 4000u);
  // More of them: said, and the store stays as it is.
  s.Call(10, 1, kT0 + 10'000 * kMs, 500);
  s.Write(dir / "cuda-10-1.ingero");
  again = merge::Merge(options);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.status().message().find("pruned"), std::string::npos);
  options.output = dir / "other.store";
  again = merge::Merge(options);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->calls, 9001u);
}

TEST_F(StoreCommand, UsageAndPlaces) {
  for (const Args& args :
       {Args{"store"}, Args{"store", "frob"}, Args{"store", "prune"},
        Args{"store", "prune", store_}, Args{"store", "compact"},
        Args{"store", "prune", store_, "--keep", "soon"},
        Args{"store", "prune", store_, "--keep", "0s"},
        Args{"store", "info", store_, "--keep", "1h"},
        Args{"store", "compact", store_, "--json"}}) {
    const Outcome o = RunIt(args);
    EXPECT_EQ(o.status, kUsage) << o.err;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
  // Another store is not overwritten.
  const Outcome o = RunIt(
      {"store", "prune", store_, "--keep", "5s", "-o", store_ + "/"});
  EXPECT_EQ(o.status, kFailed);
  EXPECT_NE(o.err.find("holds a store already"), std::string::npos) << o.err;
  // Nor is one that a merge holds.
  const std::string lock = store_ + "/merge.lock";
  EXPECT_TRUE(std::filesystem::exists(lock));
}

TEST_F(StoreCommand, CheckSaysWhereAndWhatIsStillWhole) {
  const std::string data = store_ + "/data.mdb";
  const std::string clean = ReadFile(data);
  auto file = merge::StoreFile::Open(data);
  ASSERT_TRUE(file.ok());
  // The shortest block of switches that is well inside of the recording.
  const auto switches = (*file)->Table(switch_table::kSchema.id);
  auto reader = merge::OpenTrace(store_);
  ASSERT_TRUE(reader.ok());
  constexpr int64_t kEdge = 8'000'000'000;
  const merge::BlockRef* hit = nullptr;
  for (const merge::BlockRef& ref : switches)
    if (ref.first_ns > (*reader)->span().begin.value + kEdge &&
        ref.last_ns < (*reader)->span().end.value - kEdge &&
        (hit == nullptr ||
         ref.last_ns - ref.first_ns < hit->last_ns - hit->first_ns))
      hit = &ref;
  ASSERT_NE(hit, nullptr);
  std::string bytes = clean;
  bytes[hit->offset + hit->bytes / 2] ^= 1;
  WriteFile(data, bytes);

  const Outcome text = RunIt({"store", "check", store_});
  EXPECT_EQ(text.status, kFailed);
  EXPECT_NE(text.out.find("damaged: switches"), std::string::npos) << text.out;
  EXPECT_EQ(std::count(text.err.begin(), text.err.end(), '\n'), 1);
  const Outcome json = RunIt({"store", "check", store_, "--json"});
  const Json check = Json::parse(json.out);
  EXPECT_EQ(check["damaged_blocks"].get<int>(), 1);
  EXPECT_EQ(check["damage"][0]["begin_ns"].get<int64_t>(), hit->first_ns);
  ASSERT_EQ(check["whole"].size(), 2u);
  // Whoever needs the block is told, once and in one line; the rest answers
  // as before.
  const Args count = {"query", "--db", store_, "--format", "csv",
                      "SELECT count(*) FROM switches"};
  const Outcome refused = RunIt(count);
  EXPECT_EQ(refused.status, kFailed);
  EXPECT_NE(refused.err.find("ingero store check"), std::string::npos);
  const int64_t origin = (*reader)->span().begin.value;
  for (const Json& whole : check["whole"]) {
    char from[32], to[32];
    snprintf(from, sizeof(from), "%.3fs",
             static_cast<double>(whole["begin_ns"].get<int64_t>() - origin) /
                 1e9);
    snprintf(to, sizeof(to), "%.3fs",
             static_cast<double>(whole["end_ns"].get<int64_t>() - origin) / 1e9 -
                 0.002);
    for (const Args& ask :
         {Args{"explain", "--json"}, Args{"timeline", "--json", "--pid", "2912"},
          Args{"stats", "--json"}}) {
      Args args = ask;
      args.insert(args.end(), {"--db", store_, "--from", from, "--to", to});
      const Outcome damaged = RunIt(args);
      EXPECT_EQ(damaged.status, kDone) << damaged.err;
      WriteFile(data, clean);
      EXPECT_EQ(RunIt(args).out, damaged.out);
      WriteFile(data, bytes);
    }
  }
  // Neither is rewritten over what is damaged.
  for (const char* action : {"compact", "prune"}) {
    Args args = {"store", action, store_, "-o", dir_ / "new.store"};
    if (std::string(action) == "prune")
      args.insert(args.end(), {"--keep", "100s"});
    const Outcome o = RunIt(args);
    if (o.status != kDone) {
      EXPECT_FALSE(std::filesystem::exists(dir_ / "new.store/data.mdb"));
      EXPECT_FALSE(std::filesystem::exists(dir_ / "new.store/data.mdb.new"));
    } else {
      EXPECT_NE(o.out.find("Nothing to gain"), std::string::npos);
    }
  }
}

// ---- ingero timeline ----------------------------------------------------------

TEST_F(StoreCommand, TimelineAddsUpAndAgreesWithTheSummaries) {
  // Whole seconds of CLOCK_MONOTONIC, for which there are summaries.
  auto reader = merge::OpenTrace(store_);
  ASSERT_TRUE(reader.ok());
  const int64_t origin = (*reader)->span().begin.value;
  const int64_t begin = (origin / 1'000'000'000 + 106) * 1'000'000'000;
  char from[32], to[32];
  snprintf(from, sizeof(from), "%.9fs",
           static_cast<double>(begin - origin) / 1e9);
  snprintf(to, sizeof(to), "%.9fs",
           static_cast<double>(begin - origin) / 1e9 + 5);
  const Json t = JsonOf({"timeline", "--db", store_, "--pid", "2912", "--from",
                         from, "--to", to, "--json"});
  ASSERT_EQ(t["window"]["begin_ns"].get<int64_t>(), begin);
  std::map<std::string, int64_t> sums;
  int64_t at = begin;
  size_t calls = 0, woken = 0, split = 0;
  for (const Json& e : t["events"]) {
    if (e["what"].get<std::string>() == "call") {
      ++calls;
      if (!e.contains("running_ns")) continue;
      ++split;
      EXPECT_EQ(e["running_ns"].get<int64_t>() + e["runnable_ns"].get<int64_t>() +
                    e["sleeping_ns"].get<int64_t>() +
                    e["io_ns"].get<int64_t>() + e["unknown_ns"].get<int64_t>(),
                e["duration_ns"].get<int64_t>());
      continue;
    }
    EXPECT_EQ(e["begin_ns"].get<int64_t>(), at);  // no gap, no overlap
    at += e["duration_ns"].get<int64_t>();
    sums[e["state"].get<std::string>()] += e["duration_ns"].get<int64_t>();
    if (e.contains("woken_by") && !e["woken_by"].is_null()) ++woken;
  }
  EXPECT_EQ(at, begin + 5'000'000'000);
  EXPECT_GT(calls, 100u);
  EXPECT_GT(woken, 100u);
  EXPECT_GT(split, 0u);
  for (const auto& [state, time] : t["states"].items())
    EXPECT_EQ(sums[state.substr(0, state.size() - 3)], time.get<int64_t>());
  const Outcome summary = RunIt(
      {"query", "--db", store_, "--format", "jsonl",
       "SELECT sum(running_ns) AS running, sum(runnable_ns) AS runnable, "
       "sum(sleeping_ns) AS sleeping FROM sched_seconds WHERE tid = 2912 AND "
       "t_ns >= " + std::to_string(begin) + " AND t_ns < " +
           std::to_string(begin + 5'000'000'000)});
  const Json of_seconds = Json::parse(summary.out);
  // Around a switch that was not seen a timeline says "not recorded".
  for (const char* state : {"running", "runnable", "sleeping"})
    EXPECT_NEAR(static_cast<double>(of_seconds[state].get<int64_t>()),
                static_cast<double>(sums[state]),
                static_cast<double>(sums["unknown"]))
        << state;
  EXPECT_LT(sums["unknown"], 100'000'000);
  const Outcome count = RunIt(
      {"query", "--db", store_, "--format", "csv",
       "SELECT count(*) FROM calls WHERE tid = 2912 AND begin_ns >= " +
           std::to_string(begin) + " AND begin_ns < " +
           std::to_string(begin + 5'000'000'000)});
  EXPECT_EQ(count.out, "count(*)\n" + std::to_string(calls) + "\n");
}

TEST_F(StoreCommand, TimelineFitsAnyTerminalAndSaysWhatIsLeftOut) {
  for (const int columns : {40, 60, 80, 200}) {
    char* out = nullptr;
    size_t size = 0;
    Io io;
    io.out = open_memstream(&out, &size);
    io.err = stderr;
    io.columns = columns;
    EXPECT_EQ(cli::Run({"timeline", "--db", store_, "--pid", "2912", "--from", "110s",
                   "--to", "112s"},
                  io),
              kDone);
    fclose(io.out);
    std::istringstream lines(std::string(out, size));
    size_t shown = 0;
    bool left_out = false;
    for (std::string line; std::getline(lines, line); ++shown) {
      EXPECT_LE(line.size(), static_cast<size_t>(columns)) << line;
      left_out |= line.find("more up to") != std::string::npos;
    }
    free(out);
    EXPECT_GT(shown, 100u);
    EXPECT_TRUE(left_out);
  }
  const Args all = {"timeline", "--db", store_, "--pid", "2912", "--from",
                    "110s", "--to", "112s", "--all"};
  const Outcome text = RunIt(all);
  EXPECT_EQ(text.out.find("more up to"), std::string::npos);
  for (const char* word : {"runs on CPU", "sleeps in", "woken by",
                           "cudaMemcpyAsync", "+110."})
    EXPECT_NE(text.out.find(word), std::string::npos) << word;
  // Which thread: each mistake is one line that says what there is.
  for (const Args& args :
       {Args{"--tid", "999999"}, Args{"--pid", "999999"}, Args{"--tid", "x"},
        Args{"--tid", "2912", "--pid", "2"}, Args{}}) {
    Args command = {"timeline", "--db", store_};
    command.insert(command.end(), args.begin(), args.end());
    const Outcome o = RunIt(command);
    EXPECT_NE(o.status, kDone);
    EXPECT_EQ(o.out, "");
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
  }
}

// ---- the table of steps --------------------------------------------------------

TEST(StepsTable, HasTheRangesThatAProgramMarksAgainAndAgain) {
  TempDir dir;
  constexpr uint64_t kT0 = 100'000'000'000, kMs = 1'000'000;
  CudaStreamBuilder s(10, kT0);
  s.Name(1, "cudaLaunchKernel", INGERO_LAYER_RUNTIME, INGERO_CLASS_LAUNCH,
         {INGERO_WORD_KERNEL, INGERO_WORD_STREAM});
  s.Name(2, "cudaDeviceSynchronize", INGERO_LAYER_RUNTIME,
         INGERO_CLASS_SYNC_DEVICE);
  const auto range = [&](uint32_t id, const std::string& name, uint64_t begin_ms,
                         uint64_t ms) {
    ingero_nvtx_name n;
    memset(&n, 0, sizeof(n));
    n.id = id;
    s.Raw(10, FrameRecord(INGERO_RECORD_NVTX_NAME, 0, n, name + '\0'));
    ingero_nvtx r;
    memset(&r, 0, sizeof(r));
    r.name = id;
    r.start_ticks = kT0 + begin_ms * kMs;
    r.duration_ticks = ms * kMs;
    s.Raw(10, FrameRecord(INGERO_RECORD_NVTX, INGERO_NVTX_NESTED, r));
  };
  for (uint64_t i = 0; i < 30; ++i) {
    for (uint64_t k = 0; k < 2; ++k) {
      CudaStreamBuilder::CallSpec launch;
      launch.start = kT0 + (i * 100 + 1) * kMs + k * 10'000;
      launch.duration = 5000;
      launch.words = {7, 0};
      s.Call(10, 1, launch);
    }
    s.Call(10, 2, kT0 + (i * 100 + 2) * kMs, 60 * kMs);
    range(static_cast<uint32_t>(20 + i), "step " + std::to_string(i + 7),
          i * 100, 90);
  }
  range(80, "setup", 1, 1);
  s.Write(dir / "cuda-10-1.ingero");
  merge::MergeOptions options;
  options.dirs = {dir.path()};
  auto merged = merge::Merge(options);
  ASSERT_TRUE(merged.ok()) << merged.status().message();
  const Outcome o = RunIt({"query", "--db", merged->store_path, "--format",
                           "jsonl",
                           "SELECT * FROM nvtx_steps ORDER BY begin_ns"});
  ASSERT_EQ(o.status, kDone) << o.err;
  std::istringstream lines(o.out);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json step = Json::parse(line);
    ++number;
    EXPECT_EQ(step["number"].get<int>(), number);
    EXPECT_EQ(step["name"].get<std::string>(), "step #");
    EXPECT_EQ(step["label"].get<std::string>(),
              "step " + std::to_string(number + 6));
    EXPECT_EQ(step["duration_ns"].get<uint64_t>(), 90 * kMs);
    const auto idle = step["gpu_idle_ns"].get<int64_t>(),
               busy = step["gpu_busy_ns"].get<int64_t>(),
               unknown = step["gpu_unknown_ns"].get<int64_t>();
    EXPECT_GE(idle, 0);
    EXPECT_GE(unknown, 0);
    EXPECT_GT(busy, 30 * int64_t{kMs});
    EXPECT_LE(idle + busy + unknown, 91 * int64_t{kMs});
  }
  EXPECT_EQ(number, 30);
  // Numbers go on where a window begins.
  const Outcome last =
      RunIt({"query", "--db", merged->store_path, "--format", "csv",
             "SELECT number FROM nvtx_steps WHERE begin_ns >= " +
                 std::to_string(kT0 + 2800 * kMs)});
  EXPECT_EQ(last.out, "number\n29\n30\n");
  // Found without the ranges: from one synchronisation to the next.
  const Outcome found =
      RunIt({"query", "--db", merged->store_path, "--format", "csv",
             "SELECT count(*), min(duration_ns), max(duration_ns), min(number), "
             "max(number), min(name) FROM steps"});
  EXPECT_EQ(found.out.substr(found.out.find('\n') + 1),
            "29,100000000,100000000,1,29,cudaDeviceSynchronize\n");
}

// ---- every reader, every bad store -------------------------------------------

class EveryReader : public ::testing::Test {
 protected:
  void SetUp() override {
    store_ = dir_ / "small.store";
    ASSERT_EQ(RunIt({"store", "prune", INGERO_KEPT_STORE, "--keep", "2s", "-o",
                     store_})
                  .status,
              kDone);
    data_ = store_ + "/data.mdb";
    clean_ = ReadFile(data_);
    for (const Args& args : Commands()) {
      expected_.push_back(RunIt(args));
      ASSERT_EQ(expected_.back().status, kDone) << expected_.back().err;
      Forget();
    }
  }
  std::vector<Args> Commands() const {
    const std::string calls = "SELECT count(*), sum(duration_ns), sum(bytes), "
                              "group_concat(DISTINCT name) FROM calls",
                      switches = "SELECT count(*), sum(t_ns), sum(prev_tid), "
                                 "sum(wait_ns), sum(prev_pages) FROM switches";
    return {{"explain", "--db", store_},
            {"explain", "--db", store_, "--json"},
            {"explain", "--db", store_, "--chains"},
            {"report", "--db", store_, "-o", "-"},
            {"export", "--db", store_, "--format", "folded", "-o", "-"},
            {"diff", INGERO_KEPT_STORE, store_},
            {"stats", "--db", store_, "--all"},
            {"stats", "--db", store_, "--coverage"},
            {"timeline", "--db", store_, "--pid", "2912", "--json"},
            {"query", "--db", store_, "--format", "csv", calls},
            {"query", "--db", store_, "--format", "csv", switches},
            {"query", "--db", store_, "--format", "jsonl",
             "SELECT * FROM findings"},
            {"dump", store_},
            {"store", "info", store_},
            {"store", "check", store_},
            {"store", "compact", store_, "-o", dir_ / "rewritten"},
            {"store", "prune", store_, "--keep", "1s", "-o",
             dir_ / "rewritten"}};
  }
  void Forget() { std::filesystem::remove_all(dir_ / "rewritten"); }

  // told: how many said something.
  void Try(const std::string& what, size_t* told) {
    const std::vector<Args> commands = Commands();
    for (size_t i = 0; i < commands.size(); ++i) {
      const Outcome o = RunIt(commands[i]);
      const std::string name = commands[i][0] + " " + commands[i][1];
      if (o.status == kDone) {
        EXPECT_EQ(o.out, expected_[i].out) << name << ": " << what;
        EXPECT_EQ(o.err, expected_[i].err) << name << ": " << what;
      } else {
        ++*told;
        EXPECT_EQ(o.status, kFailed) << name << ": " << what;
        EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1)
            << name << ": " << what << ": " << o.err;
        EXPECT_TRUE(o.err.starts_with("ingero ")) << o.err;
        EXPECT_NE(o.err.find(store_), std::string::npos) << name << o.err;
        // Those that answer at once say nothing that could be taken for one.
        if (commands[i][0] == "explain" || commands[i][0] == "stats" ||
            commands[i][0] == "diff" || commands[i][0] == "report" ||
            commands[i][0] == "export" || commands[i][0] == "timeline") {
          EXPECT_EQ(o.out, "") << name << ": " << what;
        }
        EXPECT_FALSE(std::filesystem::exists(dir_ / "rewritten/data.mdb"))
            << what;
      }
      Forget();
    }
  }
  size_t TryBytes(const std::string& bytes, const std::string& what) {
    WriteFile(data_, bytes);
    size_t told = 0;
    Try(what, &told);
    return told;
  }

  TempDir dir_;
  std::string store_, data_, clean_;
  std::vector<Outcome> expected_;
};

TEST_F(EveryReader, OfACutStore) {
  for (size_t i = 0; i < 20; ++i) {
    const size_t size = clean_.size() * i / 20;
    EXPECT_EQ(TryBytes(clean_.substr(0, size), "cut at " + std::to_string(size)),
              expected_.size());
  }
}

TEST_F(EveryReader, OfFlippedBytes) {
  std::mt19937 random(60);
  size_t told = 0;
  for (int i = 0; i < 200; ++i) {
    std::string bytes = clean_;
    // Every second one in what LMDB itself trusts: its pages' headers and
    // pointers, and the two meta pages.
    const size_t at =
        i % 2 == 0 ? random() % bytes.size()
        : i % 8 == 1
            ? random() % 2 * 4096 + random() % 152
            : random() % (bytes.size() / 4096) * 4096 + random() % 100;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 + random() % 255));
    told += TryBytes(bytes, "byte " + std::to_string(at));
    if (HasFailure()) return;
  }
  EXPECT_GT(told, 200u);
}

TEST_F(EveryReader, OfOtherThings) {
  EXPECT_EQ(TryBytes("", "empty"), expected_.size());
  EXPECT_EQ(TryBytes(std::string(50'000, 'x'), "text"), expected_.size());
  EXPECT_EQ(TryBytes(std::string(50'000, '\0'), "zeros"), expected_.size());

  // Another program's LMDB file.
  std::filesystem::remove(data_);
  MDB_env* env = nullptr;
  MDB_txn* txn = nullptr;
  MDB_dbi dbi = 0;
  ASSERT_EQ(mdb_env_create(&env), 0);
  ASSERT_EQ(mdb_env_open(env, data_.c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600),
            0);
  ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
  ASSERT_EQ(mdb_dbi_open(txn, nullptr, 0, &dbi), 0);
  for (int i = 0; i < 500; ++i) {
    std::string key = "user:" + std::to_string(i), value(100, 'v');
    MDB_val k{key.size(), key.data()}, v{value.size(), value.data()};
    ASSERT_EQ(mdb_put(txn, dbi, &k, &v, 0), 0);
  }
  ASSERT_EQ(mdb_txn_commit(txn), 0);
  mdb_env_close(env);
  size_t told = 0;
  Try("foreign", &told);
  EXPECT_EQ(told, expected_.size());

  // Keys of the right size, and nothing else of it.
  std::filesystem::remove(data_);
  ASSERT_EQ(mdb_env_create(&env), 0);
  ASSERT_EQ(mdb_env_open(env, data_.c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600),
            0);
  ASSERT_EQ(mdb_txn_begin(env, nullptr, 0, &txn), 0);
  ASSERT_EQ(mdb_dbi_open(txn, nullptr, 0, &dbi), 0);
  for (int i = 0; i < 50; ++i) {
    std::string key(26, static_cast<char>('a' + i)), value(100, 'v');
    MDB_val k{key.size(), key.data()}, v{value.size(), value.data()};
    ASSERT_EQ(mdb_put(txn, dbi, &k, &v, 0), 0);
  }
  ASSERT_EQ(mdb_txn_commit(txn), 0);
  mdb_env_close(env);
  told = 0;
  Try("foreign with 26 byte keys", &told);
  EXPECT_EQ(told, expected_.size());

  std::filesystem::remove(data_);
  std::filesystem::create_directory(data_);
  told = 0;
  Try("directory", &told);
  EXPECT_EQ(told, expected_.size());
  std::filesystem::remove(data_);
  ASSERT_EQ(mkfifo(data_.c_str(), 0600), 0);
  told = 0;
  Try("pipe", &told);
  EXPECT_EQ(told, expected_.size());
  std::filesystem::remove(data_);
  told = 0;
  Try("nothing", &told);
  EXPECT_EQ(told, expected_.size());
}

}  // namespace
}  // namespace ingero::cli
