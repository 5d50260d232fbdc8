// SPDX-License-Identifier: Apache-2.0
// What the companion's programs add to a context switch and to a page touch.
//
//   sudo kernel_bench [rounds [cgroup]]
//   sudo kernel_bench rounds --cpus 1,2,4,8,15
//
// Pipe ping-pong of two processes on the last CPU, and touching of fresh
// pages, in windows of 60 ms that alternate between: no program, an empty one,
// a bare 48-byte ring record, that and a look at the clock at each waking (the
// least that knowing the waker needs), all of ours, and those with --tree where
// the ping-pong is of the tree and where it is not, and with --pages raw.
// CPU time, which other load on the machine changes less than time passed.
// Medians of the differences to "none" of the same round; the last column is
// the ratio to the bare record. Then what the kernel itself measures: ns within
// each program beyond those within an empty one, without what attaching one
// costs; quiet, since nothing but the program's own runs counts.
// --cpus: what ours add with a ping-pong on so many CPUs at once (CPU 0 reads);
// budget: at most 1.2 times what they add on one.
// cgroup: the folder of one to run in, as /sys/fs/cgroup/cpu/a/b; threads below
// the root group cost more, since a CPU quota may hold them.
// Budgets: ours at most 1.6x bare per switch; at most 30 ns a page.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernel_probe/loader.h"
#include "kernel_probe/options.h"
#include "kernel_probe/switch_ring.h"

namespace {

using Clock = std::chrono::steady_clock;
using ingero::kernel_probe::Loader;
constexpr auto kWindow = std::chrono::milliseconds(60);

// Variants of the companion: as it is; the ping-pong of the tree that --tree
// names; not of it; --pages raw.
constexpr const char* kOurs[] = {"ours", "tree", "beside", "raw"};
constexpr const char* kModes[] = {"none", "empty",  "bare", "waking", "ours",
                                  "tree", "beside", "raw"};

void Pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::exit(1);
}

double CpuNs(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

// A partner that echoes a byte; it and the thread that measures share one CPU.
class PingPong {
 public:
  explicit PingPong(int cpu) : cpu_(cpu) {
    Pin(cpu_);
    if (pipe(there_) != 0 || pipe(back_) != 0) Die("pipe");
    child_ = fork();
    if (child_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      char c;
      while (read(there_[0], &c, 1) == 1 && write(back_[1], &c, 1) == 1)
        continue;
      _exit(0);
    }
  }
  ~PingPong() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  // ns per switch.
  double Measure() {
    Pin(cpu_);
    char c = 0;
    long rounds = 0;
    clockid_t child;
    if (clock_getcpuclockid(child_, &child) != 0) Die("clock_getcpuclockid");
    const double cpu = CpuNs(CLOCK_THREAD_CPUTIME_ID) + CpuNs(child);
    const auto begin = Clock::now();
    auto now = begin;
    while (now - begin < kWindow) {
      for (int i = 0; i < 100; ++i)
        if (write(there_[1], &c, 1) != 1 || read(back_[0], &c, 1) != 1)
          Die("ping-pong");
      rounds += 100;
      now = Clock::now();
    }
    return (CpuNs(CLOCK_THREAD_CPUTIME_ID) + CpuNs(child) - cpu) /
           (2.0 * static_cast<double>(rounds));
  }

 private:
  int cpu_;
  int there_[2], back_[2];
  pid_t child_;
};

// ns per switch, of all of them at once.
double MeasureAll(std::vector<PingPong>* pairs) {
  std::vector<double> ns(pairs->size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < pairs->size(); ++i)
    threads.emplace_back([&, i] { ns[i] = (*pairs)[i].Measure(); });
  double sum = 0;
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i].join();
    sum += ns[i];
  }
  return sum / static_cast<double>(ns.size());
}

// ns per fresh page, with what returning it costs: always the same few pages,
// which stay in the cache, so that no other's use of the memory shows.
double TouchPages() {
  constexpr size_t kBytes = 64 * 4096;
  static char* const memory = [] {
    void* m = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) Die("mmap");
    madvise(m, kBytes, MADV_NOHUGEPAGE);
    return static_cast<char*>(m);
  }();
  long pages = 0;
  const double from = CpuNs(CLOCK_THREAD_CPUTIME_ID);
  const auto begin = Clock::now();
  while (Clock::now() - begin < kWindow) {
    for (size_t i = 0; i < kBytes; i += 4096)
      static_cast<volatile char*>(memory)[i] = 1;
    madvise(memory, kBytes, MADV_DONTNEED);
    pages += kBytes / 4096;
  }
  return (CpuNs(CLOCK_THREAD_CPUTIME_ID) - from) / static_cast<double>(pages);
}

double Median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

int Ignore(void*, void*, size_t) { return 0; }

// What the kernel measured of a program.
struct Within {
  uint64_t runs = 0, run_ns = 0;
  double ns() const {
    return static_cast<double>(run_ns) /
           static_cast<double>(std::max<uint64_t>(runs, 1));
  }
};

