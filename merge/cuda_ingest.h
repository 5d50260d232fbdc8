// SPDX-License-Identifier: Apache-2.0
// CUDA streams into the store: calls on the common clock with host thread ids,
// what a copy's host memory is, first calls, and summaries by second.
//
// Memory: one block of rows, one second of histograms, the known memory
// ranges.
#ifndef INGERO_MERGE_CUDA_INGEST_H_
#define INGERO_MERGE_CUDA_INGEST_H_

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "merge/clock_map.h"
#include "merge/cuda_stream.h"
#include "merge/lives.h"
#include "merge/store.h"

namespace ingero::merge {

// Functions of all streams: ids are stream-local, what they mean is not.
class FunctionTable {
 public:
  uint32_t Index(const WireFunction& function);
  const std::vector<WireFunction>& functions() const { return functions_; }

 private:
  std::map<std::tuple<std::string, uint8_t, uint8_t,
                      std::array<uint8_t, INGERO_CALL_WORDS_MAX>>,
           uint32_t>
      index_;
  std::vector<WireFunction> functions_;
};

struct CudaTarget {
  analysis::ProcessIndex process = analysis::kNone;
  const ClockMap* clock = nullptr;
  // End of calls that have none: the process's or the trace's.
  Ns end_of_unfinished;
  // No call can lie outside; one that claims to is damaged.
  Interval plausible;
};

struct IngestedCalls {
  uint64_t count = 0;
  uint64_t layers = 0;  // bit per enum ingero_layer
  uint64_t damaged = 0;  // left out: outside CudaTarget::plausible
  uint64_t nesting_violations = 0;
};

// Writes the calls of one stream.
Result<IngestedCalls> IngestCalls(const CudaStream& stream, const CudaTarget& target,
                             FunctionTable* functions, Lives* lives,
                             StoreWriter* writer,
                             const std::function<void(uint64_t)>& progress);

struct IngestedRanges {
  uint64_t count = 0;
  uint64_t damaged = 0;  // left out: after CudaTarget::plausible
};

// Writes the NVTX ranges of one stream.
Result<IngestedRanges> IngestRanges(const CudaStream& stream,
                                    const CudaTarget& target, Lives* lives,
                                    StoreWriter* writer);

// Writes what GPUs did, as one stream tells it.
Result<IngestedRanges> IngestGpuActivity(const CudaStream& stream,
                                         const CudaTarget& target,
                                         StoreWriter* writer);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_CUDA_INGEST_H_
