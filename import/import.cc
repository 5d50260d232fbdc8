// SPDX-License-Identifier: Apache-2.0
#include "import/import.h"

#include <errno.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/shell_word.h"
#include "import/gz_buffer.h"
#include "import/sched.h"

namespace ingero::import {
namespace {

// What is looked at to know a text.
constexpr size_t kHeadBytes = 256 << 10;

bool Has(std::string_view text, std::string_view what) {
  return text.find(what) != text.npos;
}

}  // namespace

Result<Format> FormatOf(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0 && errno == ENOENT)
    return Status::Error(path +
                         ": there is no such file; give the path of what "
                         "torch.profiler, nsys export or perf script wrote");
  INGERO_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  char start[16] = {};
  INGERO_ASSIGN_OR_RETURN(const size_t size,
                          file.ReadAt(0, start, sizeof(start)));
  const std::string_view begins(start, size);
  if (begins.starts_with(std::string_view("SQLite format 3\0", 16)))
    return Format::kNsys;
  if (begins.starts_with("PERFILE") || begins.starts_with("ELIFREP"))
    return Status::Error(
        path + ": is perf's own format; write it as text first: " +
        std::string(kPerfScript) + " -i " + ShellWord(path) + " > sched.txt");
  if (begins.starts_with("\x17\x08\x44tracing"))
    return Status::Error(path +
                         ": is a recording of trace-cmd; ingero reads what perf "
                         "script prints of `perf sched record`");
  if (begins.starts_with("NVIDIA Nsight") || path.ends_with(".nsys-rep") ||
      path.ends_with(".qdrep"))
    return Status::Error(
        path + ": is a report in Nsight Systems' own format; write it as "
               "SQLite first: nsys export --type sqlite " + path);
  if (size == 0) return Status::Error(path + ": is empty");
  // Gzipped or not.
  GzBuffer buffer(path);
  std::string head(kHeadBytes, '\0');
  head.resize(static_cast<size_t>(std::max<std::streamsize>(
      0, buffer.opened()
             ? buffer.sgetn(head.data(),
                            static_cast<std::streamsize>(head.size()))
             : 0)));
  const size_t text = head.find_first_not_of(" \t\r\n");
  if (text != head.npos && (head[text] == '{' || head[text] == '['))
    return Format::kKineto;
  if (head.starts_with("# tracer:"))
    return Status::Error(path +
                         ": is a trace of ftrace; ingero reads what perf "
                         "script prints of `perf sched record`");
  if (Has(head, "task name") && Has(head, "sch delay"))
    return Status::Error(path +
                         ": is of perf sched timehist; ingero reads what perf "
                         "script prints of the same recording");
  if (Has(head, "sched_switch: ") || Has(head, "PERF_RECORD_") ||
      Has(head, "==> next_comm=") || head.starts_with("# ========"))
    return Format::kPerfSched;
  // Damaged, as the reader will say.
  if (begins.starts_with("\x1f\x8b") && text == head.npos)
    return Format::kKineto;
  return Status::Error(path +
                       ": is neither a trace of torch.profiler (JSON, .gz), an "
                       "SQLite export of Nsight Systems, nor what perf script "
                       "prints of `perf sched record`");
}

Result<Events> Read(const std::string& path, const Progress& progress) {
  INGERO_ASSIGN_OR_RETURN(const Format format, FormatOf(path));
  switch (format) {
    case Format::kKineto: return ReadKineto(path, progress);
    case Format::kNsys: return ReadNsys(path, progress);
    case Format::kPerfSched: break;
  }
  return Status::Error(path +
                       ": is of perf and has no CUDA call; it can be imported "
                       "with a trace that has, or alone");
}

}  // namespace ingero::import
