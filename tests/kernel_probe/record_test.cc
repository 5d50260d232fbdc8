// SPDX-License-Identifier: Apache-2.0
// The companion as a whole, with real programs on this kernel: start and end,
// no loss uncounted (CASES 25), every birth and end (CASES 28), namespaces
// (CASES 33), survival of a kill.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "bpf/probe_state.h"
#include "tests/kernel_probe/companion.h"

namespace ingero::test {
namespace {

using R = StreamRow;

class RecordTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = WhyNoCompanion(); !why.empty())
      GTEST_SKIP() << why;
  }
  // Ends the companion and reads its stream.
  void Finish() {
    EXPECT_EQ(companion_.End(SIGINT), 0) << companion_.said();
    Read();
  }
  void Read() {
    auto stream = companion_.Stream();
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    stream_ = std::move(*stream);
  }
  const std::vector<R>& switches() {
    return stream_.rows(switch_table::kSchema);
  }
  const std::vector<R>& tasks() { return stream_.rows(task_table::kSchema); }
  const std::vector<R>& samples() {
    return stream_.rows(sample_table::kSchema);
  }
  const std::vector<R>& losses() { return stream_.rows(loss_table::kSchema); }
  std::vector<const R*> Events(uint64_t event, uint64_t tid) {
    std::vector<const R*> found;
    for (const R& r : tasks())
      if (r[task_table::kEvent] == event && r[task_table::kTid] == tid)
        found.push_back(&r);
    return found;
  }
  uint64_t LostEvents() {
    uint64_t lost = 0;
    for (const R& r : losses()) lost += r[loss_table::kCountLost];
    return lost;
  }
  // Whether the kernel showed BPF every switch of a thread. Some VMs hide those
  // to and from certain tasks; merge tells them as switch-unseen, and what the
  // thread took just before is not known.
  bool AllShown(pid_t tid) {
    std::map<uint32_t, uint64_t> runs;  // by CPU
    const auto id = static_cast<uint64_t>(tid);
    for (const R& r : switches()) {
      const auto before = runs.find(r.owner);
      const uint64_t prev = r[switch_table::kPrevTid];
      if (before != runs.end() && before->second != prev &&
          (before->second == id || prev == id)) {
        std::printf("a switch of %d was not shown to BPF: no lower bound\n",
                    tid);
        return false;
      }
      runs[r.owner] = r[switch_table::kNextTid];
    }
    return true;
  }
  // By CPU: the last count of switches that the kernel program saw.
  std::map<uint64_t, uint64_t> SwitchesSeen() {
    std::map<uint64_t, uint64_t> seen;
    for (const R& r : samples())
      if (r[sample_table::kMetric] ==
          static_cast<uint64_t>(Metric::kSwitchesSeen))
        seen[r[sample_table::kInstance]] = r[sample_table::kValue];
    return seen;
  }

  Companion companion_;
  StreamFile stream_;
};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Two processes hand a byte to and fro on one CPU, until killed.
pid_t PingPong(int cpu) {
  return Fork([cpu] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    PinToCpu(cpu);
    int there[2], back[2];
    if (pipe(there) != 0 || pipe(back) != 0) return 1;
    char c = 0;
    const pid_t other = fork();
    if (other == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (read(there[0], &c, 1) == 1 && write(back[1], &c, 1) == 1) continue;
      _exit(0);
    }
    while (write(there[1], &c, 1) == 1 && read(back[0], &c, 1) == 1) continue;
    return 0;
  });
}

TEST_F(RecordTest, StartsAndEndsCleanly) {
  ASSERT_TRUE(companion_.Start()) << companion_.said();
  usleep(1'200'000);
  const uint64_t begin = NowNs();
  Finish();
  std::printf("start %.2f s, end %.2f s\n", companion_.start_seconds(),
              static_cast<double>(NowNs() - begin) / 1e9);
  const std::string said = companion_.said();
  for (const char* probe :
       {"task_newtask", "sched_process_exec", "sched_process_exit",
        "sched_waking", "sched_switch", "mm_page_alloc"})
    EXPECT_TRUE(Contains(said, std::string("probe ") + probe + ": attached"))
        << said;
  EXPECT_TRUE(Contains(said, "\nrecording\n")) << said;
  EXPECT_TRUE(Contains(said, companion_.StreamPath())) << said;
  EXPECT_EQ(stream_.header.magic, INGERO_MAGIC_KERNEL);
  EXPECT_STREQ(stream_.header.comm, "ingero-kprobe");
  EXPECT_EQ(stream_.torn_bytes, 0u);
  EXPECT_GT(switches().size(), 10u);
}

TEST_F(RecordTest, EndsAfterItsDuration) {
  const uint64_t begin = NowNs();
  ASSERT_TRUE(companion_.Start({"--duration", "1s"}));
  EXPECT_EQ(companion_.End(0), 0);
  const double seconds = static_cast<double>(NowNs() - begin) / 1e9;
  EXPECT_GE(seconds, 1.0);  // how much more, says how busy the machine is
  Read();
  // Knots every 100 ms, each a narrow window and both clocks going forward.
  const auto& knots = stream_.rows(knot_table::kSchema);
  ASSERT_GE(knots.size(), 8u);
  for (size_t i = 1; i < knots.size(); ++i) {
    EXPECT_GT(knots[i][knot_table::kT], knots[i - 1][knot_table::kT]);
    EXPECT_GT(knots[i][knot_table::kTsc], knots[i - 1][knot_table::kTsc]);
  }
  std::set<uint64_t> metrics;
  for (const R& r : samples()) metrics.insert(r[sample_table::kMetric]);
  for (Metric m : {Metric::kCpuOnline, Metric::kCpuBusyNs,
                   Metric::kContextSwitches, Metric::kLoad1,
                   Metric::kMemAvailableBytes, Metric::kPageCostNs,
                   Metric::kOwnCpuNs, Metric::kSwitchesSeen})
    EXPECT_TRUE(metrics.contains(static_cast<uint64_t>(m)))
        << static_cast<int>(m);
}

