// SPDX-License-Identifier: Apache-2.0
// Kernel streams into the store: blocks, small ones joined, and what one pass over
// all switches and tasks in time order yields: processes and threads,
// keyframes, scheduling by second, and the switches that the kernel did not
// show (breaks in a CPU's chain).
//
// Memory: one state a thread, one decoded block a CPU and two a decoder.
#ifndef INGERO_MERGE_KERNEL_INGEST_H_
#define INGERO_MERGE_KERNEL_INGEST_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "merge/clock_map.h"
#include "merge/kernel_stream.h"
#include "merge/lives.h"
#include "merge/store.h"

namespace ingero::merge {

// A process with a CUDA library, as the companion saw it.
struct CudaProcess {
  Ns t;
  uint32_t pid = 0;
  uint64_t seen = 0;  // enum ingero_cuda_process
  std::string library;
};

struct KernelFacts {
  uint64_t switches = 0, tasks = 0, samples = 0;
  std::vector<Interval> spans;  // in which switches were recorded
  std::vector<Knot> knots;      // host-wide
  uint64_t cpus = 0;            // online; 0 = not known
  uint64_t page_cost_ns = 0;    // 0 = not measured
  uint64_t memory_stalls = 0;   // reclaim and compaction rows
  std::string scope;            // whose switches were recorded; "" = all
  uint64_t left_out = 0;        // switches of others
  std::vector<CudaProcess> cuda_processes;
};

// `streams` by begin. Where two recorded the same time, the earlier counts.
// decoders: threads that decode blocks ahead. progress: fraction done, rows so
// far.
Status IngestKernel(const std::vector<std::unique_ptr<KernelStream>>& streams,
                    size_t decoders, StoreWriter* writer, Lives* lives,
                    KernelFacts* facts,
                    const std::function<void(double, uint64_t)>& progress);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_KERNEL_INGEST_H_
