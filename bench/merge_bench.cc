// SPDX-License-Identifier: Apache-2.0
// Events per second and bytes per event of a whole merge: stream files in,
// store with attribution out, then opened and explained.
//
//   build/bench/merge_bench                       200,000 events, repeated
//   build/bench/merge_bench --events=100000000    once; needs about 5 GB
#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "analysis/report.h"
#include "base/tables.h"
#include "bench/synthetic_rows.h"
#include "merge/merge.h"
#include "merge/store_trace.h"
#include "wire/wire.h"

namespace ingero::bench {
namespace {

constexpr size_t kRowsPerBlock = 4096;
constexpr uint32_t kCpus = 4;

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

// Half of the events are switches of four CPUs...
void WriteKernel(const std::string& path, size_t switches) {
  std::ofstream out(path, std::ios::binary);
  std::string bytes(INGERO_HEADER_BYTES, '\0');
  const auto h = Header(INGERO_MAGIC_KERNEL);
  std::memcpy(bytes.data(), &h, sizeof(h));
  out << bytes;
  std::vector<SwitchSource> sources;
  for (uint32_t cpu = 0; cpu < kCpus; ++cpu) sources.emplace_back(cpu + 1);
  Rows rows;
  rows.schema = &switch_table::kSchema;
  for (size_t done = 0, cpu = 0; done < switches;
       done += kRowsPerBlock, cpu = (cpu + 1) % kCpus) {
    rows.Clear();
    sources[cpu].Append(kRowsPerBlock, &rows);
    // Each CPU has threads of its own: nobody runs on two at once.
    for (size_t r = 0; r < rows.size(); ++r)
      for (const size_t c :
           {switch_table::kPrevTid, switch_table::kPrevTgid,
            switch_table::kNextTid, switch_table::kNextTgid,
            switch_table::kWakerTid, switch_table::kWakerTgid})
        if (uint64_t& id = rows.values[r * rows.columns() + c]; id != 0)
          id += 100'000 * (cpu + 1);
    bytes.clear();
    EncodeBlock(rows, static_cast<uint32_t>(cpu), &bytes);
    out << bytes;
  }
}

// ... and half are calls of one thread.
void WriteCuda(const std::string& path, size_t calls) {
  std::ofstream out(path, std::ios::binary);
  std::string block(INGERO_BLOCK_BYTES, '\0');
  auto h = Header(INGERO_MAGIC_CUDA);
  h.block_bytes = INGERO_BLOCK_BYTES;
  h.pid = 1000;
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
    b.tid = 1000;
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
  for (size_t done = 0; done < calls; done += kRowsPerBlock) {
    rows.Clear();
    source.Append(kRowsPerBlock, &rows);
    for (size_t r = 0; r < rows.size(); ++r) {
      ingero_call c;
      std::memset(&c, 0, sizeof(c));
      c.r.kind = INGERO_RECORD_CALL;
      c.r.size8 = sizeof(c) / 8 + 2;
      c.func = static_cast<__u16>(rows.at(r, call_table::kFunc) % 64);
      c.start_ticks = rows.at(r, call_table::kT);
      // The next call begins 2 us later at least: calls of one thread nest or
      // follow each other, they never overlap.
      const bool sync = rows.at(r, call_table::kDuration) > 100'000;
      c.duration_lo =
          sync ? static_cast<__u32>(rows.at(r, call_table::kDuration)) : 1500;
      c.depth = static_cast<__u8>(rows.at(r, call_table::kDepth));
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

merge::MergeSummary MergeOnce(const std::string& folder, int run) {
  merge::MergeOptions options;
  options.dirs = {folder};
  options.output = folder + "/" + std::to_string(run);
  auto summary = merge::Merge(options);
  if (!summary.ok()) {
    std::fprintf(stderr, "merge_bench: %s\n",
                 summary.status().message().c_str());
    std::exit(1);
  }
  return *summary;
}

void BM_Merge(benchmark::State& state) {
  const auto events = static_cast<size_t>(state.range(0));
  Folder folder;
  WriteKernel(folder.path + "/kernel-1-1.ingero", events / 2);
  WriteCuda(folder.path + "/cuda-1000-1.ingero", events / 2);
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
  WriteKernel(folder.path + "/kernel-1-1.ingero", events / 2);
  WriteCuda(folder.path + "/cuda-1000-1.ingero", events / 2);
  auto begin = std::chrono::steady_clock::now();
  const auto summary = MergeOnce(folder.path, 0);
  const double merge_s = SecondsSince(begin);
  rusage merged;
  getrusage(RUSAGE_SELF, &merged);
  begin = std::chrono::steady_clock::now();
  auto store = merge::OpenStore(summary.store_path);
  if (!store.ok()) {
    std::fprintf(stderr, "merge_bench: %s\n",
                 store.status().message().c_str());
    std::exit(1);
  }
  const double open_s = SecondsSince(begin);
  begin = std::chrono::steady_clock::now();
  const auto report = analysis::BuildReport(**store, {});
  const double report_s = SecondsSince(begin);
  const auto rows =
      static_cast<double>(summary.calls + summary.switches);
  std::printf(
      "%.0f events: merged in %.1f s (%.2f M events/s), peak memory %ld MiB, "
      "store %.2f bytes/event; opened in %.2f s, report in %.2f s\n",
      rows, merge_s, rows / merge_s / 1e6, merged.ru_maxrss / 1024,
      static_cast<double>(summary.store_bytes) / rows, open_s, report_s);
}

}  // namespace
}  // namespace ingero::bench

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--events=", 9) == 0) {
      ingero::bench::Once(std::strtoull(argv[i] + 9, nullptr, 10));
      return 0;
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
