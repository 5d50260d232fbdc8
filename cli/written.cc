// SPDX-License-Identifier: Apache-2.0
#include "cli/written.h"

#include <sys/stat.h>

#include "base/text.h"

namespace ingero::cli {

void SayWritten(const Io& io, std::string_view where, const std::string& path,
                std::string_view more) {
  if (path == "-") return;
  struct stat st;
  std::string text = "wrote " + path;
  if (stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode))
    text += " (" + FormatBytes(static_cast<uint64_t>(st.st_size)) + ")";
  PrintError(io, where, text.append(more));
}

}  // namespace ingero::cli
