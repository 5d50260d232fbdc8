// SPDX-License-Identifier: Apache-2.0
// Task events with the texts that /proc has for them, on a thread of its own:
// reading /proc takes 50 us and more per process, too long for the thread that
// empties the rings. It reads at once, since a process may be short. Between
// events it looks for processes that use CUDA (cuda_watch.h).
//
// Threads: Add from one thread; Finish once. One thread within.
#ifndef INGERO_KERNEL_PROBE_TASK_LOG_H_
#define INGERO_KERNEL_PROBE_TASK_LOG_H_

#include <blockingconcurrentqueue.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/block_codec.h"
#include "kernel_probe/cuda_watch.h"
#include "kernel_probe/losses.h"
#include "kernel_probe/stream_writer.h"
#include "wire/wire.h"

namespace ingero::kernel_probe {

// The tasks of `existing` of which no birth is among `events`: those that were
// born between attaching and the dump occur in both.
std::vector<ingero_ring_task> WithoutBorn(
    std::vector<ingero_ring_task> existing,
    const std::vector<ingero_ring_task>& events);

class TaskLog {
 public:
  static constexpr size_t kMaxQueued = 1 << 18;

  explicit TaskLog(StreamWriter* writer) : writer_(writer) {}
  void Start();
  // False: the queue is full; the caller counts the loss.
  [[nodiscard]] bool Add(const ingero_ring_task& event);
  void Finish();

  uint64_t written() const { return written_; }
  const CudaWatch& cuda() const { return cuda_; }  // for its counts

 private:
  void Run();
  void Append(const ingero_ring_task& e);
  void Flush();
  void FlushSamples();

  StreamWriter* writer_;
  moodycamel::BlockingConcurrentQueue<ingero_ring_task> queue_;
  std::atomic<bool> finish_{false};
  std::atomic<uint64_t> written_{0};
  std::thread thread_;
  // Of the thread.
  Rows rows_, samples_;
  CudaWatch cuda_;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_TASK_LOG_H_
