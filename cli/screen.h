// SPDX-License-Identifier: Apache-2.0
// A terminal as one page that is drawn over and over, given back as it was
// whichever way the process ends (but for SIGKILL, which nobody sees).
//
// Threads: one. One at a time.
#ifndef INGERO_CLI_SCREEN_H_
#define INGERO_CLI_SCREEN_H_

#include <string_view>

namespace ingero::cli {

class Screen {
 public:
  // REQUIRES: standard output is a terminal. Keys come unechoed and at once,
  // where standard input is one, too.
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // For a while, as when the process is stopped.
  void Leave();
  void Enter();

  static int Columns();  // as wide as it is now; 80 where it does not tell
  // As many of the lines as fit, of those that Columns() are enough for.
  void Draw(std::string_view text);
  bool has_keys() const;

 private:
  bool entered_ = false;
};

}  // namespace ingero::cli

#endif  // INGERO_CLI_SCREEN_H_
