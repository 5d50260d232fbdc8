// SPDX-License-Identifier: Apache-2.0
// Threads: one.
#ifndef INGERO_IMPORT_GZ_BUFFER_H_
#define INGERO_IMPORT_GZ_BUFFER_H_

#include <zlib.h>

#include <cstdint>
#include <streambuf>
#include <string>
#include <vector>

namespace ingero::import {

// A gzipped file, or a plain one.
class GzBuffer : public std::streambuf {
 public:
  explicit GzBuffer(const std::string& path)
      : file_(gzopen(path.c_str(), "rb")) {
    if (file_ != nullptr) gzbuffer(file_, 1 << 18);
  }
  ~GzBuffer() override {
    if (file_ != nullptr) gzclose(file_);
  }
  bool opened() const { return file_ != nullptr; }
  // Of the compressed file.
  int64_t offset() const { return gzoffset(file_); }
  // "" = nothing went wrong.
  std::string Problem() const {
    int error = Z_OK;
    const char* text = gzerror(file_, &error);
    return error == Z_OK || error == Z_STREAM_END ? "" : text;
  }

 protected:
  int_type underflow() override {
    const int got = gzread(file_, bytes_.data(),
                           static_cast<unsigned>(bytes_.size()));
    if (got <= 0) return traits_type::eof();
    setg(bytes_.data(), bytes_.data(), bytes_.data() + got);
    return traits_type::to_int_type(*gptr());
  }

 private:
  gzFile file_;
  std::vector<char> bytes_ = std::vector<char>(1 << 18);
};

}  // namespace ingero::import

#endif  // INGERO_IMPORT_GZ_BUFFER_H_
