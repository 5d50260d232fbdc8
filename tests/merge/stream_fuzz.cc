// SPDX-License-Identifier: Apache-2.0
// Any bytes as a stream file: opened, listed and dumped. Run for a minute with
//
//   build/tests/merge/stream_fuzz -max_total_time=60
//
// The magic and the sizes that every stream has are put right first: else
// nothing behind them would be reached.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "base/stream_check.h"
#include "merge/cuda_stream.h"
#include "merge/kernel_stream.h"
#include "merge/recordings.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ingero;
  using namespace ingero::merge;
  constexpr uint32_t kBlock = 4096;
  if (size < 4) return 0;
  // First byte: which kind. The rest: header's live fields, then blocks.
  std::string bytes(2 * kBlock, '\0');
  ingero_stream_header h;
  std::memset(&h, 0, sizeof(h));
  h.magic = data[0] & 1    ? INGERO_MAGIC_KERNEL
            : data[0] & 128 ? INGERO_MAGIC_CODE
                            : INGERO_MAGIC_CUDA;
  h.major = INGERO_WIRE_MAJOR;
  h.header_bytes = INGERO_HEADER_BYTES;
  h.block_bytes = kBlock;
  h.clock = data[0] & 2 ? INGERO_CLOCK_TSC : INGERO_CLOCK_MONOTONIC;
  h.exited = data[0] >> 2 & 1;
  h.stream_id = 1;
  if (data[0] & 64) SealStreamHeader(&h);
  std::memcpy(bytes.data(), &h, sizeof(h));
  bytes.replace(kBlock, 0, reinterpret_cast<const char*>(data + 1), size - 1);
  // A block header in front, so that records are reached.
  if (data[0] & 8) {
    ingero_block_header b;
    std::memset(&b, 0, sizeof(b));
    b.magic = INGERO_MAGIC_BLOCK;
    b.type = data[0] & 16 ? INGERO_BLOCK_LIVE : INGERO_BLOCK_DATA;
    b.slot = 1;
    b.cursor = (size - 1) & ~size_t{7};
    if (data[0] & 32)
      SealBlockHeader(&b, {bytes.data() + kBlock, b.cursor});
    bytes.insert(kBlock, reinterpret_cast<const char*>(&b), sizeof(b));
  }
  static const int fd = memfd_create("stream", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, bytes.data(), bytes.size(), 0) !=
          static_cast<ssize_t>(bytes.size()))
    return 0;
  (void)InspectStream(path);
  if (auto kernel = KernelStream::Open(path, true); kernel.ok()) {
    std::string block;
    for (const BlockRef& ref : (*kernel)->blocks())
      INGERO_CHECK((*kernel)->Read(ref, &block).ok() &&
                   CheckBlock(block).ok());
  }
  if (auto cuda = CudaStream::Open(path); cuda.ok()) {
    (void)ClockMap::Fit({}, (*cuda)->knots(), (*cuda)->header().tsc_hz);
    CallReader reader(**cuda);
    WireCall call;
    uint64_t calls = 0;
    while (reader.Next(&call)) calls += call.no_end ? 0 : 1;
    // What was counted at first is what comes.
    INGERO_CHECK(calls == (*cuda)->calls());
  }
  return 0;
}
