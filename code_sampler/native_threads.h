// SPDX-License-Identifier: Apache-2.0
// Samples of the instruction that running threads of other processes are at, by
// the kernel's perf events: one event and one ring of 16 KiB a thread, on its
// CPU time, in user mode only. The threads are interrupted for about a
// microsecond a sample, as by any timer tick; nothing else is done to them.
//
// Layout and permissions: perf_event_open(2). Without CAP_PERFMON the kernel
// allows it where kernel.perf_event_paranoid is 2 or less.
//
// Threads: one.
#ifndef INGERO_CODE_SAMPLER_NATIVE_THREADS_H_
#define INGERO_CODE_SAMPLER_NATIVE_THREADS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"

namespace ingero::code_sampler {

struct NativeSample {
  uint32_t pid = 0, tid = 0;
  int64_t t_ns = 0;  // CLOCK_MONOTONIC
  uint64_t ip = 0;   // in that process
};

// Threads that are followed at most, of all processes: a ring and a descriptor
// each.
inline constexpr size_t kMostNativeThreads = 256;

class NativeThreads {
 public:
  // `hz`: samples a second of CPU time.
  explicit NativeThreads(unsigned hz) : hz_(hz) {}
  ~NativeThreads();
  NativeThreads(const NativeThreads&) = delete;
  NativeThreads& operator=(const NativeThreads&) = delete;

  // Follows those threads of the process that are not followed yet. Returns
  // why not, where the kernel does not allow it; else "".
  std::string Follow(uint32_t pid);
  // Appends what has come since, by thread and time; threads that have ended
  // are let go.
  void Drain(std::vector<NativeSample>* samples);
  size_t following() const { return rings_.size(); }
  // Samples that a full ring dropped, since the last call; and threads beyond
  // kMostNativeThreads, each time they were met.
  uint64_t TakeLost();

 private:
  struct Ring {
    Fd event;
    void* pages = nullptr;
  };
  void Read(Ring* ring, std::vector<NativeSample>* samples);

  unsigned hz_;
  std::map<std::pair<uint32_t, uint32_t>, Ring> rings_;  // by pid, tid
  uint64_t lost_ = 0;
};

}  // namespace ingero::code_sampler

#endif  // INGERO_CODE_SAMPLER_NATIVE_THREADS_H_