TEST_F(RecordTest, FilesBelongToTheFoldersOwnerAndPrivilegesAreDropped) {
  const std::string trace = companion_.dir() + "/trace";
  ASSERT_EQ(mkdir(trace.c_str(), 0700), 0);
  ASSERT_EQ(chown(trace.c_str(), 65534, 65534), 0);
  ASSERT_EQ(chmod(companion_.dir().c_str(), 0755), 0);
  ASSERT_TRUE(companion_.Start());
  usleep(200'000);
  struct stat st;
  ASSERT_EQ(stat(companion_.StreamPath().c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 65534u);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  // Of each thread: at most CAP_SYS_PTRACE (19) and CAP_BPF (39).
  const std::string own = "/proc/" + std::to_string(companion_.pid());
  size_t threads = 0;
  for (const auto& task : std::filesystem::directory_iterator(own + "/task")) {
    auto status = ReadWholeFile(task.path().string() + "/status");
    ASSERT_TRUE(status.ok());
    const size_t at = status->find("CapEff:\t");
    ASSERT_NE(at, std::string::npos);
    const uint64_t effective = std::stoull(status->substr(at + 8), nullptr, 16);
    EXPECT_EQ(effective & ~(uint64_t{1} << 19 | uint64_t{1} << 39), 0u);
    EXPECT_TRUE(Contains(*status, "Name:\tingero-kprobe\n"));
    ++threads;
  }
  EXPECT_GE(threads, 3u);
  Finish();
}

// ---- failures -----------------------------------------------------------

TEST_F(RecordTest, NobodyGetsOneTrueLine) {
  // A copy: nobody cannot reach a checkout in root's home.
  char folder[] = "/tmp/ingero-kprobe-copy-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string kprobe = KprobePath(), own = std::string(folder) + "/probe";
  std::filesystem::copy_file(kprobe, own);
  EXPECT_EQ(chmod(folder, 0755) | chmod(own.c_str(), 0755), 0);
  setenv("INGERO_KPROBE", own.c_str(), 1);
  const bool started = companion_.Start({}, 65534);
  setenv("INGERO_KPROBE", kprobe.c_str(), 1);
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(started);
  EXPECT_EQ(companion_.End(0), 1);
  const std::string said = companion_.said();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_TRUE(Contains(said, "CAP_BPF")) << said;
  EXPECT_EQ(companion_.StreamPath(), "");
}

// CASES 31: none of these is the reason of a failure, or the true one is told.
TEST_F(RecordTest, NeitherMemlockNorTracefsIsNeeded) {
  const std::string words = companion_.dir() + "/words";
  const pid_t child = Fork([&] {
    const rlimit small{64 << 10, 64 << 10};
    if (setrlimit(RLIMIT_MEMLOCK, &small) != 0) return 90;
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return 91;
    for (const char* at : {"/sys/kernel/tracing", "/sys/kernel/debug"})
      umount2(at, MNT_DETACH);
    if (access("/sys/kernel/tracing/events", F_OK) == 0) return 92;
    const int fd = open(words.c_str(), O_WRONLY | O_CREAT, 0644);
    dup2(fd, STDERR_FILENO);
    execl(KprobePath().c_str(), "ingero-kprobe", "--duration", "200ms", "--dir",
          (companion_.dir() + "/trace").c_str(), nullptr);
    return 98;
  });
  const int status = Wait(child);
  if (status >= 90 && status <= 92) GTEST_SKIP() << "no mount namespace here";
  EXPECT_EQ(status, 0) << companion_.said();
  EXPECT_TRUE(Contains(companion_.said(), "probe sched_switch: attached"));
}

TEST_F(RecordTest, HiddenTypeInformationIsNamed) {
  const std::string words = companion_.dir() + "/words";
  const pid_t child = Fork([&] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("/dev/null", "/sys/kernel/btf/vmlinux", nullptr, MS_BIND,
              nullptr) != 0)
      return 91;
    const int fd = open(words.c_str(), O_WRONLY | O_CREAT, 0644);
    dup2(fd, STDERR_FILENO);
    execl(KprobePath().c_str(), "ingero-kprobe", "--duration", "200ms", "--dir",
          (companion_.dir() + "/trace").c_str(), nullptr);
    return 98;
  });
  const int status = Wait(child);
  if (status == 91) GTEST_SKIP() << "no mount namespace here";
  const std::string said = companion_.said();
  EXPECT_EQ(status, 1) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_TRUE(Contains(said, "no kernel type information")) << said;
  EXPECT_EQ(companion_.StreamPath(), "");
}

TEST_F(RecordTest, ASecondCompanionOnOneFolderIsRefused) {
  ASSERT_TRUE(companion_.Start());
  const std::string words = companion_.dir() + "/second";
  const pid_t second = Fork([&] {
    const int fd = open(words.c_str(), O_WRONLY | O_CREAT, 0644);
    dup2(fd, STDERR_FILENO);
    execl(KprobePath().c_str(), "ingero-kprobe", "--quiet", "--dir",
          (companion_.dir() + "/trace").c_str(), nullptr);
    return 98;
  });
  EXPECT_EQ(Wait(second), 1);
  auto said = ReadWholeFile(words);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(std::count(said->begin(), said->end(), '\n'), 1) << *said;
  EXPECT_TRUE(Contains(
      *said, "another ingero-kprobe (pid " + std::to_string(companion_.pid())))
      << *said;
  Finish();
}

TEST_F(RecordTest, AStreamThatIsDeletedMeanwhileIsTold) {
  ASSERT_TRUE(companion_.Start({"--quiet"}));
  const std::string path = companion_.StreamPath();
  ASSERT_EQ(unlink(path.c_str()), 0);
  EXPECT_EQ(companion_.End(SIGINT), 1);
  EXPECT_TRUE(Contains(companion_.said(), path + ": was deleted"))
      << companion_.said();
}

TEST_F(RecordTest, ALinkAsTraceFolderIsNotFollowed) {
  const std::string target = companion_.dir() + "/elsewhere";
  ASSERT_EQ(mkdir(target.c_str(), 0700), 0);
  ASSERT_EQ(symlink(target.c_str(), (companion_.dir() + "/trace").c_str()), 0);
  EXPECT_FALSE(companion_.Start());
  EXPECT_EQ(companion_.End(0), 1);
  const std::string said = companion_.said();
  EXPECT_FALSE(Contains(said, "recording")) << said;
}

// Before anything is made: a stream of 0 bytes was left behind.
TEST_F(RecordTest, AReadyFileThatCannotBeMadeEndsTheStart) {
  const std::string words = companion_.dir() + "/words";
  const pid_t child = Fork([&] {
    const int fd = open(words.c_str(), O_WRONLY | O_CREAT, 0644);
    dup2(fd, STDERR_FILENO);
    execl(KprobePath().c_str(), "ingero-kprobe", "--quiet", "--dir",
          (companion_.dir() + "/trace").c_str(), "--ready-file",
          "/does/not/exist/ready", nullptr);
    return 98;
  });
  EXPECT_EQ(Wait(child), 1);
  auto said = ReadWholeFile(words);
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(std::count(said->begin(), said->end(), '\n'), 1) << *said;
  EXPECT_TRUE(Contains(*said, "--ready-file: make a file in /does/not/exist"))
      << *said;
  EXPECT_EQ(companion_.StreamPath(), "");
}

