// SPDX-License-Identifier: Apache-2.0
// A CUDA stream file (wire/wire.h), written from what is known already: ticks
// are ns, slots are written out when they are full and at the end.
//
// Threads: one. Memory: 64 KiB a thread of the traced process.
#ifndef INGERO_IMPORT_STREAM_FILE_H_
#define INGERO_IMPORT_STREAM_FILE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"
#include "wire/wire.h"

namespace ingero::import {

class StreamFile {
 public:
  // `header`: pid, times, host, comm; the rest is filled in.
  static Result<StreamFile> Create(const std::string& path,
                                   ingero_stream_header header);

  // A record of `tid`, in order of their ends where they have one. `value`
  // begins with its ingero_record, which is filled in; `more` follows it.
  template <typename T>
  Status Add(uint32_t tid, ingero_record_kind kind, uint8_t flags,
             const T& value, std::string_view more = {}) {
    std::string bytes(reinterpret_cast<const char*>(&value), sizeof(value));
    bytes += more;
    return Append(tid, kind, flags, std::move(bytes));
  }
  // The same with a text that ends with NUL.
  template <typename T>
  Status AddText(uint32_t tid, ingero_record_kind kind, const T& value,
                 const std::string& text) {
    return Add(tid, kind, 0, value, {text.c_str(), text.size() + 1});
  }
  Status Finish();

 private:
  struct Slot {
    uint32_t number = 0, sequence = 0;
    std::string records;
  };
  StreamFile(Fd file, const ingero_stream_header& header)
      : file_(std::move(file)), header_(header) {}
  Status Append(uint32_t tid, ingero_record_kind kind, uint8_t flags,
                std::string bytes);
  Status WriteOut(uint32_t tid, Slot* slot);

  Fd file_;
  ingero_stream_header header_;
  std::map<uint32_t, Slot> slots_;  // by tid
  uint64_t blocks_ = 1;             // with the header's
};

template <typename T>
T Zeroed() {
  T value;
  std::memset(&value, 0, sizeof(value));
  return value;
}

// Cut where it does not fit; `to` is zeroed before.
template <size_t kSize>
void CopyText(char (&to)[kSize], std::string_view text) {
  std::memcpy(to, text.data(), std::min(text.size(), kSize - 1));
}

}  // namespace ingero::import

#endif  // INGERO_IMPORT_STREAM_FILE_H_
