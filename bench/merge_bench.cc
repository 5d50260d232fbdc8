// SPDX-License-Identifier: Apache-2.0
// Events per second and bytes per event of a whole merge: stream files in,
// store with attribution out, then opened and explained.
//
//   build/bench/merge_bench                       200,000 events, repeated
//   build/bench/merge_bench --events=100000000    once; needs about 5 GB
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/report.h"
#include "base/tables.h"
#include "bench/synthetic_rows.h"
#include "merge/cuda_stream.h"
#include "merge/kernel_stream.h"
#include "merge/merge.h"
#include "merge/store_trace.h"
#include "wire/wire.h"

namespace ingero::bench {
namespace {

constexpr size_t kRowsPerBlock = 4096;
constexpr uint32_t kCpus = 6;
constexpr uint32_t kPid = 1000;

ingero_stream_header Header(uint64_t magic) {
  ingero_stream_header h;
  std::memset(&h, 0, sizeof(h));
  h.magic = magic;
  h.major = INGERO_WIRE_MAJOR;
  h.header_bytes = INGERO_HEADER_BYTES;
  h.clock = INGERO_CLOCK_MONOTONIC;
  h.stream_id = magic;
  h.created_mono_ns = 5'000'000'000;
  h.clock_ticks_per_s = 100;
  h.exited = 1;
  return h;
}

class KernelStreamWriter {
 public:
  explicit KernelStreamWriter(const std::string& path)
      : out_(path, std::ios::binary) {
    std::string bytes(INGERO_HEADER_BYTES, '\0');
    const auto h = Header(INGERO_MAGIC_KERNEL);
    std::memcpy(bytes.data(), &h, sizeof(h));
    out_ << bytes;
  }
  void Block(const Rows& rows, uint32_t cpu) {
    std::string bytes;
    EncodeBlock(rows, cpu, &bytes);
    out_ << bytes;
  }

 private:
  std::ofstream out_;
};

// Each CPU has threads of its own: nobody runs on two at once.
uint64_t OnCpu(uint64_t id, uint64_t cpu) {
  return id == 0 ? 0 : id + 100'000 * cpu;
}

// Half of the events are switches: of the CPU of the calls' thread (CpuOfCalls)
// and of others...
void WriteOtherCpus(KernelStreamWriter* kernel, size_t switches) {
  std::vector<SwitchSource> sources;
  for (uint32_t cpu = 1; cpu < kCpus; ++cpu) sources.emplace_back(cpu);
  Rows rows;
  rows.schema = &switch_table::kSchema;
  for (size_t done = 0, cpu = 1; done < switches;
       done += kRowsPerBlock, cpu = cpu % (kCpus - 1) + 1) {
    rows.Clear();
    sources[cpu - 1].Append(kRowsPerBlock, &rows);
    for (size_t r = 0; r < rows.size(); ++r)
      for (const size_t c :
           {switch_table::kPrevTid, switch_table::kPrevTgid,
            switch_table::kNextTid, switch_table::kNextTgid,
            switch_table::kWakerTid, switch_table::kWakerTgid}) {
        uint64_t& id = rows.values[r * rows.columns() + c];
        id = OnCpu(id, cpu);
      }
    kernel->Block(rows, static_cast<uint32_t>(cpu));
  }
}

// The CPU on which the thread that makes the calls runs, all but asleep.
class CpuOfCalls {
 public:
  explicit CpuOfCalls(KernelStreamWriter* kernel) : kernel_(kernel) {
    rows_.schema = &switch_table::kSchema;
  }
  // Woken by `waker`; 0: by an interrupt.
  void Sleep(uint64_t begin, uint64_t end, uint64_t syscall, uint64_t waker) {
    using namespace switch_table;
    uint64_t out[kCount] = {}, in[kCount] = {};
    out[kT] = begin;
    out[kPrevTid] = out[kPrevTgid] = kPid;
    out[kPrevState] = INGERO_TASK_INTERRUPTIBLE;
    out[kPrevSyscall] = syscall + 1;
    in[kT] = end;
    in[kNextTid] = in[kNextTgid] = kPid;
    in[kWakeT] = end - 3'000;
    in[kFlags] = waker == 0 ? INGERO_WAKE_IRQ : 0;
    in[kWakerTid] = in[kWakerTgid] = waker;
    rows_.Append(out);
    rows_.Append(in);
    if (rows_.size() == kRowsPerBlock) Flush();
  }
  void Flush() {
    if (rows_.size() > 0) kernel_->Block(rows_, 0);
    rows_.Clear();
  }

