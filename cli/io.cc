// SPDX-License-Identifier: Apache-2.0
#include "cli/io.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.h"

namespace ingero::cli {
namespace {

int TerminalColumns(bool out_is_terminal) {
  if (const char* text = std::getenv("COLUMNS")) {
    char* end = nullptr;
    long value = std::strtol(text, &end, 10);
    if (end != text && *end == '\0' && value > 0 && value < 100'000)
      return static_cast<int>(value);
  }
  winsize size{};
  if (out_is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
      size.ws_col > 0)
    return size.ws_col;
  return 80;
}

}  // namespace

Io ProcessIo() {
  Io io;
  io.out_is_terminal = isatty(STDOUT_FILENO) != 0;
  io.err_is_terminal = isatty(STDERR_FILENO) != 0;
  io.columns = std::clamp(TerminalColumns(io.out_is_terminal), 40, 200);
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  // https://no-color.org: set and not empty.
  io.no_color = (no_color != nullptr && *no_color != '\0') ||
                (term != nullptr && std::strcmp(term, "dumb") == 0);
  return io;
}

void Write(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
}

void PrintError(const Io& io, std::string_view where,
                std::string_view message) {
  std::string line = "ingero";
  if (!where.empty()) line.append(" ").append(where);
  line.append(": ").append(SanitizeForTerminal(message)).append("\n");
  Write(io.err, line);
}

namespace {

// What to do where writing failed.
const char* WriteAdvice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "; free some space or write elsewhere";
    case EBADF:
      return "; standard output is closed or not for writing: open it, or "
             "write to a file";
    default:
      return "; write elsewhere";
  }
}

}  // namespace

bool FinishOutput(const Io& io, std::string_view where) {
  if (std::fflush(io.out) == 0 && std::ferror(io.out) == 0) return true;
  int error = errno;
  PrintError(io, where,
             std::string("cannot write the output: ") + std::strerror(error) +
                 WriteAdvice(error));
  return false;
}

Status WriteOutput(const std::string& path, const Io& io,
                   const std::function<Status(std::FILE*)>& write) {
  if (path == "-") return write(io.out);
  const std::string part = path + ".part";
  std::FILE* file = std::fopen(part.c_str(), "we");
  if (file == nullptr) return Status::Errno(part, errno);
  Status status = write(file);
  const bool failed = std::ferror(file) != 0;
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  if (status.ok() && (failed || !closed))
    status = Status::Errno("write " + part, failed ? error : errno);
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0)
    status = Status::Errno("name it " + path, errno);
  if (!status.ok()) unlink(part.c_str());
  return status;
}

}  // namespace ingero::cli
