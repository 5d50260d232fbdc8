// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/code_stream.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/stream_header.h"
#include "base/tables.h"
#include "wire/wire.h"

namespace ingero::code_sampler {

CodeStream::CodeStream(Fd file, std::string path)
    : file_(std::move(file)), path_(std::move(path)) {}

CodeStream::~CodeStream() { Finish(); }

Result<std::unique_ptr<CodeStream>> CodeStream::Create(const std::string& dir) {
  INGERO_ASSIGN_OR_RETURN(
      Fd folder, OpenFile(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  const std::string name = "code-" + std::to_string(HostNowNs()) + "-" +
                           std::to_string(getpid()) + ".ingero";
  INGERO_ASSIGN_OR_RETURN(
      Fd file, OpenFileAt(folder.get(), dir, name,
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW));
  struct stat st;
  if (geteuid() == 0 && fstat(folder.get(), &st) == 0 &&
      fchown(file.get(), st.st_uid, st.st_gid) != 0)
    return Status::Errno("giving " + name + " to the folder's owner", errno);
  std::unique_ptr<CodeStream> stream(
      new CodeStream(std::move(file), dir + "/" + name));
  const ingero_stream_header header =
      MakeStreamHeader(INGERO_MAGIC_CODE, "ingero");
  std::string bytes(INGERO_HEADER_BYTES, '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  INGERO_RETURN_IF_ERROR(WriteAll(stream->file_.get(), bytes).In(stream->path_));
  stream->bytes_ = bytes.size();
  return stream;
}

void CodeStream::Write(Rows* rows) {
  if (rows->size() == 0) return;
  coded_.clear();
  EncodeBlock(*rows, 0, &coded_);
  if (WriteAll(file_.get(), coded_).ok()) {
    bytes_ += coded_.size();
    ++blocks_;
  } else {
    rows_failed_ += rows->size();
    const auto end = static_cast<off_t>(bytes_);
    if (ftruncate(file_.get(), end) == 0) lseek(file_.get(), end, SEEK_SET);
  }
  rows->Clear();
}

void CodeStream::Finish() {
  if (std::exchange(finished_, true)) return;
  const auto put = [this](size_t offset, uint64_t value) {
    (void)WriteAllAt(file_.get(),
                     {reinterpret_cast<const char*>(&value), sizeof(value)},
                     offset);
  };
  put(offsetof(ingero_stream_header, blocks_reserved), blocks_);
  put(offsetof(ingero_stream_header, exited), 1);
  if (rows_failed_ > 0)
    put(offsetof(ingero_stream_header, lost) +
            INGERO_LOSS_WRITE_FAILED * sizeof(uint64_t),
        rows_failed_);
}

}  // namespace ingero::code_sampler