 private:
  KernelStreamWriter* kernel_;
  Rows rows_;
};

// ... and half are calls of one thread: it sleeps in each synchronisation, then
// until a thread on another CPU has the next batch.
void WriteCuda(const std::string& path, size_t calls, CpuOfCalls* cpu) {
  std::ofstream out(path, std::ios::binary);
  std::string block(INGERO_BLOCK_BYTES, '\0');
  auto h = Header(INGERO_MAGIC_CUDA);
  h.block_bytes = INGERO_BLOCK_BYTES;
  h.pid = kPid;
  std::memcpy(block.data(), &h, sizeof(h));
  out << block;

  std::string records;
  uint64_t sequence = 0;
  const auto flush = [&] {
    ingero_block_header b;
    std::memset(&b, 0, sizeof(b));
    b.magic = INGERO_MAGIC_BLOCK;
    b.type = INGERO_BLOCK_DATA;
    b.slot = 1;
    b.tid = kPid;
    b.cursor = sequence++ << 32 | records.size();
    std::string bytes(reinterpret_cast<const char*>(&b), sizeof(b));
    bytes += records;
    bytes.resize(INGERO_BLOCK_BYTES);
    out << bytes;
    records.clear();
  };
  const auto add = [&](const std::string& record) {
    if (records.size() + record.size() >
        INGERO_BLOCK_BYTES - sizeof(ingero_block_header))
      flush();
    records += record;
  };
  for (uint16_t f = 0; f < 64; ++f) {
    ingero_name n;
    std::memset(&n, 0, sizeof(n));
    n.r.kind = INGERO_RECORD_NAME;
    n.r.size8 = sizeof(n) / 8 + 2;
    n.func = f;
    n.layer = f % 2 ? INGERO_LAYER_DRIVER : INGERO_LAYER_RUNTIME;
    n.func_class = f % 8 == 5 ? INGERO_CLASS_SYNC_STREAM : INGERO_CLASS_LAUNCH;
    n.words[0] = INGERO_WORD_KERNEL;
    n.words[1] = INGERO_WORD_STREAM;
    std::string record(reinterpret_cast<const char*>(&n), sizeof(n));
    record += "function" + std::to_string(f);
    record.resize(sizeof(n) + 16);
    add(record);
  }
  CallSource source(7);
  Rows rows;
  rows.schema = &call_table::kSchema;
  std::string outer;  // written after the calls that it contains
  constexpr uint64_t kPoll = 7, kFutex = 202, kWaitNs = 200'000;
  uint64_t waits = 0;
  for (size_t done = 0; done < calls; done += kRowsPerBlock) {
    rows.Clear();
    source.Append(kRowsPerBlock, &rows);
    for (size_t r = 0; r < rows.size(); ++r) {
      ingero_call c;
      std::memset(&c, 0, sizeof(c));
      c.r.kind = INGERO_RECORD_CALL;
      c.r.size8 = sizeof(c) / 8 + 2;
      c.func = static_cast<__u16>(rows.at(r, call_table::kFunc) % 64);
      c.start_ticks = rows.at(r, call_table::kT) + waits * kWaitNs;
      // The next call begins 2 us later at least: calls of one thread nest or
      // follow each other, they never overlap.
      const bool sync = rows.at(r, call_table::kDuration) > 100'000;
      c.duration_lo =
          sync ? static_cast<__u32>(rows.at(r, call_table::kDuration)) : 1500;
      c.depth = static_cast<__u8>(rows.at(r, call_table::kDepth));
      if (sync) {
        const uint64_t end = c.start_ticks + c.duration_lo;
        cpu->Sleep(c.start_ticks + 20'000, end - 5'000, kPoll, 0);
        ++waits;
        const uint64_t other = 1 + waits % (kCpus - 1);
        cpu->Sleep(end + 1'000, end + kWaitNs - 5'000, kFutex,
                   OnCpu(41'203, other));
      }
      const uint64_t words[] = {rows.at(r, call_table::kWord0),
                                rows.at(r, call_table::kWord1)};
      std::string record(reinterpret_cast<const char*>(&c), sizeof(c));
      record.append(reinterpret_cast<const char*>(words), sizeof(words));
      if (c.depth == 0) {
        if (!outer.empty()) add(outer);
        outer = record;
      } else {
        // Its outer call, written later, contains it.
        ingero_call o;
        std::memcpy(&o, outer.data(), sizeof(o));
        o.duration_lo = static_cast<__u32>(c.start_ticks + c.duration_lo + 100 -
                                           o.start_ticks);
        std::memcpy(outer.data(), &o, sizeof(o));
        add(record);
      }
    }
  }
  if (!outer.empty()) add(outer);
  flush();
  cpu->Flush();
}

void WriteStreams(const std::string& folder, size_t events) {
  KernelStreamWriter kernel(folder + "/kernel-1-1.ingero");
  WriteOtherCpus(&kernel, events / 2);
  CpuOfCalls cpu(&kernel);
  WriteCuda(folder + "/cuda-1000-1.ingero", events / 2, &cpu);
}

double SecondsSince(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t)
      .count();
}

struct Folder {
  std::string path;
  Folder() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "ingero-bench-XXXXXX")
            .string();
    path = mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

// CPU time of the whole process: what the wall clock says under load is the
// machine's affair.
double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

struct Cost {
  double wall_s = 0, cpu_s = 0;
};

class Stopwatch {
 public:
  // Since the construction, or the last of these calls.
  Cost Lap() {
    const Cost c{SecondsSince(wall_), CpuSeconds() - cpu_};
    wall_ = std::chrono::steady_clock::now();
    cpu_ = CpuSeconds();
    return c;
  }

 private:
  std::chrono::steady_clock::time_point wall_ = std::chrono::steady_clock::now();
  double cpu_ = CpuSeconds();
};

[[noreturn]] void Fail(const Status& status) {
  std::fprintf(stderr, "merge_bench: %s\n", status.message().c_str());
  std::exit(1);
}

// What any merge must do at least: read and decode every event once.
uint64_t ReadAndDecode(const std::string& folder) {
  uint64_t rows = 0;
  auto kernel = merge::KernelStream::Open(folder + "/kernel-1-1.ingero", true);
  if (!kernel.ok()) Fail(kernel.status());
  std::string bytes;
  Rows decoded;
  for (const merge::BlockRef& ref : (*kernel)->blocks()) {
    Status s = (*kernel)->Read(ref, &bytes);
    if (s.ok()) s = DecodeBlock(bytes, switch_table::kSchema, &decoded);
    if (!s.ok()) Fail(s);
    rows += decoded.size();
  }
  auto cuda = merge::CudaStream::Open(folder + "/cuda-1000-1.ingero");
  if (!cuda.ok()) Fail(cuda.status());
  merge::CallReader reader(**cuda);
  merge::WireCall call;
  while (reader.Next(&call)) ++rows;
  return rows;
}

int g_decoders = -1;

merge::MergeSummary MergeOnce(
    const std::string& folder, int run,
    std::function<void(const std::string&)> stage = nullptr) {
  merge::MergeOptions options;
  options.dirs = {folder};
  options.output = folder + "/" + std::to_string(run);
  options.decoders = g_decoders;
  if (stage)
    options.progress = [&stage](const std::string& name, double, uint64_t) {
      stage(name);
    };
  auto summary = merge::Merge(options);
  if (!summary.ok()) Fail(summary.status());
  return *summary;
}

void BM_Merge(benchmark::State& state) {
  const auto events = static_cast<size_t>(state.range(0));
  Folder folder;
  WriteStreams(folder.path, events);
  int run = 0;
  uint64_t merged = 0, bytes = 0, rows = 0;
  for (auto _ : state) {
    const auto summary = MergeOnce(folder.path, run++);
    rows = summary.calls + summary.switches;
    merged += rows;
    bytes = summary.store_bytes;
  }
  state.counters["events/s"] = benchmark::Counter(
      static_cast<double>(merged), benchmark::Counter::kIsRate);
  state.counters["bytes/event"] =
      static_cast<double>(bytes) / static_cast<double>(rows);
}
BENCHMARK(BM_Merge)->Arg(200'000)->Unit(benchmark::kMillisecond)->UseRealTime();

// One big merge, then what a user waits for.
void Once(size_t events) {
  Folder folder;
  WriteStreams(folder.path, events);
  Stopwatch watch;
  const auto decoded = static_cast<double>(ReadAndDecode(folder.path));
  const Cost decode = watch.Lap();
  std::printf("%-24s %8.2f s, CPU %8.2f s: %.2f M events/s\n",
              "read and decode", decode.wall_s, decode.cpu_s,
              decoded / decode.wall_s / 1e6);

  std::vector<std::pair<std::string, Cost>> stages;
  Stopwatch stage_watch;
  Stopwatch merge_watch;
  const auto summary = MergeOnce(folder.path, 0, [&](const std::string& name) {
    if (!stages.empty() && stages.back().first == name) return;
    const Cost lap = stage_watch.Lap();
    if (!stages.empty()) stages.back().second = lap;
    stages.push_back({name, {}});
  });
  const Cost merge = merge_watch.Lap();
  for (const auto& [name, cost] : stages)
    std::printf("  %-22s %8.2f s, CPU %8.2f s\n", name.c_str(), cost.wall_s,
                cost.cpu_s);
  rusage merged;
  getrusage(RUSAGE_SELF, &merged);
  auto begin = std::chrono::steady_clock::now();
  auto store = merge::OpenStore(summary.store_path);
  if (!store.ok()) Fail(store.status());
  const double open_s = SecondsSince(begin);
  begin = std::chrono::steady_clock::now();
  const auto report = analysis::BuildReport(**store, {});
  const double report_s = SecondsSince(begin);
  const auto rows =
      static_cast<double>(summary.calls + summary.switches);
  std::printf(
      "%-24s %8.2f s, CPU %8.2f s: %.2f M events/s, %.2f of decoding's speed\n"
      "%.0f events, peak memory %ld MiB, store %.2f bytes/event; opened in "
      "%.2f s, report in %.2f s\n",
      "merge", merge.wall_s, merge.cpu_s, rows / merge.wall_s / 1e6,
      decode.wall_s / merge.wall_s, rows, merged.ru_maxrss / 1024,
      static_cast<double>(summary.store_bytes) / rows, open_s, report_s);
}

}  // namespace
}  // namespace ingero::bench

int main(int argc, char** argv) {
  size_t events = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--events=", 9) == 0)
      events = std::strtoull(argv[i] + 9, nullptr, 10);
    if (std::strncmp(argv[i], "--decoders=", 11) == 0)
      ingero::bench::g_decoders = std::atoi(argv[i] + 11);
  }
  if (events > 0) {
    ingero::bench::Once(events);
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