Within Measured(const bpf_program* program) {
  bpf_prog_info info{};
  uint32_t size = sizeof(info);
  if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size) != 0)
    Die("reading a program's statistics");
  return {info.run_cnt, info.run_time_ns};
}

using Values = std::map<std::string, std::vector<double>>;

// Median of the differences to "none" of the same round.
double Added(const Values& ns, const std::string& mode) {
  std::vector<double> differences;
  const std::vector<double>& none = ns.at("none");
  for (size_t r = 0; r < none.size(); ++r)
    differences.push_back(ns.at(mode)[r] - none[r]);
  return Median(differences);
}

std::vector<int> ParseCpus(const char* text) {
  std::vector<int> counts;
  for (const char* at = text; *at != '\0';) {
    char* end;
    counts.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    if (end == at || counts.back() < 1) return {};
    at = *end == ',' ? end + 1 : end;
  }
  return counts;
}

// How what ours add grows with the number of CPUs that switch at once.
int MeasureScaling(Loader* loader,
                   const std::vector<int>& counts, int cpus, int rounds) {
  std::map<int, Values> ns;
  for (const int count : counts) {
    if (count > cpus - 1) {
      std::fprintf(stderr, "kernel_bench: --cpus %d: there are %d, and CPU 0 "
                   "reads\n", count, cpus);
      return 1;
    }
    std::vector<PingPong> pairs;
    pairs.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) pairs.emplace_back(cpus - 1 - i);
    if (!loader->AttachTaskProbes().ok()) Die("attaching");
    loader->DumpTasks();
    loader->Detach();
    for (int round = 0; round < rounds; ++round)
      for (const char* mode : {"none", "ours"}) {
        if (std::string(mode) == "ours" &&
            (!loader->AttachTaskProbes().ok() ||
             !loader->AttachScheduler().ok()))
          Die("attaching");
        ns[count][mode].push_back(MeasureAll(&pairs));
        loader->Detach();
      }
  }
  std::printf("%-6s %16s %16s %12s\n", "CPUs", "ns per switch", "ours add",
              "x one CPU");
  const double one = Added(ns.at(counts[0]), "ours");
  for (const int count : counts) {
    const double added = Added(ns.at(count), "ours");
    std::printf("%-6d %16.0f %16.0f %12.2f\n", count,
                Median(ns.at(count)["none"]), added, added / one);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 21;
  const bool scaling = argc > 2 && std::string(argv[2]) == "--cpus";
  const std::vector<int> counts =
      scaling && argc > 3 ? ParseCpus(argv[3]) : std::vector<int>();
  if (rounds < 1 || (scaling && counts.empty())) {
    std::fprintf(stderr, "kernel_bench: usage: kernel_bench [rounds [cgroup]], "
                 "or kernel_bench rounds --cpus 1,2,4\n");
    return 2;
  }
  if (argc > 2 && !scaling) {
    const std::string procs = std::string(argv[2]) + "/cgroup.procs";
    std::FILE* file = std::fopen(procs.c_str(), "w");
    if (file == nullptr || std::fputs("0", file) < 0 || std::fclose(file) != 0)
      Die(procs.c_str());
  }
  setpriority(PRIO_PROCESS, 0, -20);
  const int cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  // A process that is not ours, for a tree that the ping-pong is not of.
  const pid_t bystander = fork();
  if (bystander == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  std::map<std::string, std::unique_ptr<Loader>> loaders;
  for (const char* mode : kOurs) {
    ingero::kernel_probe::LoaderOptions options;
    options.ring_bytes = 16u << 20;
    options.raw_pages = std::string(mode) == "raw";
    if (std::string(mode) == "tree" || std::string(mode) == "beside") {
      options.tree.emplace_back().pid = static_cast<uint32_t>(
          std::string(mode) == "tree" ? getpid() : bystander);
      if (!ingero::kernel_probe::FindRoots(&options.tree).ok())
        Die("finding the tree");
    }
    auto loader = Loader::Load(options);
    if (!loader.ok()) {
      std::fprintf(stderr, "kernel_bench: %s\n",
                   loader.status().message().c_str());
      return 1;
    }
    loaders[mode] = std::move(*loader);
  }
  bpf_object* object = bpf_object__open_file(BENCH_OBJECT, nullptr);
  if (object == nullptr || bpf_object__load(object) != 0)
    Die("loading " BENCH_OBJECT);
  const auto program = [&](const char* name) {
    return bpf_object__find_program_by_name(object, name);
  };

  // The reader, on another CPU, as the companion's: it polls.
  ring_buffer* rings = ring_buffer__new(
      bpf_object__find_map_fd_by_name(object, "ring"), Ignore, nullptr,
      nullptr);
  if (rings == nullptr) Die("ring");
  std::vector<ingero::kernel_probe::SwitchRing> switches;
  for (const auto& [mode, l] : loaders) {
    for (uint32_t cpu = 0; cpu < static_cast<uint32_t>(l->cpus()); ++cpu)
      switches.emplace_back(l->switch_slots() + size_t{cpu} * l->ring_slots(),
                            l->ring_slots(), l->cpu_states() + cpu);
    for (const int fd : l->page_ring_fds())
      ring_buffer__add(rings, fd, Ignore, nullptr);
    ring_buffer__add(rings, l->task_ring_fd(), Ignore, nullptr);
  }
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    Pin(0);
    while (!stop) {
      ring_buffer__consume(rings);
      for (auto& ring : switches)
        ring.Take([](const ingero_ring_switch&,
                     const ingero_ring_switch_more&) {});
      usleep(5000);
    }
  });

  if (scaling) {
    const int status =
        MeasureScaling(loaders["ours"].get(), counts, cpus, rounds);
    stop = true;
    reader.join();
    return status;
  }
  PingPong ping_pong(cpus - 1);
  // Storage exists before the first switch, as in a recording.
  for (const auto& [mode, loader] : loaders) {
    if (!loader->AttachTaskProbes().ok()) Die("attaching");
    loader->DumpTasks();
    loader->Detach();
  }

  std::vector<bpf_link*> links;
  const auto attach = [&](const std::string& mode) {
    if (mode == "empty") {
      links.push_back(bpf_program__attach(program("empty")));
      links.push_back(bpf_program__attach(program("empty_page")));
    } else if (mode == "bare") {
      links.push_back(bpf_program__attach(program("bare")));
    } else if (mode == "waking") {
      links.push_back(bpf_program__attach(program("bare")));
      links.push_back(bpf_program__attach(program("clock_only")));
    } else if (const auto it = loaders.find(mode); it != loaders.end()) {
      if (!it->second->AttachTaskProbes().ok() ||
          !it->second->AttachScheduler().ok())
        Die("attaching");
    }
  };
  const auto detach = [&] {
    for (bpf_link* link : links) bpf_link__destroy(link);
    links.clear();
    for (const auto& [mode, loader] : loaders) loader->Detach();
  };
  Values switch_ns, page_ns;
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < std::size(kModes); ++i) {
      // Another order each round.
      const std::string mode =
          kModes[(i + static_cast<size_t>(round)) % std::size(kModes)];
      attach(mode);
      switch_ns[mode].push_back(ping_pong.Measure());
      page_ns[mode].push_back(TouchPages());
      detach();
    }
  }
  // Apart from these, since counting adds to each run.
  const int statistics = bpf_enable_stats(BPF_STATS_RUN_TIME);
  for (int round = 0; statistics >= 0 && round < rounds; ++round) {
    for (const char* mode : kModes) {
      attach(mode);
      (void)ping_pong.Measure();
      (void)TouchPages();
      detach();
    }
  }
  stop = true;
  reader.join();

  const double bare = Added(switch_ns, "bare");
  std::printf("switch: %.0f ns without a program (pipe, one CPU)\n",
              Median(switch_ns["none"]));
  std::printf("page:   %.0f ns without a program\n", Median(page_ns["none"]));
  std::printf("%-6s %14s %12s %12s\n", "", "ns per switch", "ns per page",
              "x bare");
  for (const char* mode : kModes)
    if (std::string(mode) != "none")
      std::printf("%-6s %14.0f %12.0f %12.2f\n", mode, Added(switch_ns, mode),
                  Added(page_ns, mode), Added(switch_ns, mode) / bare);
  // A full ring costs something else.
  for (const auto& [mode, loader] : loaders) {
    uint64_t lost = 0;
    for (int cpu = 0; cpu < loader->cpus(); ++cpu)
      lost += loader->cpu_states()[cpu].lost[INGERO_CPU_LOST_SWITCH].count;
    if (lost > 0)
      std::printf("%s: %lu switches found the ring full\n", mode.c_str(), lost);
  }
  if (statistics >= 0) {
    std::printf("\nns within a program, beyond those within an empty one:\n"
                "%-6s %14s %12s %12s\n", "", "sched_switch", "waking",
                "page_alloc");
    const Within empty = Measured(program("empty")),
                 empty_page = Measured(program("empty_page"));
    std::printf("%-6s %14.0f %12s %12.0f (as measured)\n", "empty", empty.ns(),
                "", empty_page.ns());
    std::printf("%-6s %14.0f %12.0f\n", "bare",
                Measured(program("bare")).ns() - empty.ns(),
                Measured(program("clock_only")).ns() - empty.ns());
    for (const char* mode : kOurs) {
      std::map<std::string, Within> by;
      for (const auto& state : loaders[mode]->States())
        by[state.tracepoint] = {state.runs, state.run_ns};
      std::printf("%-6s %14.0f %12.0f %12.0f\n", mode,
                  by["sched_switch"].ns() - empty.ns(),
                  by["sched_waking"].ns() - empty.ns(),
                  by["mm_page_alloc"].ns() - empty_page.ns());
    }
  }
  kill(bystander, SIGKILL);
  waitpid(bystander, nullptr, 0);
  ring_buffer__free(rings);
  bpf_object__close(object);
  return 0;
}
