// SPDX-License-Identifier: Apache-2.0
#include "cli/io.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/file.h"
#include "base/file_error.h"
#include "base/text.h"
#include "base/trace_dir.h"

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

Result<Leftover> NewFolder(const std::string& name, const std::string& dir) {
  INGERO_ASSIGN_OR_RETURN(Leftover folder,
                          dir.empty() ? MakeScratchFolderInTmp(name)
                                      : MakeScratchFolder(dir + "/" + name));
  const TraceDir owner = DefaultTraceDir();
  if (geteuid() == 0 && chown(folder.path().c_str(), owner.uid, owner.gid) != 0)
    return Status::Errno("giving away " + folder.path(), errno);
  return folder;
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
  const auto failed = [&](int error) { return CannotWrite(path, error); };
  // A regular file is replaced as a whole, where a link leads to it; a device
  // or a pipe is written to, and stays what it is.
  struct stat st;
  const bool exists = stat(path.c_str(), &st) == 0;
  if (exists && S_ISDIR(st.st_mode)) return failed(EISDIR);
  if (exists && !S_ISREG(st.st_mode) && !S_ISCHR(st.st_mode) &&
      !S_ISFIFO(st.st_mode))
    return Status::Error("cannot write " + path +
                         ": is no file that can be written to; name a file, or "
                         "'-' for standard output");
  std::string target = path;
  struct stat link;
  const bool is_link =
      lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode);
  if (char* real = is_link ? realpath(path.c_str(), nullptr) : nullptr) {
    target = real;
    free(real);
  }
  const bool replace =
      exists ? S_ISREG(st.st_mode) : !is_link || target != path;
  const std::string written = replace ? target + ".part" : target;
  Leftover unfinished =
      replace ? Leftover(written, Leftover::kFile) : Leftover();
  // A pipe that nobody reads would keep us waiting without end.
  const int pipe_only = exists && S_ISFIFO(st.st_mode) ? O_NONBLOCK : 0;
  Fd fd(open(written.c_str(),
             O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | pipe_only, 0666));
  if (!fd.valid() && errno == ENXIO && pipe_only != 0)
    return Status::Error("cannot write " + path +
                         ": is a pipe that nobody reads; start what reads it "
                         "first, or name a file");
  if (!fd.valid()) return failed(errno);
  if (pipe_only != 0) fcntl(fd.get(), F_SETFL, 0);
  std::FILE* file = fdopen(fd.get(), "w");
  if (file == nullptr) return failed(errno);
  fd.release();
  if (replace && exists && fchmod(fileno(file), st.st_mode & 0777) != 0) {
    // Then with the mode of a new file.
  }
  Status status = write(file);
  const bool bad = std::ferror(file) != 0;
  const int error = errno;
  const bool closed = std::fclose(file) == 0;
  if (status.ok() && (bad || !closed)) status = failed(bad ? error : errno);
  if (status.ok() && replace) {
    if (std::rename(written.c_str(), target.c_str()) != 0) return failed(errno);
    unfinished.Keep();
  }
  return status;
}

}  // namespace ingero::cli
