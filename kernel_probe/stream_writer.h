// SPDX-License-Identifier: Apache-2.0
// The kernel stream file: header, then coded blocks, each written whole.
//
// Push() never waits for the disk: it hands rows to the writer thread, which
// codes and writes them. Rows waiting are bounded; over the bound Push()
// refuses and the caller counts the loss (LOSS_WRITER_BEHIND). Buffers go back
// to their pushers, so a steady state allocates nothing.
//
// Threads:    Push, Spare and the counters from any; one thread within.
// Errors:     a failed write cuts the file back to its last whole block, counts
//             LOSS_WRITE_FAILED and goes on trying with later blocks. Rows of
//             losses are not given up: they are tried again with each block,
//             and what could not be told by rows at last goes into the header,
//             whose place on the disk exists.
// Invariants: at any instant the file is a header and whole blocks, but for
//             what a kill leaves of the last one.
#ifndef INGERO_KERNEL_PROBE_STREAM_WRITER_H_
#define INGERO_KERNEL_PROBE_STREAM_WRITER_H_

#include <blockingconcurrentqueue.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/block_codec.h"
#include "base/file.h"
#include "base/status.h"
#include "wire/wire.h"

namespace ingero::kernel_probe {

inline constexpr uint64_t kDefaultQueueBytes = 128u << 20;

// The header of a new kernel stream, for this process and host.
ingero_stream_header MakeStreamHeader();

class StreamWriter {
 public:
  // Takes a file just created, at offset 0.
  StreamWriter(Fd file, uint64_t queue_bytes = kDefaultQueueBytes);
  ~StreamWriter();
  StreamWriter(const StreamWriter&) = delete;

  // Before Start.
  Status WriteHeader(const ingero_stream_header& header);
  // Starts the thread.
  void Start();
  // An empty buffer for rows of `schema`.
  Rows Spare(const TableSchema& schema);
  // False: over the bound, *rows is untouched. Rows that must not be lost for
  // lack of memory (losses, knots) go in with `always`.
  [[nodiscard]] bool Push(Rows* rows, uint32_t owner, bool always = false);
  // Writes what is queued, stops the thread, writes the losses of the writer
  // itself. The outcome of the last write.
  // REQUIRES: all pushers are done.
  Status Finish();

  uint64_t bytes_written() const { return bytes_written_; }
  // Rows lost by failed writes, of all tables and of one.
  uint64_t rows_failed() const { return rows_failed_; }
  uint64_t rows_failed(const TableSchema& schema) const {
    return rows_failed_of_[schema.id];
  }

 private:
  struct Block {
    Rows rows;
    uint32_t owner = 0;
    bool stop = false;
  };
  void Run();
  void Write(const Block& block);
  void OnFailure(const Block& block);
  // What rows did not tell.
  void WriteLossesToHeader();

  Fd file_;
  const uint64_t queue_bytes_;
  std::atomic<uint64_t> queued_bytes_{0};
  std::atomic<uint64_t> bytes_written_{0};
  std::atomic<uint64_t> rows_failed_{0};
  std::array<std::atomic<uint64_t>, 16> rows_failed_of_{};  // by table
  moodycamel::BlockingConcurrentQueue<Block> queue_;
  moodycamel::ConcurrentQueue<Rows> spares_;
  std::thread thread_;
  // Of the writer thread.
  std::string coded_;
  Status last_write_;
  uint64_t failed_first_ns_ = 0, failed_last_ns_ = 0, failed_unreported_ = 0;
  std::vector<Block> losses_;  // not yet written; rows of losses
  std::map<uint32_t, uint64_t> untold_;  // losses beyond these, by enum
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_STREAM_WRITER_H_
