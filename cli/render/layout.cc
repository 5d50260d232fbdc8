// SPDX-License-Identifier: Apache-2.0
#include "cli/render/layout.h"

#include <algorithm>
#include <array>

#include "cli/render/words.h"

namespace ingero::cli {
namespace {

constexpr char kToneBegin = '\x02';  // followed by the Tone
constexpr char kToneEnd = '\x03';
constexpr int kNarrowestName = 12;

const char* Ansi(char tone) {
  switch (static_cast<Tone>(tone)) {
    case Tone::kBold:
      return "\x1b[1m";
    case Tone::kDim:
      return "\x1b[2m";
    case Tone::kRed:
      return "\x1b[1;31m";
    case Tone::kYellow:
      return "\x1b[33m";
    case Tone::kCyan:
      return "\x1b[36m";
    case Tone::kGreen:
      return "\x1b[32m";
    case Tone::kBlue:
      return "\x1b[34m";
    case Tone::kMagenta:
      return "\x1b[35m";
  }
  return "";
}

std::string WithoutTones(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == kToneBegin)
      ++i;
    else if (text[i] != kToneEnd)
      out += text[i];
  }
  return out;
}

int Width(std::string_view text) { return DisplayWidth(WithoutTones(text)); }

bool IsUnit(std::string_view word) {
  while (!word.empty() &&
         std::string_view(".,;:)").find(word.back()) != std::string_view::npos)
    word.remove_suffix(1);
  static constexpr std::array kUnits = {"ns",  "us",  "ms",   "s",   "min",
                                        "h",   "%",   "B",    "KiB", "MiB",
                                        "GiB", "TiB", "CPUs", "CPU"};
  return std::find(kUnits.begin(), kUnits.end(), word) != kUnits.end();
}

bool EndsInDigit(std::string_view word) {
  return !word.empty() && word.back() >= '0' && word.back() <= '9';
}

// Splits at spaces, keeps "38.2 s" whole.
std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t i = 0; i < text.size();) {
    size_t end = std::min(text.find(' ', i), text.size());
    std::string_view word = text.substr(i, end - i);
    i = end + 1;
    if (word.empty()) continue;
    if (!words.empty() && EndsInDigit(WithoutTones(words.back())) &&
        IsUnit(WithoutTones(word)))
      words.back().append(" ").append(word);
    else
      words.emplace_back(word);
  }
  return words;
}

// Bytes of `word` that fit into `columns`; at least one character.
size_t Fitting(std::string_view word, int columns) {
  size_t end = 0;
  while (end < word.size()) {
    const size_t next = end + CharacterBytes(word.substr(end));
    if (end > 0 && Width(word.substr(0, next)) > columns) break;
    end = next;
  }
  return end;
}

std::string Padding(int n) { return std::string(std::max(n, 0), ' '); }

}  // namespace

std::string Toned(Tone tone, std::string_view text) {
  std::string out;
  out += kToneBegin;
  out += static_cast<char>(tone);
  out.append(text);
  out += kToneEnd;
  return out;
}

std::vector<std::string> Wrap(std::string_view text, int columns, bool cut) {
  columns = std::max(columns, 10);
  std::vector<std::string> lines;
  std::string line;
  int width = 0;
  for (std::string& word : Words(text)) {
    int w = Width(word);
    if (!line.empty() && width + 1 + w > columns) {
      lines.push_back(std::move(line));
      line.clear();
      width = 0;
    }
    while (cut && line.empty() && w > columns) {
      size_t bytes = Fitting(word, columns);
      lines.push_back(word.substr(0, bytes));
      word.erase(0, bytes);
      w = Width(word);
    }
    if (!line.empty()) {
      line += ' ';
      ++width;
    }
    line += word;
    width += w;
  }
  if (!line.empty() || lines.empty()) lines.push_back(std::move(line));
  // A tone that goes on over a line break is closed and opened again, so that
  // indentation and pagers stay clean.
  char open = 0;
  for (std::string& l : lines) {
    std::string begin = open ? std::string{kToneBegin, open} : "";
    for (size_t i = 0; i < l.size(); ++i) {
      if (l[i] == kToneBegin && i + 1 < l.size())
        open = l[++i];
      else if (l[i] == kToneEnd)
        open = 0;
    }
    l = begin + l + (open ? std::string(1, kToneEnd) : "");
  }
  return lines;
}

