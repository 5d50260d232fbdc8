// SPDX-License-Identifier: Apache-2.0
// Code streams into the store: where threads were in their code, joined with
// the CUDA call that they were in.
//
// In two passes over the stream: the first, while processes and threads are
// still being found, learns whose the numbers in it are; the second, once calls
// are in the store, writes rows. Memory: the places, the threads, and of each
// process with calls a cursor over them.
#ifndef INGERO_MERGE_CODE_INGEST_H_
#define INGERO_MERGE_CODE_INGEST_H_

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "merge/kernel_stream.h"
#include "merge/lives.h"
#include "merge/trace_reader.h"

namespace ingero::merge {

class CodeIngest {
 public:
  explicit CodeIngest(std::unique_ptr<KernelStream> stream)
      : stream_(std::move(stream)) {}

  // First pass. `first_line`: rows of code_lines that others have taken.
  void Learn(uint32_t first_line, Lives* lives);
  // Second pass: calls put(process, row of code_table).
  using Put =
      std::function<void(analysis::ProcessIndex, std::span<const uint64_t>)>;
  void Write(const TraceReader& trace, const Put& put) const;

  const KernelStream& stream() const { return *stream_; }
  struct Line {
    uint32_t line = 0;
    uint64_t flags = 0;
    std::string text;  // file NUL function
  };
  // Rows of code_lines, from first_line on.
  const std::vector<Line>& lines() const { return lines_; }
  // Without those of processes that nothing else tells of.
  uint64_t samples() const { return samples_; }
  uint64_t damaged() const { return damaged_; }  // rows of no sense, blocks
  uint64_t cpu_ns() const { return cpu_ns_; }
  uint64_t hz() const { return hz_; }
  struct Lost {
    uint64_t t, end, loss, count;
  };
  struct Problem {
    analysis::ProcessIndex process;
    std::string text;
  };
  // Whose code was not looked at, and why.
  const std::vector<Problem>& problems() const { return problems_; }
  const std::vector<Lost>& losses() const { return losses_; }

 private:
  struct Life {
    Ns from;
    analysis::ProcessIndex process = analysis::kNone;
  };
  struct ThreadLife {
    Ns from;
    uint32_t tid = 0;  // as the store has it
  };
  const Life* LifeAt(uint32_t pid, Ns t) const;

  std::unique_ptr<KernelStream> stream_;
  std::unordered_map<uint64_t, uint32_t> line_of_;  // place -> row
  std::vector<Line> lines_;
  std::unordered_map<uint32_t, std::vector<Life>> lives_;  // by pid
  // (process, tid in the stream) -> by time
  std::unordered_map<uint64_t, std::vector<ThreadLife>> threads_;
  std::vector<Lost> losses_;
  std::vector<Problem> problems_;
  uint64_t samples_ = 0, damaged_ = 0, cpu_ns_ = 0, hz_ = 0;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_CODE_INGEST_H_
