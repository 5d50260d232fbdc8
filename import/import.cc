// SPDX-License-Identifier: Apache-2.0
#include "import/import.h"

#include "base/file.h"

namespace ingero::import {

Result<Events> Read(const std::string& path, const Progress& progress) {
  INGERO_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path));
  char start[16] = {};
  INGERO_ASSIGN_OR_RETURN(const size_t size,
                          file.ReadAt(0, start, sizeof(start)));
  const std::string_view head(start, size);
  if (head.starts_with(std::string_view("SQLite format 3\0", 16)))
    return ReadNsys(path, progress);
  const size_t text = head.find_first_not_of(" \t\r\n");
  if (head.starts_with("\x1f\x8b") ||
      (text != head.npos && (head[text] == '{' || head[text] == '[')))
    return ReadKineto(path, progress);
  if (head.starts_with("NVIDIA Nsight") || path.ends_with(".nsys-rep") ||
      path.ends_with(".qdrep"))
    return Status::Error(
        path + ": is a report in Nsight Systems' own format; write it as "
               "SQLite first: nsys export --type sqlite " + path);
  if (size == 0) return Status::Error(path + ": is empty");
  return Status::Error(path +
                       ": is neither a trace of torch.profiler (JSON, .gz) nor "
                       "an SQLite export of Nsight Systems");
}

}  // namespace ingero::import