void Page::Line(std::string_view line) {
  size_t end = line.find_last_not_of(' ');
  line = line.substr(0, end == std::string_view::npos ? 0 : end + 1);
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == kToneBegin) {
      ++i;
      if (color_) text_ += Ansi(line[i]);
    } else if (line[i] == kToneEnd) {
      if (color_) text_ += "\x1b[0m";
    } else {
      text_ += line[i];
    }
  }
  text_ += '\n';
}

void Page::Blank() {
  if (!text_.empty() && !text_.ends_with("\n\n")) text_ += '\n';
}

void Page::Heading(std::string_view text) {
  Blank();
  Paragraph(Toned(Tone::kBold, text));
}

void Page::Paragraph(std::string_view text, int indent, int hang, bool cut) {
  Labeled("", text, indent, 0, hang, cut);
}

void Page::Labeled(std::string_view label, std::string_view text, int indent,
                   int label_columns, int hang, bool cut) {
  const int room = columns_ - indent - label_columns;
  std::vector<std::string> lines = Wrap(text, room, cut);
  if (lines.size() > 1 && hang > 0) lines = Wrap(text, room - hang, cut);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view l = i == 0 ? label : std::string_view();
    Line(Padding(indent) + std::string(l) +
         Padding(label_columns - Width(l) + (i > 0 ? hang : 0)) + lines[i]);
  }
}

void Page::Command(std::string_view command, int indent) {
  // A quoted word is one, whatever is in it.
  constexpr char kQuotedBlank = '\x04';
  std::string words(command);
  bool quoted = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == '\\' && !quoted)
      ++i;
    else if (words[i] == '\'')
      quoted = !quoted;
    else if (words[i] == ' ' && quoted)
      words[i] = kQuotedBlank;
  }
  std::vector<std::string> lines =
      Wrap(words, columns_ - indent - 4, /*cut=*/false);
  for (std::string& line : lines)
    std::replace(line.begin(), line.end(), kQuotedBlank, ' ');
  for (size_t i = 0; i < lines.size(); ++i)
    Line(Padding(indent) +
         Toned(Tone::kDim, (i == 0 ? "$ " : "  ") + lines[i] +
                               (i + 1 < lines.size() ? " \\" : "")));
}

void Page::Add(const Table& table, int indent) {
  std::vector<int> widths;
  auto measure = [&](const std::vector<std::string>& row) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], Width(row[c]));
  };
  measure(table.header);
  for (const auto& row : table.rows) measure(row);
  if (widths.empty()) return;

  int numbers = 0;
  for (size_t c = 1; c < widths.size(); ++c) numbers += widths[c] + 2;
  int room = columns_ - indent - numbers;
  if (widths[0] > room && room < kNarrowestName) {
    Paragraph(Toned(Tone::kDim, table.header[0]), indent);
    for (const auto& row : table.rows) {
      std::string text = row[0] + ":";
      for (size_t c = 1; c < row.size(); ++c)
        text += (c > 1 ? ", " : " ") + table.header[c] + " " + row[c];
      Paragraph(text, indent, 4);
    }
    return;
  }
  widths[0] = std::min(widths[0], room);
  auto print = [&](const std::vector<std::string>& row, bool header) {
    std::string name = Width(row[0]) > widths[0]
                           ? Ellipsize(WithoutTones(row[0]), widths[0])
                           : row[0];
    std::string line = name + Padding(widths[0] - Width(name));
    for (size_t c = 1; c < row.size(); ++c)
      line += "  " + Padding(widths[c] - Width(row[c])) + row[c];
    Line(Padding(indent) + (header ? Toned(Tone::kDim, line) : line));
  };
  print(table.header, true);
  for (const auto& row : table.rows) print(row, false);
}

}  // namespace ingero::cli
