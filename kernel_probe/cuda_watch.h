// SPDX-License-Identifier: Apache-2.0
// Which processes have a CUDA library mapped, and whether the shim is in them:
// who uses CUDA without being recorded can only be told from outside.
//
// A process is looked at one second after its birth or exec, then whenever its
// age has doubled, until a CUDA library is found, and once more when recording
// ends. So a process that lives shorter than a second may be missed. A look
// reads /proc/PID/maps: 15 us for a small program, 6 ms for one with 5,000
// mappings (on a busy machine); an hour of a process without CUDA costs 12
// looks.
//
// Threads: one; the counts from any.
#ifndef INGERO_KERNEL_PROBE_CUDA_WATCH_H_
#define INGERO_KERNEL_PROBE_CUDA_WATCH_H_

#include <atomic>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <vector>

#include "base/block_codec.h"
#include "wire/wire.h"

namespace ingero::kernel_probe {

class CudaWatch {
 public:
  // Birth, exec or end of a process; anything else is left aside.
  void OnTask(const ingero_ring_task& e, uint64_t now_ns);
  // Looks at up to `most` processes that are due and adds a row of
  // sample_table for each that has a CUDA library.
  void Look(uint64_t now_ns, size_t most, Rows* rows);
  // At all of them, but not beyond deadline_ns.
  void LookAtAll(uint64_t deadline_ns, Rows* rows);

  // Running processes in which a CUDA library was found.
  uint64_t with_shim() const { return with_shim_; }
  uint64_t without_shim() const { return without_shim_; }

 private:
  struct Watched {
    uint64_t begin_ns = 0;
    uint64_t life = 0;  // tells it from the pid's earlier ones
  };
  struct Due {
    uint64_t t_ns;
    uint32_t pid;
    uint64_t life;
    bool operator<(const Due& other) const { return t_ns > other.t_ns; }
  };
  // False: nothing more to learn about it.
  bool LookAt(uint32_t pid, uint64_t now_ns, Rows* rows);
  // It has ended, or is another program from now on.
  void Forget(uint32_t pid);

  std::unordered_map<uint32_t, Watched> watched_;
  std::priority_queue<Due> due_;
  uint64_t lives_ = 0;
  std::unordered_map<uint32_t, bool> found_;  // whether the shim is in it
  std::atomic<uint64_t> with_shim_{0}, without_shim_{0};
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_CUDA_WATCH_H_
