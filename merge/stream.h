// SPDX-License-Identifier: Apache-2.0
// Opening stream files: header checks shared by both kinds.
#ifndef INGERO_MERGE_STREAM_H_
#define INGERO_MERGE_STREAM_H_

#include <string.h>

#include <array>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/interval.h"
#include "base/status.h"
#include "base/stream_check.h"
#include "wire/wire.h"

namespace ingero::merge {

struct OpenStream {
  InputFile file;
  ingero_stream_header header;
  uint64_t bytes = 0;

  bool kernel() const { return header.magic == INGERO_MAGIC_KERNEL; }
  bool code() const { return header.magic == INGERO_MAGIC_CODE; }
  // Coded blocks behind the header.
  bool coded() const { return kernel() || code(); }
  // Of the host's CLOCK_MONOTONIC.
  int64_t created_ns() const {
    return static_cast<int64_t>(
        header.created_mono_ns -
        static_cast<uint64_t>(header.monotonic_offset_ns));
  }
};

// A fixed char array that need not be terminated, up to its NUL.
template <size_t kSize>
std::string FixedText(const char (&text)[kSize]) {
  return std::string(text, strnlen(text, kSize));
}

std::string BootIdText(const __u8 (&boot_id)[16]);

// One line says why a file is not a stream that this version reads. One whose
// header fails its check is refused: its process, clock or boot may be wrong.
Result<OpenStream> OpenStreamFile(const std::string& path);

std::string FileName(const std::string& path);

// What of a file is damaged, for a person: where, how much, what to do.
class DamageLines {
 public:
  void Add(const std::string& path, uint64_t offset, uint64_t bytes);
  void Add(const std::string& path, const std::string& what);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
  // The places, which are one line.
  size_t place_line_ = 0;
  uint64_t places_ = 0, place_bytes_ = 0, first_place_ = 0;
};

// Data that is missing or damaged, before it has a place in the store.
struct LossRow {
  Interval range;
  ingero_loss loss;
  uint64_t count = 0;
};

// The row of INGERO_LOSSES, or nullptr.
struct LossInfo {
  uint32_t value;
  const char* id;
  int severity;
  const char* text;
};
const LossInfo* FindLoss(uint64_t value);

}  // namespace ingero::merge

#endif  // INGERO_MERGE_STREAM_H_
