// SPDX-License-Identifier: Apache-2.0
#include "cli/screen.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace ingero::cli {
namespace {

// Its other page, without a cursor; and back.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
// What ends a process without its destructors.
constexpr int kCrashes[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// Of the terminal before, for the handler too.
termios before;
volatile sig_atomic_t keys_changed = 0;

// Async-signal-safe.
void WriteAll(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // it is gone
    text.remove_prefix(static_cast<size_t>(n));
  }
}

void GiveBack() {
  WriteAll(kLeave);
  if (keys_changed != 0) tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void OnCrash(int number) {
  GiveBack();
  raise(number);  // SA_RESETHAND: ends the process when this returns
}

winsize Size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    size = {24, 80, 0, 0};
  return size;
}

}  // namespace

Screen::Screen() {
  for (const int number : kCrashes) {
    struct sigaction action {};
    action.sa_handler = OnCrash;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(number, &action, nullptr);
  }
  Enter();
}

Screen::~Screen() {
  Leave();
  for (const int number : kCrashes) signal(number, SIG_DFL);
}

void Screen::Enter() {
  if (entered_) return;
  entered_ = true;
  if (tcgetattr(STDIN_FILENO, &before) == 0) {
    keys_changed = 1;
    termios keys = before;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 0;
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &keys);
  }
  WriteAll(kEnter);
}

void Screen::Leave() {
  if (!entered_) return;
  entered_ = false;
  GiveBack();
  keys_changed = 0;
}

bool Screen::has_keys() const { return keys_changed != 0; }

int Screen::Columns() { return Size().ws_col; }

void Screen::Draw(std::string_view text) {
  std::string page = "\x1b[H";
  const size_t rows = Size().ws_row;
  for (size_t row = 0; row < rows && !text.empty(); ++row) {
    const size_t end = text.find('\n');
    // The last row has no line end, which would scroll.
    if (row > 0) page += "\r\n";
    page += text.substr(0, end);
    page += "\x1b[K";
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  page += "\x1b[J";
  WriteAll(page);
}

}  // namespace ingero::cli
