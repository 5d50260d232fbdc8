// SPDX-License-Identifier: Apache-2.0
// The code stream file: header, then coded blocks (code_read, code_places,
// losses, one metric), each written whole.
//
// Threads: one. Errors: a failed write cuts the file back to its last whole
// block and is counted; the count goes into the header at the end, whose place
// on the disk exists.
#ifndef INGERO_CODE_SAMPLER_CODE_STREAM_H_
#define INGERO_CODE_SAMPLER_CODE_STREAM_H_

#include <memory>
#include <string>

#include "base/block_codec.h"
#include "base/file.h"
#include "base/status.h"

namespace ingero::code_sampler {

class CodeStream {
 public:
  // A new file in `dir`, which is there. Root gives it to the folder's owner.
  static Result<std::unique_ptr<CodeStream>> Create(const std::string& dir);
  ~CodeStream();

  // Writes and clears the rows; none is fine.
  void Write(Rows* rows);
  // Says in the header that it has ended, and after how many blocks.
  void Finish();

  const std::string& path() const { return path_; }
  uint64_t rows_failed() const { return rows_failed_; }

 private:
  CodeStream(Fd file, std::string path);

  Fd file_;
  std::string path_, coded_;
  uint64_t bytes_ = 0, blocks_ = 0, rows_failed_ = 0;
  bool finished_ = false;
};

}  // namespace ingero::code_sampler

#endif  // INGERO_CODE_SAMPLER_CODE_STREAM_H_
