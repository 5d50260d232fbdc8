// SPDX-License-Identifier: Apache-2.0
// One line on a terminal that says what long work is doing:
//
//   reading streams  [=========>          ]  45 %  1.2 M events/s  3 s left
//
// Off a terminal it prints nothing. Redraws at most ten times a second, so it
// may be told of every block.
#ifndef INGERO_CLI_PROGRESS_H_
#define INGERO_CLI_PROGRESS_H_

#include <cstdint>
#include <string>

#include "base/units.h"
#include "cli/io.h"

namespace ingero::cli {

// The line itself, at most `columns` wide. Time left is extrapolated from the
// stage's own progress, once there is enough of it to tell.
std::string ProgressLine(const std::string& stage, double fraction,
                         uint64_t events, Ns elapsed, int columns);

class Progress {
 public:
  explicit Progress(const Io& io) : io_(io) {}
  ~Progress() { Finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // events: done so far in this stage, 0 = not counted.
  void Update(const std::string& stage, double fraction, uint64_t events);
  // Clears the line, so that what is printed next starts clean.
  void Finish();

 private:
  const Io& io_;
  std::string stage_;
  Ns stage_begin_, last_drawn_;
  bool drawn_ = false;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_PROGRESS_H_
