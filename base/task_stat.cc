// SPDX-License-Identifier: Apache-2.0
#include "base/task_stat.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "base/file.h"

namespace ingero {
namespace {

std::string_view CutWord(std::string_view* text) {
  const size_t end = std::min(text->find(' '), text->size());
  const std::string_view word = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return word;
}

std::optional<TaskStat> ReadStat(const std::string& folder) {
  auto text = ReadWholeFile(folder + "/stat");
  if (!text.ok()) return std::nullopt;
  return ParseTaskStat(*text);
}

}  // namespace

std::optional<uint64_t> LeadingNumber(std::string_view text) {
  uint64_t value;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<TaskStat> ParseTaskStat(std::string_view text) {
  // The name may hold blanks and parentheses; fields count from its end.
  const size_t name = text.find('('), name_end = text.rfind(')');
  if (name == std::string_view::npos || name_end == std::string_view::npos ||
      name_end < name || name_end + 2 > text.size())
    return std::nullopt;
  TaskStat stat;
  stat.comm = text.substr(name + 1, name_end - name - 1);
  text.remove_prefix(name_end + 2);
  if (const std::string_view state = CutWord(&text); !state.empty())
    stat.state = state[0];
  const auto parent = LeadingNumber(CutWord(&text));
  for (int field = 5; field < 14; ++field) CutWord(&text);
  const auto user = LeadingNumber(CutWord(&text)),
             kernel = LeadingNumber(CutWord(&text));
  for (int field = 16; field < 22; ++field) CutWord(&text);
  const auto start = LeadingNumber(text);
  if (!parent || !user || !kernel || !start) return std::nullopt;
  stat.parent_pid = static_cast<uint32_t>(*parent);
  stat.cpu_ticks = *user + *kernel;
  stat.start_ticks = *start;
  return stat;
}

std::optional<TaskStat> ReadTaskStat(uint32_t pid) {
  return ReadStat("/proc/" + std::to_string(pid));
}

std::optional<TaskStat> ReadTaskStat(uint32_t pid, uint32_t tid) {
  return ReadStat("/proc/" + std::to_string(pid) + "/task/" +
                  std::to_string(tid));
}

bool IsDead(uint32_t pid, const TaskStat& stat) {
  return (stat.state == 'Z' || stat.state == 'X') &&
         NumberedEntries("/proc/" + std::to_string(pid) + "/task").size() <= 1;
}

std::vector<uint64_t> NumberedEntries(const std::string& path) {
  std::vector<uint64_t> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(path.c_str()),
                                                closedir);
  if (!dir) return numbers;
  while (const dirent* entry = readdir(dir.get()))
    if (const auto n = LeadingNumber(entry->d_name)) numbers.push_back(*n);
  return numbers;
}

}  // namespace ingero
