// SPDX-License-Identifier: Apache-2.0
// Lines of text that fit a width: wrapped paragraphs, labels, tables; colour
// only where asked for.
//
// Text handed in is sanitised already (base/text.h), so the bytes 1 to 4
// are free to mark tones inside it; widths are computed without them.
#ifndef INGERO_CLI_RENDER_LAYOUT_H_
#define INGERO_CLI_RENDER_LAYOUT_H_

#include <string>
#include <string_view>
#include <vector>

namespace ingero::cli {

enum class Tone : char {
  kBold = 'b',
  kDim = 'd',
  kRed = 'r',
  kYellow = 'y',
  kCyan = 'c',
  kGreen = 'g',
  kBlue = 'u',
  kMagenta = 'm',
};
std::string Toned(Tone tone, std::string_view text);

// The first column holds names, left-aligned, and gives way where the table is
// too wide; all others hold numbers, right-aligned.
struct Table {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

class Page {
 public:
  Page(int columns, bool color) : columns_(columns), color_(color) {}

  void Blank();  // one empty line, never two, none at the top
  void Heading(std::string_view text);
  // Continuation lines are indented by indent + hang. Without `cut`, words that
  // are longer than a line (paths, commands) stay whole; likewise below.
  void Paragraph(std::string_view text, int indent = 0, int hang = 0,
                 bool cut = true);
  // "label    text", the text wrapped in its own column; lines after the first
  // are indented by `hang` there.
  void Labeled(std::string_view label, std::string_view text, int indent,
               int label_columns, int hang = 0, bool cut = true);
  // A shell command: "$ ..." over lines that can be pasted as they are; a word
  // that is longer than a line stays whole.
  void Command(std::string_view command, int indent);
  // Where even the shortest names do not fit, each row becomes a paragraph.
  void Add(const Table& table, int indent);

  const std::string& text() const { return text_; }

 private:
  void Line(std::string_view line);

  int columns_;
  bool color_;
  std::string text_;
};

// Words of `text` on lines of at most `columns`. A number and its unit stay on
// one line; a word that is longer than a line is cut, if `cut`.
std::vector<std::string> Wrap(std::string_view text, int columns,
                              bool cut = true);

}  // namespace ingero::cli

#endif  // INGERO_CLI_RENDER_LAYOUT_H_
