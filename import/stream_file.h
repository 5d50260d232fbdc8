// SPDX-License-Identifier: Apache-2.0
// A CUDA stream file (wire/wire.h), written from what is known already: ticks
// are ns, slots are written out when they are full and at the end.
//
// Threads: one. Memory: 64 KiB a thread of the traced process.
// Errors: name this file, not what is imported.
#ifndef INGERO_IMPORT_STREAM_FILE_H_
#define INGERO_IMPORT_STREAM_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"
#include "base/stream_frame.h"
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
    return Append(tid, FrameRecord(kind, flags, value, more));
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
  StreamFile(std::string path, Fd file, const ingero_stream_header& header)
      : path_(std::move(path)), file_(std::move(file)), header_(header) {}
  Status Append(uint32_t tid, const std::string& record);
  Status WriteOut(uint32_t tid, Slot* slot);
  Status WriteBlock(uint64_t index, const std::string& block);

  std::string path_;
  Fd file_;
  ingero_stream_header header_;
  std::map<uint32_t, Slot> slots_;  // by tid
  uint64_t blocks_ = 1;             // with the header's
};

}  // namespace ingero::import

#endif  // INGERO_IMPORT_STREAM_FILE_H_
