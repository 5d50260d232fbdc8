// SPDX-License-Identifier: Apache-2.0
// Where a command writes, and what is at the other end. Tests hand in memory
// streams and a fixed width.
#ifndef INGERO_CLI_IO_H_
#define INGERO_CLI_IO_H_

#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "base/leftover.h"
#include "base/status.h"

namespace ingero::cli {

struct Io {
  std::FILE* out = stdout;
  std::FILE* err = stderr;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  int columns = 80;       // width for text
  bool no_color = false;  // NO_COLOR is set, or the terminal is "dumb"
};

// The process's own streams. Width: COLUMNS, else that of the terminal, else
// 80; never under 40 or over 200, where lines stop being readable.
Io ProcessIo();

void Write(std::FILE* file, std::string_view text);

// One line on io.err, "ingero WHERE: MESSAGE"; control characters and line
// breaks in `message` are made harmless.
void PrintError(const Io& io, std::string_view where, std::string_view message);

// Flushes io.out. False, after saying so, where what was written did not
// arrive (a full disk).
bool FinishOutput(const Io& io, std::string_view where);

// A new private folder, "$TMPDIR/NAME.xxxxxx" or in `dir`; under sudo the
// caller's. Gone with all in it when what is returned is.
Result<Leftover> NewFolder(const std::string& name,
                           const std::string& dir = "");

// Has `write` write to a file beside `path` that takes its place once it is
// whole; "-": to io.out.
Status WriteOutput(const std::string& path, const Io& io,
                   const std::function<Status(std::FILE*)>& write);

}  // namespace ingero::cli

#endif  // INGERO_CLI_IO_H_
