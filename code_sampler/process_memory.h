// SPDX-License-Identifier: Apache-2.0
// The memory of another process, read as a debugger's print does, without its
// stop: by process_vm_readv(2), which copies and does nothing else. Nothing is
// attached, stopped, signalled or written.
//
// What is read may change meanwhile: readers check all of it.
//
// Threads: one each. Errors: kinds of errno; see Outcome.
#ifndef INGERO_CODE_SAMPLER_PROCESS_MEMORY_H_
#define INGERO_CODE_SAMPLER_PROCESS_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ingero::code_sampler {

struct Piece {
  uint64_t at;  // in the other process
  void* to;
  size_t bytes;
};

enum class Outcome : uint8_t {
  kRead,
  kNotThere,  // no such memory
  kGone,      // no such process
  kDenied,    // not for us to read
};

class Memory {
 public:
  virtual ~Memory() = default;
  // All pieces or none. At most kMaxPieces.
  virtual Outcome Read(std::span<const Piece> pieces) = 0;
  Outcome Read(uint64_t at, void* to, size_t bytes) {
    const Piece piece{at, to, bytes};
    return Read({&piece, 1});
  }
};
inline constexpr size_t kMaxPieces = 1024;  // IOV_MAX

class ProcessMemory : public Memory {
 public:
  explicit ProcessMemory(pid_t pid) : pid_(pid) {}
  using Memory::Read;
  Outcome Read(std::span<const Piece> pieces) override;

 private:
  pid_t pid_;
};

}  // namespace ingero::code_sampler

#endif  // INGERO_CODE_SAMPLER_PROCESS_MEMORY_H_
