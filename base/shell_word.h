// SPDX-License-Identifier: Apache-2.0
// Commands that are printed to be pasted.
#ifndef INGERO_BASE_SHELL_WORD_H_
#define INGERO_BASE_SHELL_WORD_H_

#include <string>
#include <string_view>

namespace ingero {

// `text` as one word of a shell.
inline std::string ShellWord(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+:@%,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

}  // namespace ingero

#endif  // INGERO_BASE_SHELL_WORD_H_