// A file system of so many bytes, as a trace folder.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, const char* size) : path_(path) {
    mkdir(path.c_str(), 0700);
    mounted_ = mount("tmpfs", path.c_str(), "tmpfs", 0,
                     (std::string("size=") + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_;
};

TEST_F(RecordTest, ADiskWithoutRoomForTheHeaderEndsTheStart) {
  const SmallDisk disk(companion_.dir() + "/trace", "4k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  EXPECT_FALSE(companion_.Start({"--quiet"}));
  EXPECT_EQ(companion_.End(0), 1);
  const std::string said = companion_.said();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_TRUE(Contains(said, "No space left on device; free some space or "))
      << said;
  EXPECT_EQ(companion_.StreamPath(), "");
}

TEST_F(RecordTest, WhatAFullDiskTookIsSaidAndCounted) {
  const SmallDisk disk(companion_.dir() + "/trace", "96k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs";
  ASSERT_TRUE(companion_.Start());
  const pid_t load = PingPong(1);
  usleep(2'500'000);
  kill(load, SIGKILL);
  Wait(load);
  companion_.End(SIGINT);  // 1, unless the last rows found room
  const std::string said = companion_.said();
  EXPECT_TRUE(Contains(said, "cannot be written to and rows are being lost"))
      << said;
  Read();
  EXPECT_EQ(stream_.torn_bytes, 0u);
  // "recorded 12,345 switches and 67 task events ..., lost 8,910"
  const auto number = [&](const std::string& before) {
    uint64_t n = 0;
    for (size_t at = said.find(before) + before.size();
         at < said.size() && (isdigit(said[at]) || said[at] == ','); ++at)
      if (said[at] != ',') n = 10 * n + static_cast<uint64_t>(said[at] - '0');
    return n;
  };
  EXPECT_EQ(number("recorded "), switches().size()) << said;
  EXPECT_EQ(number(" switches and "), tasks().size()) << said;
  uint64_t lost = LostEvents();  // by rows, and by the header
  for (const uint64_t count : stream_.header.lost) lost += count;
  EXPECT_GT(lost, 10'000u);
  EXPECT_EQ(number(", lost "), lost) << said;
}

// CASES 14, for the kernel side.
TEST_F(RecordTest, AKilledCompanionLeavesAReadableStream) {
  ASSERT_TRUE(companion_.Start());
  const pid_t busy = Fork([] {
    for (int i = 0; i < 2000; ++i) usleep(1000);
    return 0;
  });
  usleep(1'800'000);
  EXPECT_EQ(companion_.End(SIGKILL), 128 + SIGKILL);
  const uint64_t killed = NowNs();
  kill(busy, SIGKILL);
  Wait(busy);
  Read();
  ASSERT_GT(switches().size(), 100u);
  // At most the last unflushed second is missing.
  uint64_t last = 0;
  for (const R& r : switches()) last = std::max(last, r[switch_table::kT]);
  EXPECT_LT(killed - last, 1'500'000'000u);
  // Nothing stays attached: the next one starts at once.
  ASSERT_TRUE(companion_.Start());
  EXPECT_EQ(companion_.End(SIGINT), 0);
}

// ---- no loss uncounted (CASES 25) ------------------------------------------

uint64_t KernelsSwitches() {
  std::ifstream in("/proc/stat");
  std::string key;
  uint64_t value = 0;
  while (in >> key)
    if (key == "ctxt") {
      in >> value;
      break;
    }
  return value;
}

// How often the kernel ran, or skipped, the programs of a companion. Keeps
// them, and with them their counters, until after its end.
class ProgramRuns {
 public:
  // Before the companion starts: the kernel counts only while asked to.
  ProgramRuns() {
    bpf_attr attr{};
    attr.enable_stats.type = BPF_STATS_RUN_TIME;
    statistics_ = Fd(Bpf(BPF_ENABLE_STATS, &attr));
  }
  bool valid() const { return statistics_.valid(); }
  void Take(pid_t companion) {
    const std::string fds = "/proc/" + std::to_string(companion) + "/fdinfo";
    std::set<uint32_t> ids;  // a link has its program's too
    for (const auto& fd : std::filesystem::directory_iterator(fds)) {
      std::ifstream in(fd.path());
      std::string key;
      while (in >> key)
        if (key == "prog_id:") {
          uint32_t id;
          in >> id;
          ids.insert(id);
        }
    }
    for (const uint32_t id : ids) {
      bpf_attr attr{};
      attr.prog_id = id;
      programs_.emplace_back(Bpf(BPF_PROG_GET_FD_BY_ID, &attr));
    }
  }
  // Of all programs whose name, cut by the kernel, is this; "" = of all.
  uint64_t Runs(const std::string& name) const {
    return Sum(name, [](const bpf_prog_info& i) { return i.run_cnt; });
  }
  uint64_t Missed(const std::string& name) const {
    return Sum(name, [](const bpf_prog_info& i) { return i.recursion_misses; });
  }

 private:
  static int Bpf(int command, bpf_attr* attr) {
    return static_cast<int>(syscall(SYS_bpf, command, attr, sizeof(*attr)));
  }
  template <typename F>
  uint64_t Sum(const std::string& name, F of) const {
    uint64_t sum = 0;
    for (const Fd& program : programs_) {
      bpf_prog_info info{};
      bpf_attr attr{};
      attr.info.bpf_fd = static_cast<uint32_t>(program.get());
      attr.info.info_len = sizeof(info);
      attr.info.info = reinterpret_cast<uint64_t>(&info);
      EXPECT_EQ(Bpf(BPF_OBJ_GET_INFO_BY_FD, &attr), 0);
      if (name.empty() || name.substr(0, sizeof(info.name) - 1) == info.name)
        sum += of(info);
    }
    return sum;
  }
  Fd statistics_;
  std::vector<Fd> programs_;
};

// Fresh pages and births, until killed.
pid_t PagesAndBirths(int cpu) {
  return Fork([cpu] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    PinToCpu(cpu);
    constexpr size_t kBytes = 64 * 4096;
    char* memory = static_cast<char*>(mmap(nullptr, kBytes,
                                           PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (;;) {
      for (size_t i = 0; i < kBytes; i += 4096)
        static_cast<volatile char*>(memory)[i] = 1;
      madvise(memory, kBytes, MADV_DONTNEED);
      for (int i = 0; i < 20; ++i) std::thread([] {}).join();
    }
    return 0;
  });
}

// At full speed on all CPUs, with the smallest buffer and the reader stopped
// for two seconds. Alone on a larger machine:
//   kernel_probe_record_test --gtest_filter='*WhatTheKernelSaw'
TEST_F(RecordTest, RecordedPlusLostIsWhatTheKernelSaw) {
  const int cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  ProgramRuns programs;
  if (!programs.valid()) GTEST_SKIP() << "this kernel does not count runs";
  const uint64_t before_start = KernelsSwitches();
  ASSERT_TRUE(companion_.Start({"--buffer", "4096", "--pages", "raw"}));
  programs.Take(companion_.pid());
  const uint64_t after_start = KernelsSwitches();
  std::vector<pid_t> load;
  for (int cpu = 0; cpu < cpus; ++cpu) load.push_back(PingPong(cpu));
  load.push_back(PagesAndBirths(cpus - 1));
  usleep(500'000);
  kill(companion_.pid(), SIGSTOP);
  const uint64_t stopped_ns = NowNs(), at_stop = KernelsSwitches();
  usleep(2'000'000);
  const double stop_seconds = static_cast<double>(NowNs() - stopped_ns) / 1e9;
  const uint64_t while_stopped = KernelsSwitches() - at_stop;
  kill(companion_.pid(), SIGCONT);
  usleep(500'000);
  for (const pid_t pid : load) {
    kill(pid, SIGKILL);
    Wait(pid);
  }
  const uint64_t before_end = KernelsSwitches();
  Finish();
  const uint64_t after_end = KernelsSwitches();
  std::printf("%.0f switches/s on %d CPUs while the reader was stopped, for "
              "%.2f s\n",
              static_cast<double>(while_stopped) / stop_seconds, cpus,
              stop_seconds);

  std::map<uint64_t, uint64_t> recorded, lost, seen_allocations;
  std::map<uint64_t, uint64_t> lost_by_kind;
  std::map<uint64_t, std::vector<const R*>> by_cpu, ranges;
  for (const R& r : switches()) {
    ++recorded[r.owner];
    by_cpu[r.owner].push_back(&r);
  }
  for (const R& r : losses()) {
    lost_by_kind[r[loss_table::kLoss]] += r[loss_table::kCountLost];
    EXPECT_LE(r[loss_table::kT], r[loss_table::kEndT]);
    if (r[loss_table::kLoss] != INGERO_LOSS_SWITCH_RING_FULL) continue;
    lost[r.owner] += r[loss_table::kCountLost];
    ranges[r.owner].push_back(&r);
  }
  // The writer, which would lose rows of any kind, was never behind.
  EXPECT_EQ(lost_by_kind[INGERO_LOSS_WRITER_BEHIND], 0u);
  for (const R& r : samples())
    if (r[sample_table::kMetric] ==
        static_cast<uint64_t>(Metric::kAllocationsSeen))
      seen_allocations[r[sample_table::kInstance]] = r[sample_table::kValue];

  const auto tell = [&](const char* what, uint64_t rows, uint64_t lost_rows,
                        const char* program) {
    std::printf("%-12s %10lu recorded + %10lu lost = %10lu; the kernel ran the "
                "program %lu times and skipped it %lu times\n",
                what, rows, lost_rows, rows + lost_rows,
                programs.Runs(program), programs.Missed(program));
  };
  uint64_t total_seen = 0, total_lost = 0;
  for (const auto& [cpu, seen] : SwitchesSeen()) {
    EXPECT_EQ(recorded[cpu] + lost[cpu], seen) << "CPU " << cpu;
    total_seen += seen;
    total_lost += lost[cpu];
    if (ranges[cpu].empty()) continue;
    const R *longest = ranges[cpu][0];
    for (const R* r : ranges[cpu])
      if ((*r)[loss_table::kEndT] - (*r)[loss_table::kT] >
          (*longest)[loss_table::kEndT] - (*longest)[loss_table::kT])
        longest = r;
    std::printf("CPU %-3lu lost %lu of %lu in %zu ranges, the longest %.3f to "
                "%.3f s after the stop\n",
                cpu, lost[cpu], seen, ranges[cpu].size(),
                (static_cast<double>((*longest)[loss_table::kT]) -
                 static_cast<double>(stopped_ns)) / 1e9,
                (static_cast<double>((*longest)[loss_table::kEndT]) -
                 static_cast<double>(stopped_ns)) / 1e9);
    // The reader was stopped for two seconds, on this CPU too.
    EXPECT_LT((*longest)[loss_table::kT], stopped_ns + 200'000'000) << cpu;
    EXPECT_GT((*longest)[loss_table::kEndT], stopped_ns + 1'800'000'000) << cpu;
  }
  tell("switches", switches().size(), total_lost, "on_sched_switch");
  EXPECT_EQ(total_seen, programs.Runs("on_sched_switch"));
  // The counter of /proc/stat, read a little earlier and later than the
  // programs began and ended.
  std::printf("/proc/stat: %lu while recording, %lu with start and end\n",
              before_end - after_start, after_end - before_start);
  const uint64_t told = total_seen + programs.Missed("on_sched_switch");
  EXPECT_LE(told, after_end - before_start);
  // Some sandboxes hide their init from BPF: its switches never show.
  EXPECT_GE(static_cast<double>(told) * 1.001,
            static_cast<double>(before_end - after_start));
  EXPECT_EQ(lost_by_kind[INGERO_LOSS_BPF_MISSED], programs.Missed(""));
  EXPECT_GT(total_seen, 100'000u);
  EXPECT_GT(total_lost, total_seen / 2) << "the smallest buffer lost little?";
  EXPECT_TRUE(Contains(companion_.said(), "larger --buffer"));

  const uint64_t allocations =
      stream_.rows(allocation_table::kSchema).size() +
      lost_by_kind[INGERO_LOSS_PAGE_RING_FULL];
  tell("allocations", stream_.rows(allocation_table::kSchema).size(),
       lost_by_kind[INGERO_LOSS_PAGE_RING_FULL], "on_mm_page_alloc");
  uint64_t all_seen = 0;
  for (const auto& [cpu, seen] : seen_allocations) all_seen += seen;
  EXPECT_EQ(allocations, all_seen);
  EXPECT_EQ(allocations, programs.Runs("on_mm_page_alloc"));
  EXPECT_GT(lost_by_kind[INGERO_LOSS_PAGE_RING_FULL], 0u);

  // Of a program's start a rename is no event of its own; and of its pages a
  // thread that does not switch tells by steps, but where the ring is full.
  const auto events = [&](uint64_t event) {
    return static_cast<uint64_t>(
        std::count_if(tasks().begin(), tasks().end(), [&](const R& r) {
          return r[task_table::kEvent] == event;
        }));
  };
  const uint64_t existing = events(INGERO_TASK_EVENT_EXISTING),
                 page_steps = events(INGERO_TASK_EVENT_PAGES);
  const uint64_t rows = tasks().size() - existing;
  const uint64_t task_events = rows + lost_by_kind[INGERO_LOSS_TASK_RING_FULL];
  uint64_t runs = 0;
  for (const char* program : {"on_task_newtask", "on_sched_process_exit",
                              "on_cgroup_attach_task", "on_mark_victim"})
    runs += programs.Runs(program);  // ..._exec has the same name when cut
  std::printf("%-12s %10lu recorded + %10lu lost = %10lu; births, starts, ends "
              "and moves %lu, renames %lu, steps of pages %lu\n",
              "task events", rows, lost_by_kind[INGERO_LOSS_TASK_RING_FULL],
              task_events, runs, programs.Runs("on_task_rename"), page_steps);
  EXPECT_GE(task_events, runs);
  EXPECT_LE(task_events,
            runs + programs.Runs("on_task_rename") + page_steps);
  EXPECT_GT(lost_by_kind[INGERO_LOSS_TASK_RING_FULL], 0u);

  // Who comes in is who goes out next, unless a counted loss lies between.
  size_t gaps = 0;
  for (const auto& [cpu, rows_here] : by_cpu) {
    for (size_t i = 1; i < rows_here.size(); ++i) {
      const R &a = *rows_here[i - 1], &b = *rows_here[i];
      ASSERT_LE(a[switch_table::kT], b[switch_table::kT]);
      if (a[switch_table::kNextTid] == b[switch_table::kPrevTid]) continue;
      if (a[switch_table::kNextTgid] == 1) continue;  // see above
      ++gaps;
      const bool explained = std::any_of(
          ranges[cpu].begin(), ranges[cpu].end(), [&](const R* range) {
            return (*range)[loss_table::kT] <= b[switch_table::kT] &&
                   (*range)[loss_table::kEndT] >= a[switch_table::kT];
          });
      ASSERT_TRUE(explained) << "CPU " << cpu << " at "
                             << a[switch_table::kT];
    }
  }
  EXPECT_GT(gaps, 0u);
}

// ---- --tree ------------------------------------------------------------------

TEST_F(RecordTest, ATreeIsRecordedWithWhoHoldsItsCpuAndTheRestIsCounted) {
  // The tree: a parent that waits, and a child that is born after the start,
  // both on CPU 1, which a spinner shares. Two others keep to CPU 0.
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t root = Fork([&] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    PinToCpu(1);
    char c;
    if (read(go[0], &c, 1) != 1) return 1;
    const pid_t child = Fork([] {
      for (int i = 0; i < 300; ++i) usleep(1000);
      return 0;
    });
    (void)!write(go[1], &child, sizeof(child));
    return Wait(child);
  });
  const pid_t spinner = Fork([] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    PinToCpu(1);
    for (;;) continue;
    return 0;
  });
  const pid_t bystander = PingPong(0);
  usleep(50'000);  // all pinned
  ASSERT_TRUE(companion_.Start({"--tree", std::to_string(root)}))
      << companion_.said();
  (void)!write(go[1], "g", 1);
  EXPECT_EQ(Wait(root), 0);
  for (const pid_t pid : {spinner, bystander}) {
    kill(pid, SIGKILL);
    Wait(pid);
  }
  pid_t child = 0;
  ASSERT_EQ(read(go[0], &child, sizeof(child)), (ssize_t)sizeof(child));
  close(go[0]);
  close(go[1]);
  Finish();

  std::map<uint64_t, uint64_t> recorded, left_out;
  for (const R& r : switches()) ++recorded[r.owner];
  bool scope = false;
  for (const R& r : samples()) {
    const auto metric = static_cast<Metric>(r[sample_table::kMetric]);
    if (metric == Metric::kSwitchesLeftOut)
      left_out[r[sample_table::kInstance]] = r[sample_table::kValue];
    scope |= metric == Metric::kScope &&
             Contains(r.text, "PID " + std::to_string(root));
  }
  EXPECT_TRUE(scope);
  EXPECT_TRUE(Contains(companion_.said(), "switches of others (--tree)"));
  EXPECT_EQ(LostEvents(), 0u) << companion_.said();
  uint64_t all_left_out = 0;
  for (const auto& [cpu, seen] : SwitchesSeen()) {
    EXPECT_EQ(recorded[cpu] + left_out[cpu], seen) << "CPU " << cpu;
    all_left_out += left_out[cpu];
  }
  EXPECT_GT(all_left_out, switches().size());

  const auto tree = [&](uint64_t tid) {
    return tid == static_cast<uint64_t>(root) ||
           tid == static_cast<uint64_t>(child);
  };
  std::vector<const R*> here;  // rows of CPU 1
  uint64_t ins = 0, outs = 0, waits = 0, held = 0, by_spinner = 0;
  for (const R& r : switches()) {
    const uint64_t flags = r[switch_table::kFlags];
    EXPECT_NE(r[switch_table::kPrevTid], static_cast<uint64_t>(bystander));
    if (!(flags & INGERO_PREV_LEFT_OUT)) {
      EXPECT_EQ(tree(r[switch_table::kPrevTid]),
                (flags & INGERO_PREV_OUTSIDE) == 0);
      EXPECT_EQ(tree(r[switch_table::kNextTid]),
                (flags & INGERO_NEXT_OUTSIDE) == 0);
    }
    if (r.owner == 1) here.push_back(&r);
  }
  for (size_t i = 0; i < here.size(); ++i) {
    const R& r = *here[i];
    outs += r[switch_table::kPrevTid] == static_cast<uint64_t>(child);
    if (r[switch_table::kNextTid] != static_cast<uint64_t>(child)) continue;
    ++ins;
    const uint64_t wake = r[switch_table::kWakeT];
    if (wake == 0) continue;
    // Who held the CPU since the wake: an unbroken chain back to before it.
    ++waits;
    by_spinner += r[switch_table::kPrevTid] == static_cast<uint64_t>(spinner);
    size_t j = i;
    while (j > 0 && (*here[j])[switch_table::kT] > wake &&
           (*here[j - 1])[switch_table::kNextTid] ==
               (*here[j])[switch_table::kPrevTid] &&
           !((*here[j])[switch_table::kFlags] & INGERO_PREV_LEFT_OUT))
      --j;
    held += (*here[j])[switch_table::kT] <= wake;
  }
  // Some sandboxes hide their init from BPF: switches with it never show.
  EXPECT_GE(ins, 295u);
  EXPECT_GE(outs, 295u);
  // Between the wake and its choice of a CPU another switch may be left out.
  EXPECT_GE(static_cast<double>(held), 0.95 * static_cast<double>(waits));
  EXPECT_GT(by_spinner, 0u);  // how often, depends on the rest of the load
}

TEST_F(RecordTest, ATreeByNameBeginsWhereAProcessTakesTheName) {
  const std::string program = companion_.dir() + "/ingero_by_exec";
  std::error_code error;
  std::filesystem::copy_file("/bin/sleep", program, error);
  ASSERT_FALSE(error) << error.message();
  ASSERT_TRUE(companion_.Start(
      {"--tree", "ingero_by_exec", "--tree", "ingero_by_name"}));
  const pid_t by_exec = Fork([&] {
    usleep(20'000);
    execl(program.c_str(), "ingero_by_exec", "0.05", nullptr);
    return 98;
  });
  const pid_t by_name = Fork([] {
    usleep(20'000);
    prctl(PR_SET_NAME, "ingero_by_name");
    usleep(20'000);
    const pid_t child = Fork([] {
      usleep(10'000);
      return 0;
    });
    return Wait(child);
  });
  const pid_t other = Fork([] {
    for (int i = 0; i < 20; ++i) usleep(1000);
    return 0;
  });
  for (const pid_t pid : {by_exec, by_name, other}) EXPECT_EQ(Wait(pid), 0);
  Finish();
  const auto sleeps = [&](auto is) {
    size_t n = 0;
    for (const R& r : switches())
      n += is(r[switch_table::kPrevTid]) &&
           !(r[switch_table::kFlags] & INGERO_PREV_OUTSIDE);
    return n;
  };
  const auto is = [](pid_t pid) {
    return [pid](uint64_t tid) { return tid == static_cast<uint64_t>(pid); };
  };
  std::set<uint64_t> children;
  for (const R& r : tasks())
    if (r[task_table::kEvent] == INGERO_TASK_EVENT_FORK &&
        r[task_table::kParentTgid] == static_cast<uint64_t>(by_name)) {
      children.insert(r[task_table::kTid]);
      EXPECT_EQ(r[task_table::kCode], 1u);
    }
  EXPECT_EQ(children.size(), 1u);
  EXPECT_GE(sleeps(is(by_exec)), 1u);
  EXPECT_GE(sleeps(is(by_name)), 2u);
  EXPECT_GE(sleeps([&](uint64_t tid) { return children.contains(tid); }), 1u);
  EXPECT_EQ(sleeps(is(other)), 0u);
}

TEST_F(RecordTest, TheDefaultBufferLosesNothingAtFullSpeed) {
  ASSERT_TRUE(companion_.Start());
  const uint64_t ctxt_begin = KernelsSwitches();
  const pid_t load = PingPong(1);
  usleep(1'500'000);
  kill(load, SIGKILL);
  Wait(load);
  const uint64_t ctxt_end = KernelsSwitches();
  Finish();
  EXPECT_EQ(LostEvents(), 0u) << companion_.said();
  uint64_t seen = 0;
  for (const auto& [cpu, count] : SwitchesSeen()) seen += count;
  EXPECT_EQ(switches().size(), seen);
  // The kernel's own count, taken within the recording. A sandbox that hides
  // its init from BPF keeps a few from us.
  EXPECT_GE(static_cast<double>(seen),
            0.999 * static_cast<double>(ctxt_end - ctxt_begin));
  EXPECT_LT(static_cast<double>(seen),
            1.05 * static_cast<double>(ctxt_end - ctxt_begin) + 20000);
  const double bytes_per_switch =
      static_cast<double>(stream_.file_bytes) /
      static_cast<double>(switches().size());
  EXPECT_LT(bytes_per_switch, 16.0);
  RecordProperty("bytes_per_switch_x100",
                 static_cast<int>(bytes_per_switch * 100));
}

// ---- births and ends (CASES 28) -----------------------------------------------

TEST_F(RecordTest, ATreeOf500IsRightInEveryDetail) {
  constexpr int kForks = 200, kExecs = 150, kThreads = 150;
  ASSERT_TRUE(companion_.Start());

  // Child i exits with i % 100 after forking one grandchild.
  struct Pair {
    pid_t child, grandchild;
  };
  auto* shared = static_cast<Pair*>(
      mmap(nullptr, sizeof(Pair) * kForks, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (int i = 0; i < kForks; i += 2) {
    const pid_t child = Fork([=] {
      shared[i].grandchild = Fork([] { return 7; });
      Wait(shared[i].grandchild);
      return i % 100;
    });
    shared[i].child = child;
    Wait(child);
  }
  std::vector<pid_t> execs;
  for (int i = 0; i < kExecs; ++i) {
    const pid_t child = Fork([] {
      execl("/bin/sh", "sh", "-c", "exit 3", "an argument", nullptr);
      return 98;
    });
    execs.push_back(child);
    EXPECT_EQ(Wait(child), 3);
  }
  std::vector<pid_t> threads;
  for (int i = 0; i < kThreads; ++i) {
    std::thread([&] {
      threads.push_back(static_cast<pid_t>(syscall(SYS_gettid)));
      prctl(PR_SET_NAME, ("w" + std::to_string(i)).c_str());
    }).join();
  }
  const pid_t killed = Fork([] {
    pause();
    return 0;
  });
  kill(killed, SIGKILL);
  Wait(killed);
  Finish();

  const auto self = static_cast<uint64_t>(getpid());
  struct stat ns;
  ASSERT_EQ(stat("/proc/self/ns/pid", &ns), 0);
  const auto only = [&](uint64_t event, pid_t tid) -> const R* {
    const auto found = Events(event, static_cast<uint64_t>(tid));
    EXPECT_EQ(found.size(), 1u) << "event " << event << " of " << tid;
    return found.empty() ? nullptr : found[0];
  };
  const auto born = [&](pid_t tid, uint64_t parent, uint64_t tgid) {
    const R* r = only(INGERO_TASK_EVENT_FORK, tid);
    if (r == nullptr) return;
    EXPECT_EQ((*r)[task_table::kParentTgid], parent);
    EXPECT_EQ((*r)[task_table::kTgid], tgid);
    EXPECT_EQ((*r)[task_table::kPidNamespace], ns.st_ino);
  };
  const auto ended = [&](pid_t tid, int64_t code) {
    const R* r = only(INGERO_TASK_EVENT_EXIT, tid);
    if (r == nullptr) return;
    EXPECT_EQ(static_cast<int64_t>((*r)[task_table::kCode]), code);
  };
  for (int i = 0; i < kForks; i += 2) {
    born(shared[i].child, self, static_cast<uint64_t>(shared[i].child));
    born(shared[i].grandchild, static_cast<uint64_t>(shared[i].child),
         static_cast<uint64_t>(shared[i].grandchild));
    ended(shared[i].child, i % 100 << 8);
    ended(shared[i].grandchild, 7 << 8);
  }
  size_t with_text = 0;
  for (pid_t pid : execs) {
    born(pid, self, static_cast<uint64_t>(pid));
    ended(pid, 3 << 8);
    const R* r = only(INGERO_TASK_EVENT_EXEC, pid);
    if (r == nullptr) continue;
    EXPECT_EQ(r->text.substr(0, 3).c_str(), std::string("sh"));
    EXPECT_TRUE(Events(INGERO_TASK_EVENT_RENAME,
                       static_cast<uint64_t>(pid)).empty());
    with_text += Contains(r->text, "sh\x1f-c\x1f" "exit 3\x1f" "an argument");
  }
  // Short processes may be gone before /proc is read.
  RecordProperty("exec_texts", static_cast<int>(with_text));
  for (int i = 0; i < kThreads; ++i) {
    born(threads[i], self, self);
    ended(threads[i], 0);
    const R* r = only(INGERO_TASK_EVENT_RENAME, threads[i]);
    if (r != nullptr) {
      EXPECT_EQ(r->text, "w" + std::to_string(i));
    }
  }
  ended(killed, SIGKILL);
  munmap(shared, sizeof(Pair) * kForks);
}

TEST_F(RecordTest, EveryTaskAppearsExactlyOnceHoweverItsBirthFallsOnTheStart) {
  // A storm of births while the companion attaches and lists.
  const pid_t storm = Fork([] {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
      const pid_t child = Fork([] {
        usleep(3000);
        return 0;
      });
      Wait(child);
    }
    return 0;
  });
  ASSERT_TRUE(companion_.Start());
  usleep(100'000);
  kill(storm, SIGKILL);
  Wait(storm);
  Finish();
  std::map<std::pair<uint64_t, uint64_t>, int> appearances;
  std::map<uint64_t, uint64_t> first_switch;
  for (const R& r : tasks())
    if (r[task_table::kEvent] == INGERO_TASK_EVENT_FORK ||
        r[task_table::kEvent] == INGERO_TASK_EVENT_EXISTING)
      ++appearances[{r[task_table::kTid], r[task_table::kStartNs]}];
  for (const auto& [key, count] : appearances)
    EXPECT_EQ(count, 1) << "tid " << key.first;
  std::set<uint64_t> known;
  for (const auto& [key, count] : appearances) known.insert(key.first);
  for (const R& r : switches()) {
    const uint64_t tid = r[switch_table::kPrevTid];
    EXPECT_TRUE(tid == 0 || known.contains(tid)) << "unknown tid " << tid;
  }
}

TEST_F(RecordTest, ExistingProcessesHaveNameExeAndCommandLine) {
  const pid_t sleeper = Fork([] {
    execl("/bin/sleep", "sleep", "1000", nullptr);
    return 98;
  });
  usleep(100'000);
  ASSERT_TRUE(companion_.Start());
  usleep(100'000);
  Finish();
  kill(sleeper, SIGKILL);
  Wait(sleeper);
  const auto rows = Events(INGERO_TASK_EVENT_EXISTING,
                           static_cast<uint64_t>(sleeper));
  ASSERT_EQ(rows.size(), 1u);
  const std::string& text = rows[0]->text;
  EXPECT_EQ(std::string(text.c_str()), "sleep");
  const size_t exe = text.find('\0') + 1;
  EXPECT_TRUE(Contains(text.c_str() + exe, "sleep"));
  EXPECT_TRUE(Contains(text, "sleep\x1f" "1000"));
  EXPECT_EQ((*rows[0])[task_table::kParentTgid],
            static_cast<uint64_t>(getpid()));
  EXPECT_GT((*rows[0])[task_table::kStartNs], 0u);
}

// CASES 33: two containers whose programs have the same inner pid.
TEST_F(RecordTest, EqualInnerPidsAreKeptApart) {
  ASSERT_TRUE(companion_.Start());
  std::vector<pid_t> inner;
  for (int i = 0; i < 2; ++i) {
    int report[2];
    ASSERT_EQ(pipe(report), 0);
    const pid_t outer = Fork([&] {
      if (unshare(CLONE_NEWPID) != 0) return 1;
      const pid_t first = Fork([] { return getpid() == 1 ? 0 : 2; });
      (void)!write(report[1], &first, sizeof(first));
      return Wait(first);
    });
    EXPECT_EQ(Wait(outer), 0);
    pid_t host = 0;
    ASSERT_EQ(read(report[0], &host, sizeof(host)),
              static_cast<ssize_t>(sizeof(host)));
    close(report[0]);
    close(report[1]);
    inner.push_back(host);
  }
  Finish();
  std::set<uint64_t> namespaces;
  for (pid_t host : inner) {
    const auto rows =
        Events(INGERO_TASK_EVENT_FORK, static_cast<uint64_t>(host));
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ((*rows[0])[task_table::kNsTid], 1u);
    EXPECT_EQ((*rows[0])[task_table::kNsTgid], 1u);
    namespaces.insert((*rows[0])[task_table::kPidNamespace]);
  }
  struct stat own;
  ASSERT_EQ(stat("/proc/self/ns/pid", &own), 0);
  EXPECT_FALSE(namespaces.contains(own.st_ino));
  // The kernel may give both the same inode, one after the other.
  EXPECT_GE(namespaces.size(), 1u);
}

// In a container --tree takes the pid that is seen there.
TEST_F(RecordTest, ATreeWithinAPidNamespaceIsNamedByItsPidThere) {
  const std::string words = companion_.dir() + "/words";
  const pid_t outer = Fork([&] {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return 91;
    const pid_t init = Fork([&] {
      if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("proc", "/proc", "proc", 0, nullptr) != 0)
        return 91;
      int named[2];
      if (pipe(named) != 0) return 91;
      const pid_t worker = Fork([&] {
        prctl(PR_SET_NAME, "ingero_inner");
        close(named[0]);
        close(named[1]);
        for (;;) usleep(1000);
        return 0;
      });
      close(named[1]);
      char end;
      if (read(named[0], &end, 1) != 0) return 91;  // the worker has its name
      const pid_t kprobe = Fork([&] {
        const int fd = open(words.c_str(), O_WRONLY | O_CREAT, 0644);
        dup2(fd, STDERR_FILENO);
        const std::string tree = std::to_string(worker);
        execl(KprobePath().c_str(), "ingero-kprobe", "--duration", "1s",
              "--tree", tree.c_str(), "--dir",
              (companion_.dir() + "/trace").c_str(), nullptr);
        return 98;
      });
      const int status = Wait(kprobe);
      kill(worker, SIGKILL);
      return worker != 2 ? 97 : status;
    });
    return Wait(init);
  });
  const int status = Wait(outer);
  if (status == 91) GTEST_SKIP() << "no pid namespace with a /proc here";
  ASSERT_EQ(status, 0) << companion_.said();
  EXPECT_TRUE(Contains(companion_.said(), "the tree of PID 2 (ingero_inner)"));
  Read();
  uint64_t worker = 0;  // as the host sees it
  for (const R& r : tasks())
    if (r[task_table::kEvent] == INGERO_TASK_EVENT_EXISTING &&
        r[task_table::kCode] == 1) {
      EXPECT_EQ(worker, 0u) << "more than one is of the tree";
      EXPECT_EQ(r[task_table::kNsTgid], 2u);
      worker = r[task_table::kTgid];
    }
  ASSERT_NE(worker, 0u);
  size_t of_tree = 0;
  for (const R& r : switches())
    if (!(r[switch_table::kFlags] & INGERO_PREV_OUTSIDE)) {
      EXPECT_EQ(r[switch_table::kPrevTgid], worker);
      ++of_tree;
    }
  EXPECT_GT(of_tree, 20u);
}

// ---- memory and quota -----------------------------------------------------------

// Fresh pages of 4 KiB, each once.
void TouchPages(uint64_t pages) {
  char* memory = static_cast<char*>(mmap(nullptr, pages * 4096,
                                         PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  madvise(memory, pages * 4096, MADV_NOHUGEPAGE);
  for (uint64_t i = 0; i < pages; ++i) memory[i * 4096] = 1;
}

TEST_F(RecordTest, PagesAndFaultsAreCountedExactly) {
  constexpr uint64_t kPages = 30'000;
  ASSERT_TRUE(companion_.Start());
  const pid_t toucher = Fork([] {
    usleep(100'000);
    TouchPages(kPages);
    return 0;
  });
  Wait(toucher);
  Finish();
  uint64_t pages = 0, faults = 0, told = 0;
  for (const R& r : switches())
    if (r[switch_table::kPrevTid] == static_cast<uint64_t>(toucher)) {
      pages += r[switch_table::kPrevPages];
      faults += r[switch_table::kPrevMinFaults];
    }
  for (const R* r : Events(INGERO_TASK_EVENT_PAGES,
                           static_cast<uint64_t>(toucher)))
    told += (*r)[task_table::kCode];
  EXPECT_LT(pages, kPages + 1000);  // page tables and the process itself
  EXPECT_LT(faults, kPages + 1000);
  EXPECT_GT(pages, 0u);
  EXPECT_GT(faults, 0u);
  if (!AllShown(toucher)) return;
  EXPECT_LE(told, pages);
  EXPECT_GE(pages, kPages);
  EXPECT_GE(faults, kPages);
}

TEST_F(RecordTest, RawPagesAreRowsOfTheirOwnAndNoneIsLostUncounted) {
  constexpr uint64_t kPages = 20'000;
  ASSERT_TRUE(companion_.Start({"--pages", "raw", "--buffer", "16M"}));
  const pid_t toucher = Fork([] {
    TouchPages(kPages);
    return 0;
  });
  Wait(toucher);
  Finish();
  uint64_t pages = 0, counted = 0, seen = 0, lost = 0;
  std::map<uint64_t, uint64_t> last, seen_on;
  const auto& rows = stream_.rows(allocation_table::kSchema);
  for (const R& r : rows) {
    EXPECT_GE(r[allocation_table::kT], last[r.owner]);
    last[r.owner] = r[allocation_table::kT];
    if (r[allocation_table::kTid] == static_cast<uint64_t>(toucher))
      pages += uint64_t{1} << r[allocation_table::kOrder];
  }
  for (const R& r : switches())
    if (r[switch_table::kPrevTid] == static_cast<uint64_t>(toucher))
      counted += r[switch_table::kPrevPages];
  for (const R& r : samples())
    if (r[sample_table::kMetric] ==
        static_cast<uint64_t>(Metric::kAllocationsSeen))
      seen_on[r[sample_table::kInstance]] = r[sample_table::kValue];
  for (const auto& [cpu, count] : seen_on) seen += count;
  for (const R& r : losses())
    if (r[loss_table::kLoss] == INGERO_LOSS_PAGE_RING_FULL)
      lost += r[loss_table::kCountLost];
  EXPECT_EQ(rows.size() + lost, seen);
  EXPECT_GT(counted, 0u);
  if (!AllShown(toucher)) return;
  if (lost == 0) {
    EXPECT_EQ(pages, counted);
  }
  EXPECT_GE(counted, kPages);
}

TEST_F(RecordTest, AThrottledCgroupIsSampledAndItsThreadsWaitsToldApart) {
  const std::string v1 = "/sys/fs/cgroup/cpu", v2 = "/sys/fs/cgroup";
  std::string group;
  if (access((v1 + "/cpu.cfs_quota_us").c_str(), F_OK) == 0 ||
      access((v1 + "/cgroup.procs").c_str(), F_OK) == 0)
    group = v1 + "/ingero-kprobe-test";
  else
    group = v2 + "/ingero-kprobe-test";
  mkdir(group.c_str(), 0755);
  const auto write_file = [&](const char* name, const std::string& text) {
    std::ofstream out(group + "/" + name);
    out << text;
    out.flush();
    return out.good();
  };
  const bool limited = access((group + "/cpu.max").c_str(), F_OK) == 0
                           ? write_file("cpu.max", "20000 100000")
                           : write_file("cpu.cfs_quota_us", "20000");
  if (!limited) {
    rmdir(group.c_str());
    GTEST_SKIP() << "cannot set a CPU quota in " << group;
  }
  // The program runs below it, in a group that has no quota of its own.
  const std::string child = group + "/child";
  mkdir(child.c_str(), 0755);
  write_file("cgroup.subtree_control", "+cpu");  // v2
  struct stat st, child_st;
  ASSERT_EQ(stat(group.c_str(), &st), 0);
  ASSERT_EQ(stat(child.c_str(), &child_st), 0);
  ASSERT_TRUE(companion_.Start());
  const pid_t burner = Fork([&] {
    if (!write_file("child/cgroup.procs", std::to_string(getpid()))) return 1;
    execl("/bin/sh", "sh", "-c", "while :; do :; done", nullptr);
    return 98;
  });
  usleep(2'500'000);
  Finish();
  kill(burner, SIGKILL);
  Wait(burner);
  rmdir(child.c_str());
  rmdir(group.c_str());
  // The counters of the samples, and the limits, by metric.
  std::map<Metric, std::pair<uint64_t, uint64_t>> seen;
  uint64_t clock = 0;
  for (const R& r : samples()) {
    const auto metric = static_cast<Metric>(r[sample_table::kMetric]);
    const uint64_t value = r[sample_table::kValue];
    if (metric == Metric::kThrottleClock) clock = value;
    if (r[sample_table::kInstance] == st.st_ino)
      seen.try_emplace(metric, value, value).first->second.second = value;
  }
  const auto grown = [&](Metric m) { return seen[m].second - seen[m].first; };
  EXPECT_GE(grown(Metric::kCgroupPeriods), 5u);
  EXPECT_GE(grown(Metric::kCgroupThrottled), 5u);
  EXPECT_GT(grown(Metric::kCgroupThrottledNs), 0u);
  EXPECT_EQ(seen[Metric::kCgroupQuotaNs].second, 20'000'000u);
  EXPECT_EQ(seen[Metric::kCgroupPeriodNs].second, 100'000'000u);
  EXPECT_EQ(seen[Metric::kCgroupQuotaAbove].second, 0u);
  const auto moves =
      Events(INGERO_TASK_EVENT_CGROUP, static_cast<uint64_t>(burner));
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ((*moves[0])[task_table::kCgroupId], child_st.st_ino);
  EXPECT_EQ((*moves[0])[task_table::kCode], 1u);  // by cgroup.procs
  const auto execs =
      Events(INGERO_TASK_EVENT_EXEC, static_cast<uint64_t>(burner));
  ASSERT_EQ(execs.size(), 1u);
  EXPECT_EQ((*execs[0])[task_table::kCgroupId], child_st.st_ino);

  // The waits themselves: no more throttled time than they took, and of one
  // thread that computes all the time about what cpu.stat says.
  if (clock == INGERO_THROTTLE_NONE)
    GTEST_SKIP() << "this kernel does not say what a quota took of each wait";
  uint64_t throttled_ns = 0, left_ns = 0, waits = 0;
  std::vector<const R*> rows;
  for (const R& r : switches())
    if (r[switch_table::kPrevTid] == static_cast<uint64_t>(burner) ||
        r[switch_table::kNextTid] == static_cast<uint64_t>(burner))
      rows.push_back(&r);
  std::sort(rows.begin(), rows.end(), [](const R* a, const R* b) {
    return (*a)[switch_table::kT] < (*b)[switch_table::kT];
  });
  for (const R* r : rows) {
    if ((*r)[switch_table::kPrevTid] == static_cast<uint64_t>(burner)) {
      left_ns = (*r)[switch_table::kT];
      continue;
    }
    const uint64_t part = (*r)[switch_table::kNextThrottledNs];
    if (part == 0 || left_ns == 0) continue;
    ++waits;
    throttled_ns += part;
    // The scheduler's clock is another one, read a little earlier or later.
    EXPECT_LE(part, (*r)[switch_table::kT] - left_ns + 4'000'000);
  }
  EXPECT_GE(waits, 5u);
  const auto stat_ns =
      static_cast<double>(grown(Metric::kCgroupThrottledNs));
  EXPECT_GT(static_cast<double>(throttled_ns), 0.5 * stat_ns);
}

// ---- memory stalls, interrupts, driver errors ---------------------------------

// Files larger than the limit of its cgroup are read: each read first drops
// pages of earlier ones.
TEST_F(RecordTest, ReclaimWithinACgroupsLimitIsToldByThread) {
  const std::string v1 = "/sys/fs/cgroup/memory";
  const bool is_v1 = access((v1 + "/memory.limit_in_bytes").c_str(), F_OK) == 0;
  const std::string group =
      (is_v1 ? v1 : "/sys/fs/cgroup") + "/ingero-kprobe-test-memory";
  mkdir(group.c_str(), 0755);
  const auto write_file = [&](const char* name, const std::string& text) {
    std::ofstream out(group + "/" + name);
    out << text;
    out.flush();
    return out.good();
  };
  if (!write_file(is_v1 ? "memory.limit_in_bytes" : "memory.max",
                  "16777216")) {
    rmdir(group.c_str());
    GTEST_SKIP() << "cannot set a memory limit in " << group;
  }
  ASSERT_TRUE(companion_.Start());
  const uint64_t begin = NowNs();
  const pid_t writer = Fork([&] {
    if (!write_file("cgroup.procs", std::to_string(getpid()))) return 1;
    std::ofstream out(companion_.dir() + "/large");
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 96; ++i) out << block;
    return out.good() ? 0 : 2;
  });
  EXPECT_EQ(Wait(writer), 0);
  const uint64_t took = NowNs() - begin;
  Finish();
  rmdir(group.c_str());
  if (Contains(companion_.said(), "memcg_reclaim_begin: skipped"))
    GTEST_SKIP() << "this kernel does not tell reclaim within a cgroup";
  uint64_t ns = 0;
  const auto events = Events(INGERO_TASK_EVENT_RECLAIM,
                             static_cast<uint64_t>(writer));
  for (const R* r : events) {
    EXPECT_GE((*r)[task_table::kCode], INGERO_STALL_TOLD_NS + 0u);
    ns += (*r)[task_table::kCode];
  }
  EXPECT_GT(events.size(), 0u);
  EXPECT_LE(ns, took);
}

TEST_F(RecordTest, CompactionIsToldByThread) {
  constexpr const char* kCompact = "/proc/sys/vm/compact_memory";
  if (access(kCompact, W_OK) != 0)
    GTEST_SKIP() << "this kernel has no " << kCompact;
  ASSERT_TRUE(companion_.Start());
  const uint64_t begin = NowNs();
  const pid_t compacter = Fork([] {
    for (int i = 0; i < 3; ++i) {
      std::ofstream out(kCompact);
      out << "1";
      out.flush();
      if (!out.good()) return 1;
    }
    return 0;
  });
  EXPECT_EQ(Wait(compacter), 0);
  const uint64_t took = NowNs() - begin;
  Finish();
  uint64_t ns = 0;
  for (const R* r : Events(INGERO_TASK_EVENT_COMPACTION,
                           static_cast<uint64_t>(compacter)))
    ns += (*r)[task_table::kCode];
  EXPECT_GT(ns, 0u);
  EXPECT_LE(ns, took);
  for (const R& r : samples())
    if (r[sample_table::kMetric] ==
        static_cast<uint64_t>(Metric::kMemoryStalls)) {
      EXPECT_EQ(r[sample_table::kValue],
                1u << INGERO_TASK_EVENT_RECLAIM |
                    1u << INGERO_TASK_EVENT_COMPACTION);
    }
}

TEST_F(RecordTest, InterruptTimeAndDriverErrorsAreSampled) {
  // As the driver writes it, by the door that is open to root.
  const auto log = [](std::string line) {
    line += '\n';  // without, the kernel keeps it open for more
    const int fd = open("/dev/kmsg", O_WRONLY);
    const bool written =
        fd >= 0 && write(fd, line.data(), line.size()) ==
                       static_cast<ssize_t>(line.size());
    close(fd);
    return written;
  };
  const std::string xid =
      "NVRM: Xid (PCI:0000:18:00): 79, pid=2254, name=python3, a test";
  if (!log("NVRM: Xid (PCI:0000:18:00): 13, before the recording"))
    GTEST_SKIP() << "/dev/kmsg cannot be written";
  ASSERT_TRUE(companion_.Start());
  ASSERT_TRUE(log(xid));
  ASSERT_TRUE(log("another line of a test"));
  usleep(1'300'000);
  Finish();
  std::vector<std::pair<uint64_t, std::string>> xids;
  std::set<uint64_t> irq_cpus, softirq_cpus, cpus;
  for (const R& r : samples()) {
    const auto metric = static_cast<Metric>(r[sample_table::kMetric]);
    const uint64_t instance = r[sample_table::kInstance];
    if (metric == Metric::kGpuXid)
      xids.emplace_back(r[sample_table::kValue], r.text);
    if (metric == Metric::kCpuBusyNs) cpus.insert(instance);
    if (metric == Metric::kCpuIrqNs) irq_cpus.insert(instance);
    if (metric == Metric::kCpuSoftirqNs) softirq_cpus.insert(instance);
  }
  ASSERT_EQ(xids.size(), 1u);
  EXPECT_EQ(xids[0].first, 79u);
  EXPECT_EQ(xids[0].second, xid);
  EXPECT_EQ(irq_cpus, cpus);
  EXPECT_EQ(softirq_cpus, cpus);
}

}  // namespace
}  // namespace ingero::test
