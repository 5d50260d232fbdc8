// SPDX-License-Identifier: Apache-2.0
// Threads: one.
#ifndef INGERO_IMPORT_GZ_BUFFER_H_
#define INGERO_IMPORT_GZ_BUFFER_H_

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

namespace ingero::import {

// A gzipped file, or a plain one.
class GzBuffer : public std::streambuf {
 public:
  // errno says why it could not be opened.
  explicit GzBuffer(const std::string& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    struct stat st;
    if (fstat(fd, &st) == 0) bytes_of_file_ = st.st_size;
    file_ = gzdopen(fd, "rb");
    if (file_ == nullptr)
      close(fd);
    else
      gzbuffer(file_, 1 << 18);
  }
  ~GzBuffer() override {
    if (file_ != nullptr) gzclose(file_);
  }
  bool opened() const { return file_ != nullptr; }
  // Of the compressed file, now and in all.
  int64_t offset() const { return gzoffset(file_); }
  int64_t bytes() const { return bytes_of_file_; }
  // "" = nothing went wrong.
  std::string Problem() const {
    int error = Z_OK;
    std::string text = gzerror(file_, &error);
    if (error == Z_OK || error == Z_STREAM_END) return "";
    // zlib's own name of a file that it was handed open: "<fd:3>: ".
    if (const size_t end = text.find(">: ");
        text.starts_with("<fd:") && end != std::string::npos)
      text.erase(0, end + 3);
    return text;
  }

 protected:
  int_type underflow() override {
    const int got = gzread(file_, bytes_.data(),
                           static_cast<unsigned>(bytes_.size()));
    if (got <= 0) return traits_type::eof();
    // A mark of the byte order, as some editors put it before a text.
    const bool marked = at_begin_ && got > 3 &&
                        std::string_view(bytes_.data(), 3) == "\xEF\xBB\xBF";
    at_begin_ = false;
    setg(bytes_.data(), bytes_.data() + (marked ? 3 : 0), bytes_.data() + got);
    return traits_type::to_int_type(*gptr());
  }

 private:
  gzFile file_ = nullptr;
  int64_t bytes_of_file_ = 0;
  bool at_begin_ = true;
  std::vector<char> bytes_ = std::vector<char>(1 << 18);
};

}  // namespace ingero::import

#endif  // INGERO_IMPORT_GZ_BUFFER_H_
