// SPDX-License-Identifier: Apache-2.0
// What a shell sees: exit status, what goes to stdout and what to stderr.
#include "cli/command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/stream_builder.h"

namespace ingero::cli {
namespace {

struct Outcome {
  int status;
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

class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/ingero_cli_test.XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    setenv("INGERO_DIR", name, 1);
    setenv("INGERO_DIR_ONLY", "1", 1);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  void ExpectOneLine(const Outcome& o, const Args& args) {
    std::string shown;
    for (const std::string& a : args) shown += a + " ";
    EXPECT_EQ(o.out, "") << shown;
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1)
        << shown << o.err;
    EXPECT_TRUE(o.err.starts_with("ingero")) << o.err;
  }

  std::string dir_;
};

TEST_F(CommandTest, AloneAndHelpPrintTheOverview) {
  for (const Args& args : {Args{}, Args{"help"}, Args{"--help"}, Args{"-h"},
                           Args{"help", "help"}}) {
    Outcome o = RunIt(args);
    EXPECT_EQ(o.status, kDone);
    EXPECT_EQ(o.err, "");
    for (const Command& c : Commands())
      EXPECT_NE(o.out.find(std::string("\n  ") + c.name), std::string::npos);
  }
}

TEST_F(CommandTest, EveryCommandHasHelpWithItsName) {
  for (const Command& c : Commands()) {
    for (const Args& args : {Args{c.name, "--help"}, Args{"help", c.name}}) {
      Outcome o = RunIt(args);
      EXPECT_EQ(o.status, kDone) << c.name;
      EXPECT_EQ(o.err, "") << c.name;
      EXPECT_NE(o.out.find("Usage: ingero"), std::string::npos) << o.out;
    }
  }
  // Narrower than any terminal, since CLI11 does not wrap.
  for (const Command& c : Commands()) {
    std::istringstream lines(RunIt({c.name, "--help"}).out);
    for (std::string line; std::getline(lines, line);)
      EXPECT_LE(line.size(), 80u) << line;
  }
  for (const char* name : {"merge", "explain", "stats", "list", "dump"})
    EXPECT_NE(RunIt({name, "--help"}).out.find("Examples:"), std::string::npos);
}

TEST_F(CommandTest, Version) {
  for (const Args& args : {Args{"--version"}, Args{"-V"}, Args{"version"}}) {
    Outcome o = RunIt(args);
    EXPECT_EQ(o.status, kDone);
    EXPECT_EQ(o.out, "ingero " INGERO_VERSION "\n");
  }
}

// A store that is none: one line, what and where, and what to do.
TEST_F(CommandTest, BadStoresAreOneLineThatSaysWhatToDo) {
  const std::string foreign = dir_ + "/notes.txt";
  const std::string empty_folder = dir_ + "/run.store";
  const std::string stream = dir_ + "/cuda-1-1.ingero";
  std::ofstream(foreign) << "nothing of ours, but long enough for a header\n";
  std::filesystem::create_directory(empty_folder);
  ingero::testing::CudaStreamBuilder cuda(10, 1'000'000'000);
  cuda.Name(1, "cudaFree", INGERO_LAYER_RUNTIME, INGERO_CLASS_FREE);
  cuda.Call(10, 1, 1'000'000'000, 1'000);
  cuda.Write(stream);
  struct {
    std::string path;
    const char* says;
    const char* todo;
  } const stores[] = {{"/nope", "No such file", "ingero list"},
                      {foreign, "not an ingero store", "ingero list"},
                      {empty_folder, "no data.mdb", "ingero list"},
                      {stream, "a stream", "ingero merge"}};
  for (const auto& store : stores) {
    const Args commands[] = {{"explain", "--db", store.path},
                             {"stats", "--db", store.path},
                             {"stats", "--coverage", "--db", store.path},
                             {"timeline", "--db", store.path, "--pid", "1"},
                             {"query", "--db", store.path, "SELECT 1"},
                             {"diff", store.path, "/nope"},
                             {"store", "info", store.path},
                             {"store", "check", store.path}};
    for (const Args& args : commands) {
      const Outcome o = RunIt(args);
      EXPECT_EQ(o.status, kFailed) << args[0];
      ExpectOneLine(o, args);
      for (const std::string& part :
           {"ingero " + args[0] + ": ", store.path, std::string(store.says),
            std::string(store.todo)})
        EXPECT_NE(o.err.find(part), std::string::npos)
            << args[0] << " " << store.path << ": " << o.err;
    }
  }
}

struct UsageCase {
  Args args;
  const char* says[2];  // what is wrong; what to do
};

TEST_F(CommandTest, WrongUsageIsOneLineThatNamesTheRemedy) {
  const UsageCase cases[] = {
      {{"explian"}, {"'explian'", "'ingero explain'"}},
      {{"merg"}, {"'merg'", "'ingero merge'"}},
      {{"frobnicate"}, {"'frobnicate'", "ingero help"}},
      {{"--db", "x"}, {"--db", "after the command"}},
      {{"help", "explian"}, {"'explian'", "'ingero explain'"}},
      {{"help", "merge", "list"}, {"one command", "ingero help explain"}},
      {{"version", "x"}, {"'x'", "--help"}},
      {{"explain", "--snice", "60s"}, {"--snice", "--since"}},
      {{"explain", "--frobnicate"}, {"--frobnicate", "--help"}},
      {{"explain", "store"}, {"'store'", "--help"}},
      {{"stats", "--coverge"}, {"--coverge", "--coverage"}},
      {{"stats", "--pid", "x"}, {"--pid", "'x'"}},
      {{"stats", "--since", "60"}, {"--since", "60s"}},
      {{"explain", "--db"}, {"--db", "needs a value"}},
      {{"explain", "--db="}, {"--db", "needs a value"}},
      {{"explain", "--since", ""}, {"--since", "needs a value"}},
      {{"explain", "--since"}, {"--since", "needs a value"}},
      {{"explain", "--since", "60"}, {"--since", "60s"}},
      {{"explain", "--since", "-5s"}, {"--since", "60s"}},
      {{"explain", "--since", "0s"}, {"--since", "60s"}},
      {{"explain", "--since", "1s", "--since", "2s"}, {"--since", "once"}},
      {{"explain", "--since", "5m", "--from", "1s"}, {"--since", "--from"}},
      {{"explain", "--since", "5m", "--to", "1s"}, {"--since", "--to"}},
      {{"explain", "--from", "noon"}, {"--from", "12.5s"}},
      {{"explain", "--from", "-3s"}, {"--from", "--since"}},
      {{"explain", "--to", "25:00"}, {"--to", "22:01:30"}},
      {{"explain", "--from", "20s", "--to", "10s"}, {"--to", "swap"}},
      {{"explain", "--pid", "abc"}, {"--pid", "4242"}},
      {{"explain", "--pid", "-1"}, {"--pid", "4242"}},
      {{"explain", "--pid", "0"}, {"--pid", "4242"}},
      {{"explain", "--pid", "99999999999"}, {"--pid", "4242"}},
      {{"explain", "--color", "blue"}, {"--color", "auto"}},
      {{"explain", "--format", "yaml"}, {"--format", "markdown"}},
      {{"explain", "--format", "markdown", "--per-process"},
       {"--per-process", "--format text"}},
      {{"explain", "--chains", "--per-process"}, {"--per-process", "--help"}},
      {{"overhead"}, {"command", "ingero overhead -- "}},
      {{"overhead", "--"}, {"command", "ingero overhead -- "}},
      {{"overhead", "true"}, {"command", "ingero overhead -- "}},
      {{"overhead", "--rounds", "0", "--", "true"}, {"--rounds", "--help"}},
      {{"diff"}, {"A", "--help"}},
      {{"diff", "a"}, {"B", "--help"}},
      {{"diff", "a", "b", "--fail-on", "slow"}, {"'slow'", "loader-cpu-bound"}},
      {{"diff", "a", "b", "--fail-on", "slower:10,,starved"},
       {"'slower:10,,starved'", "empty"}},
      {{"diff", "a", "b", "--fail-on=slower,"}, {"'slower,'", "empty"}},
      {{"diff", "a", "b", "--fail-on", "slower:x"}, {"'slower:x'", "PERCENT"}},
      {{"diff", "a", "b", "--color", "blue"}, {"--color", "auto"}},
      {{"merge", "--dri", "x"}, {"--dri", "--dir"}},
      {{"merge", "x"}, {"'x'", "--help"}},
      {{"merge", "-o"}, {"-o", "needs a value"}},
      {{"merge", "--recording", ""}, {"--recording", "needs a value"}},
      {{"list", "--all"}, {"--all", "--help"}},
      {{"dump"}, {"store", "ingero list"}},
      {{"dump", "a", "b"}, {"'b'", "--help"}},
      {{"dump", "a", "--format", "xml"}, {"--format", "jsonl"}},
      {{"dump", "a", "--from", "x"}, {"--from", "12.5s"}},
  };
  for (const UsageCase& c : cases) {
    Outcome o = RunIt(c.args);
    ExpectOneLine(o, c.args);
    EXPECT_EQ(o.status, kUsage) << o.err;
    for (const char* part : c.says)
      EXPECT_NE(o.err.find(part), std::string::npos) << part << ": " << o.err;
  }
}

TEST_F(CommandTest, NothingToWorkOnIsOneLineAndStatusOne) {
  // Beside INGERO_DIR the user's own recordings would be looked at.
  for (const char* name : {"INGERO_DIR", "XDG_STATE_HOME", "SUDO_UID"})
    unsetenv(name);
  setenv("HOME", dir_.c_str(), 1);
  for (const Args& args :
       {Args{"merge"}, Args{"merge", "--dir", dir_}, Args{"list"},
        Args{"list", "--dir", dir_}, Args{"stats"}, Args{"report", "-o", "-"},
        Args{"query", "SELECT 1"}, Args{"timeline", "--pid", "1"},
        Args{"export", "--format", "csv", "-o", dir_ + "/csv"},
        Args{"export", "--format", "folded", "-o", "-"},
        Args{"store", "info"}, Args{"store", "check"},
        Args{"overhead", "--", "/does/not/exist"}, Args{"dump", dir_},
        Args{"merge", "--dir", "/does/not/exist"},
        Args{"list", "--dir", dir_, "--dir", "/does/not/exist"},
        Args{"merge", "--dir", "/dev/null"}, Args{"explain"},
        Args{"explain", "--db", "/does/not/exist", "--json"},
        Args{"explain", "--db", dir_}, Args{"dump", "/does/not/exist"},
        Args{"diff", "/does/not/exist", dir_},
        Args{"dump", "/does/not/exist", "--from", "1s"}}) {
    Outcome o = RunIt(args);
    ExpectOneLine(o, args);
    EXPECT_EQ(o.status, kFailed) << o.err;
  }
}

TEST_F(CommandTest, AFolderThatIsNotThereIsNamed) {
  for (const char* command : {"merge", "list"}) {
    EXPECT_NE(RunIt({command, "--dir", "/does/not/exist"})
                  .err.find("/does/not/exist: there is no such folder"),
              std::string::npos);
    EXPECT_NE(
        RunIt({command, "--dir", "/dev/null"}).err.find("/dev/null: is no"),
        std::string::npos);
  }
}

// A notice does not make the data incomplete, a loss and a missing side do: for
// both commands alike.
TEST_F(CommandTest, StrictFailsOnLossesAndNotOnNotices) {
  constexpr int64_t kT0 = 100'000'000'000;
  const struct {
    uint32_t loss;
    bool with_kernel;
    int status;
  } cases[] = {{0, true, kDone},
               {INGERO_LOSS_UNRESOLVED, true, kDone},
               {INGERO_LOSS_SWITCH_UNSEEN, true, kDone},
               {INGERO_LOSS_WRITE_FAILED, true, kIncomplete},
               {INGERO_LOSS_SWITCH_RING_FULL, true, kIncomplete},
               {0, false, kIncomplete}};
  int at = 0;
  for (const auto& c : cases) {
    const std::string dir = dir_ + "/" + std::to_string(at++);
    std::filesystem::create_directory(dir);
    ingero::testing::CudaStreamBuilder cuda(10, kT0);
    cuda.Name(1, "cudaDeviceSynchronize", INGERO_LAYER_RUNTIME,
              INGERO_CLASS_SYNC_DEVICE);
    cuda.Call(10, 1, kT0, 1'000'000);
    const bool of_kernel = c.loss >= INGERO_LOSS_SWITCH_RING_FULL;
    if (c.loss != 0 && !of_kernel)
      cuda.Loss(10, c.loss, 3, kT0, kT0 + 1000);
    cuda.Write(dir + "/cuda-10-1.ingero");
    if (c.with_kernel) {
      ingero::testing::KernelStreamBuilder kernel(kT0);
      kernel.Task({.t = kT0, .tid = 10, .tgid = 10, .start_ns = 5,
                   .text = "python3"});
      kernel.Switch(0, {.t = kT0, .next_tid = 10, .next_tgid = 10});
      kernel.Switch(0, {.t = kT0 + 1'000'000, .prev_tid = 10, .prev_tgid = 10});
      if (of_kernel) kernel.Loss(0, kT0, kT0 + 1000, c.loss, 3);
      kernel.Write(dir + "/kernel-1-1.ingero");
    }
    const Outcome merged = RunIt({"merge", "--strict", "--dir", dir});
    EXPECT_EQ(merged.status, c.status) << at << merged.err;
    const std::string id = [&] {
      for (const auto& e : std::filesystem::directory_iterator(dir))
        if (e.path().extension() == ".store") return e.path().string();
      return std::string();
    }();
    const Outcome explained = RunIt({"explain", "--strict", "--db", id});
    EXPECT_EQ(explained.status, c.status) << at << explained.err;
  }
}

// A step is a launch, another and a synchronisation; between steps the host
// does something else.
std::string StoreOfSteps(const std::string& dir, int64_t between_ns) {
  std::filesystem::create_directory(dir);
  int64_t t = 100'000'000'000;
  ingero::testing::CudaStreamBuilder cuda(10, t);
  cuda.Name(1, "cudaStreamSynchronize", INGERO_LAYER_RUNTIME,
            INGERO_CLASS_SYNC_STREAM, {INGERO_WORD_STREAM});
  cuda.Name(2, "cudaLaunchKernel", INGERO_LAYER_RUNTIME, INGERO_CLASS_LAUNCH,
            {INGERO_WORD_STREAM, INGERO_WORD_KERNEL});
  for (int i = 0; i < 200; ++i) {
    for (int k = 0; k < 2; ++k, t += 10'000) {
      ingero::testing::CudaStreamBuilder::CallSpec launch;
      launch.start = static_cast<uint64_t>(t);
      launch.duration = 5'000;
      launch.words = {0x5, 0x77};
      cuda.Call(10, 2, launch);
    }
    ingero::testing::CudaStreamBuilder::CallSpec sync;
    sync.start = static_cast<uint64_t>(t);
    sync.duration = 1'000'000;
    sync.words = {0x5};
    cuda.Call(10, 1, sync);
    t += 1'000'000 + between_ns;
  }
  cuda.Write(dir + "/cuda-10-1.ingero");
  const std::string store = dir + ".store";
  EXPECT_EQ(RunIt({"merge", "--dir", dir, "-o", store}).status, kDone);
  return store;
}

TEST_F(CommandTest, DiffSaysWhatIsWorseByItsStatus) {
  const std::string a = StoreOfSteps(dir_ + "/a", 500'000),
                    b = StoreOfSteps(dir_ + "/b", 900'000);
  const Outcome same = RunIt({"diff", a, a, "--fail-on", "slower:0,starved:0"});
  EXPECT_EQ(same.status, kDone) << same.err;
  EXPECT_NE(same.out.find("No significant difference"), std::string::npos)
      << same.out;
  const Outcome worse = RunIt({"diff", a, b, "--fail-on", "slower:20"});
  EXPECT_EQ(worse.status, kWorse) << worse.err;
  EXPECT_NE(worse.out.find("B is slower"), std::string::npos) << worse.out;
  EXPECT_EQ(RunIt({"diff", a, b, "--fail-on", "slower:50"}).status, kDone);
  EXPECT_EQ(RunIt({"diff", b, a, "--fail-on", "slower"}).status, kDone);
  EXPECT_EQ(RunIt({"diff", a, b}).status, kDone);
  EXPECT_EQ(RunIt({"diff", a, b, "--strict"}).status, kIncomplete);
}

TEST_F(CommandTest, MergeOfNothingSaysHowToRecord) {
  Outcome o = RunIt({"merge", "--dir", dir_});
  EXPECT_NE(o.err.find(dir_), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("LD_PRELOAD=libingero_cuda.so"), std::string::npos);
}


// What is typed may come from a script that pastes what a program named.
TEST_F(CommandTest, ErrorsDoNotRepeatControlCharacters) {
  for (const Args& args : {Args{"\x1b[2J\nx"}, Args{"explain", "--\x1b[2J"},
                           Args{"explain", "--db", "/no\x1b[31m\nwhere"},
                           Args{"explain", std::string(100'000, 'x')}}) {
    Outcome o = RunIt(args);
    ExpectOneLine(o, {"..."});
    EXPECT_NE(o.status, kDone);
    EXPECT_EQ(o.err.find('\x1b'), std::string::npos);
    EXPECT_LT(o.err.size(), 5'000u);
  }
}

// What would be wrong with any store is wrong usage; it takes one to find out.
TEST_F(CommandTest, WrongQuestionsAreWrongUsage) {
  const std::string store = StoreOfSteps(dir_ + "/a", 500'000);
  for (const Args& args :
       {Args{"query", "--db", store, "SELEC 1"},
        Args{"query", "--db", store, "SELECT nope FROM calls"},
        Args{"query", "--db", store, "DELETE FROM calls"},
        Args{"query", "--db", store, "SELECT 1; SELECT 2"},
        Args{"query", "--db", store, "--schema", "nope"},
        Args{"export", "--db", store, "--format", "csv", "--tables", "nope",
             "-o", dir_ + "/csv"},
        Args{"export", "--db", store, "--tables", "calls,nope", "-o",
             dir_ + "/lake"},
        Args{"dump", store, "--table", "nope"}}) {
    const Outcome o = RunIt(args);
    ExpectOneLine(o, args);
    EXPECT_EQ(o.status, kUsage) << o.err;
  }
  // What SQL finds out only from the rows is none.
  const Outcome o =
      RunIt({"query", "--db", store, "SELECT abs(-9223372036854775808)"});
  EXPECT_EQ(o.status, kFailed) << o.err;
}

TEST_F(CommandTest, WhatMayNotBeReadIsNotCalledMissing) {
  const std::string locked = dir_ + "/locked", store = locked + "/x.store";
  std::filesystem::create_directories(store);
  std::filesystem::permissions(dir_, std::filesystem::perms::all);
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  constexpr uid_t kNobody = 65534;
  const uid_t before = geteuid();
  ASSERT_EQ(before == 0 ? seteuid(kNobody) : 0, 0);
  for (const Args& args :
       {Args{"explain", "--db", store}, Args{"stats", "--db", store},
        Args{"query", "--db", store, "SELECT 1"}, Args{"dump", store},
        Args{"report", "--db", store, "-o", "-"},
        Args{"timeline", "--db", store, "--pid", "1"},
        Args{"store", "info", store}, Args{"store", "check", store},
        Args{"diff", store, store}, Args{"merge", "--dir", locked},
        Args{"list", "--dir", locked}}) {
    const Outcome o = RunIt(args);
    EXPECT_EQ(o.status, kFailed) << args[0];
    ExpectOneLine(o, args);
    EXPECT_NE(o.err.find("Permission denied"), std::string::npos) << o.err;
    EXPECT_NE(o.err.find("or with sudo"), std::string::npos) << o.err;
    EXPECT_EQ(o.err.find("ingero list`"), std::string::npos) << o.err;
  }
  ASSERT_EQ(before == 0 ? seteuid(before) : 0, 0);
  std::filesystem::permissions(locked, std::filesystem::perms::owner_all);
}

// Every command that writes a file or a folder: one line with the path, why not
// and what to do, and nothing is left behind or changed.
TEST_F(CommandTest, WhatCannotBeWrittenIsSaidWithWhatToDo) {
  const std::string store = StoreOfSteps(dir_ + "/a", 500'000);
  const std::string file = dir_ + "/notes.txt", foreign = dir_ + "/foreign";
  std::ofstream(file) << "mine\n";
  std::filesystem::create_directory(foreign);
  std::ofstream(foreign + "/data.mdb") << "mine\n";
  std::ofstream(foreign + "/calls.csv") << "my,own,table\n";
  std::filesystem::create_directory(dir_ + "/other");
  std::ofstream(dir_ + "/other/calls.csv") << "my,own,table\n";
  const Args to_file[] = {
      {"report", "--db", store, "-o"},
      {"export", "--db", store, "--format", "folded", "-o"},
      {"export", "--db", store, "--format", "chrome", "-o"},
      {"export", "--db", store, "--format", "perfetto", "-o"}};
  const Args to_store[] = {{"merge", "--dir", dir_ + "/a", "-o"},
                           {"import", file, "-o"},
                           {"store", "compact", store, "-o"},
                           {"store", "prune", store, "--keep", "1ms", "-o"}};
  const Args to_csv = {"export", "--db", store, "--format", "csv", "-o"};
  struct Case {
    Args args;
    std::string output, says;
  };
  std::vector<Case> cases;
  const auto both = [&](const Args& args) {
    cases.push_back({args, dir_ + "/no/x", "make its folder first"});
    cases.push_back({args, file + "/x", "is a file, not a folder"});
  };
  for (const Args& args : to_file) {
    both(args);
    cases.push_back({args, dir_, "name a file in it"});
  }
  for (const Args& args : to_store) {
    both(args);
    cases.push_back({args, file, "name another output"});
    cases.push_back({args, foreign, "name another output"});
  }
  both(to_csv);
  cases.push_back({to_csv, file, "is a file, not a folder"});
  cases.push_back({to_csv, foreign, "name a new folder"});
  cases.push_back({to_csv, dir_ + "/other", "name a new folder"});
  for (const Case& c : cases) {
    Args args = c.args;
    args.push_back(c.output);
    const Outcome o = RunIt(args);
    EXPECT_EQ(o.status, kFailed) << args[0] << " " << c.output;
    ExpectOneLine(o, args);
    EXPECT_NE(o.err.find(c.output), std::string::npos) << o.err;
    EXPECT_NE(o.err.find(c.says), std::string::npos) << args[0] << o.err;
  }
  const auto text = [](const std::string& path) {
    std::stringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  };
  EXPECT_EQ(text(file), "mine\n");
  EXPECT_EQ(text(foreign + "/data.mdb"), "mine\n");
  EXPECT_EQ(text(foreign + "/calls.csv"), "my,own,table\n");
  EXPECT_EQ(text(dir_ + "/other/calls.csv"), "my,own,table\n");
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/no"));
}

// A file that was written is named on stderr, unless that is not wanted.
TEST_F(CommandTest, WhatWasWrittenIsSaidOnce) {
  const std::string store = StoreOfSteps(dir_ + "/a", 500'000);
  for (const Args& args :
       {Args{"report", "--db", store, "-o", dir_ + "/r.html"},
        Args{"export", "--db", store, "--format", "folded", "-o", dir_ + "/f"},
        Args{"export", "--db", store, "--format", "chrome", "-o", dir_ + "/c"},
        Args{"export", "--db", store, "--format", "csv", "-o", dir_ + "/t"},
        // Again into the same folder: it holds nothing but that.
        Args{"export", "--db", store, "--format", "csv", "--tables", "calls",
             "-o", dir_ + "/t"}}) {
    const Outcome o = RunIt(args);
    EXPECT_EQ(o.status, kDone) << o.err;
    ExpectOneLine(o, args);
    EXPECT_NE(o.err.find("wrote " + args.back() + " ("), std::string::npos)
        << o.err;
    Args quiet = args;
    quiet.push_back("--quiet");
    EXPECT_EQ(RunIt(quiet).err, "");
  }
}

// A full disk behind a pipe or redirection is a failure, not a short answer.
TEST_F(CommandTest, OutputThatCannotBeWrittenIsAFailure) {
  Io io;
  char* err = nullptr;
  size_t err_size = 0;
  io.out = fopen("/dev/full", "w");
  if (io.out == nullptr) GTEST_SKIP() << "no /dev/full here";
  io.err = open_memstream(&err, &err_size);
  EXPECT_EQ(cli::Run({"help"}, io), kFailed);
  fclose(io.out);
  fclose(io.err);
  EXPECT_NE(std::string(err, err_size).find("cannot write"), std::string::npos);
  free(err);
}

}  // namespace
}  // namespace ingero::cli
