// SPDX-License-Identifier: Apache-2.0
// Rows per second and bytes per row of the block codec.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/block_codec.h"
#include "base/tables.h"
#include "bench/synthetic_rows.h"

namespace ingero::bench {
namespace {

constexpr size_t kRowsPerBlock = 4096;
constexpr size_t kBlocks = 16;

// Enough different blocks that none stays in the caches or the predictors.
template <typename Source>
std::vector<Rows> MakeBlocks(const TableSchema& schema) {
  Source source(1);
  std::vector<Rows> blocks(kBlocks);
  for (Rows& rows : blocks) {
    rows.schema = &schema;
    source.Append(kRowsPerBlock, &rows);
  }
  return blocks;
}

void Report(benchmark::State& state, size_t rows, size_t bytes) {
  state.counters["rows/s"] = benchmark::Counter(
      static_cast<double>(rows), benchmark::Counter::kIsRate);
  state.counters["bytes/row"] =
      static_cast<double>(bytes) / static_cast<double>(rows);
}

template <typename Source>
void BM_Encode(benchmark::State& state, const TableSchema& schema) {
  const std::vector<Rows> blocks = MakeBlocks<Source>(schema);
  std::string out;
  size_t rows = 0, bytes = 0;
  for (auto _ : state) {
    const Rows& block = blocks[rows / kRowsPerBlock % kBlocks];
    out.clear();
    EncodeBlock(block, 0, &out);
    rows += block.size();
    bytes += out.size();
  }
  Report(state, rows, bytes);
}

template <typename Source>
void BM_Decode(benchmark::State& state, const TableSchema& schema) {
  std::vector<std::string> coded;
  for (const Rows& block : MakeBlocks<Source>(schema))
    EncodeBlock(block, 0, &coded.emplace_back());
  Rows out;
  size_t rows = 0, bytes = 0;
  for (auto _ : state) {
    const std::string& block = coded[rows / kRowsPerBlock % kBlocks];
    if (!DecodeBlock(block, schema, &out).ok()) {
      state.SkipWithError("does not decode");
      return;
    }
    rows += out.size();
    bytes += block.size();
  }
  Report(state, rows, bytes);
}

// 100 million different rows there and back, each compared; the time of
// making and comparing them is left out.
template <typename Source>
void BM_HundredMillion(benchmark::State& state, const TableSchema& schema) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kTotal = 100'000'000;
  for (auto _ : state) {
    Source source(1);
    Rows in, out;
    in.schema = &schema;
    std::string coded;
    size_t rows = 0, bytes = 0;
    Clock::duration encode{}, decode{};
    while (rows < kTotal) {
      in.Clear();
      source.Append(std::min(kRowsPerBlock, kTotal - rows), &in);
      coded.clear();
      const auto begin = Clock::now();
      EncodeBlock(in, 0, &coded);
      const auto middle = Clock::now();
      const Status status = DecodeBlock(coded, schema, &out);
      const auto end = Clock::now();
      if (!status.ok() || out.values != in.values) {
        state.SkipWithError("rows differ");
        return;
      }
      encode += middle - begin;
      decode += end - middle;
      rows += in.size();
      bytes += coded.size();
    }
    const auto seconds = [](Clock::duration d) {
      return std::chrono::duration<double>(d).count();
    };
    state.SetIterationTime(seconds(encode + decode));
    state.counters["encode_rows/s"] =
        static_cast<double>(rows) / seconds(encode);
    state.counters["decode_rows/s"] =
        static_cast<double>(rows) / seconds(decode);
    state.counters["both_rows/s"] =
        static_cast<double>(rows) / seconds(encode + decode);
    state.counters["bytes/row"] =
        static_cast<double>(bytes) / static_cast<double>(rows);
  }
}

template <typename Source>
void Register(const std::string& name, const TableSchema& schema,
              bool hundred_million) {
  const auto with_schema = [&schema](auto function) {
    return [&schema, function](benchmark::State& s) { function(s, schema); };
  };
  if (hundred_million) {
    benchmark::RegisterBenchmark((name + "/hundred_million").c_str(),
                                 with_schema(BM_HundredMillion<Source>))
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kSecond);
    return;
  }
  benchmark::RegisterBenchmark((name + "/encode").c_str(),
                               with_schema(BM_Encode<Source>));
  benchmark::RegisterBenchmark((name + "/decode").c_str(),
                               with_schema(BM_Decode<Source>));
}

}  // namespace
}  // namespace ingero::bench

int main(int argc, char** argv) {
  // Apart from the others: it takes a minute or two for each table.
  bool hundred_million = false;
  if (argc > 1 && std::string_view(argv[1]) == "--hundred-million") {
    hundred_million = true;
    std::copy(argv + 2, argv + argc, argv + 1);
    --argc;
  }
  using namespace ingero;
  bench::Register<bench::SwitchSource>("switches", switch_table::kSchema,
                                       hundred_million);
  bench::Register<bench::CallSource>("calls", call_table::kSchema,
                                     hundred_million);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
