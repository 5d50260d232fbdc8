// SPDX-License-Identifier: Apache-2.0
#include "analysis/lost_time_query.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <set>

#include "analysis/names.h"
#include "base/call_class.h"

namespace ingero::analysis {
namespace {

constexpr const char* kNames[] = {"reason",     "state",      "ended_by",
                                  "call",       "thread_pid", "thread_tid",
                                  "culprit_pid"};
constexpr uint64_t kNone64 = ~uint64_t{0};
// More kinds of time than this: nothing that a person would read.
constexpr size_t kMostKeys = 4096;
constexpr size_t kMostValues = 8, kMostColumns = 3;
// Cells are stored in ns, sums by second are rounded.
constexpr int64_t kRounding = 1000;
// Rules that take a share of a cell (memory-faults) leave the rest to others.
constexpr int64_t kMostOthersPercent = 10;

std::string Quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "''" : std::string(1, c);
  return out + "'";
}

}  // namespace

void LostTimeQuery::Add(const PathCell& cell, const std::vector<Ns>& taken) {
  if (cell.certainty != Certainty::kKnown || too_many_) return;
  const auto pid = [&](ThreadIndex t) {
    if (t == kNone || report_->threads[t].process == kNone) return kNone64;
    return uint64_t{report_->processes[report_->threads[t].process].pid};
  };
  const Key key = {static_cast<uint64_t>(cell.reason),
                   static_cast<uint64_t>(cell.state),
                   static_cast<uint64_t>(cell.ended_by),
                   cell.func == kNone ? kNone64 : uint64_t{cell.func},
                   pid(cell.thread),
                   cell.thread == kNone
                       ? kNone64
                       : uint64_t{report_->threads[cell.thread].tid},
                   pid(cell.culprit)};
  Sum& sum = sums_[key];
  sum.all += cell.time;
  for (size_t r = 0; r < taken.size(); ++r)
    if (taken[r] > Ns(0)) sum.taken[r] += taken[r];
  too_many_ = sums_.size() > kMostKeys;
}

std::string LostTimeQuery::Text(size_t column, uint64_t value) const {
  const auto name = [](const char* text) {
    return text == nullptr ? std::string() : Quoted(text);
  };
  if (value == kNone64) return "";
  switch (column) {
    case 0: return name(NameOf(static_cast<Reason>(value)));
    case 1: return name(NameOf(static_cast<ThreadState>(value)));
    case 2: return name(CallClassName(value));
    case 3: return value < report_->functions.size()
                       ? Quoted(report_->functions[value].name)
                       : "";
    default: return std::to_string(value);
  }
}

LostTimeQuery::Answer LostTimeQuery::Sql(size_t rule, uint32_t pid,
                                         Ns lost) const {
  Answer best;
  if (too_many_) return best;
  // The smallest set of columns that tells this rule's time from all other, or
  // else what tells it best.
  std::vector<unsigned> sets;
  for (unsigned set = 1; set < 1u << kColumns; ++set)
    if (static_cast<size_t>(std::popcount(set)) <= kMostColumns)
      sets.push_back(set);
  std::stable_sort(sets.begin(), sets.end(), [](unsigned a, unsigned b) {
    return std::popcount(a) < std::popcount(b);
  });
  for (const unsigned set : sets) {
    std::map<std::vector<uint64_t>, std::pair<Ns, Ns>> groups;  // taken, all
    for (const auto& [key, sum] : sums_) {
      std::vector<uint64_t> part;
      for (size_t c = 0; c < kColumns; ++c)
        if ((set >> c & 1) != 0) part.push_back(key[c]);
      auto& [taken, all] = groups[part];
      all += sum.all;
      const auto it = sum.taken.find(rule);
      if (it != sum.taken.end()) taken += it->second;
    }
    Ns found, all;
    std::vector<std::vector<uint64_t>> mine;
    for (const auto& [part, sums] : groups) {
      if (sums.first <= Ns(0)) continue;
      found += sums.first;
      all += sums.second;
      mine.push_back(part);
    }
    const Ns others = all - found;
    if (mine.empty() || mine.size() > kMostValues ||
        std::abs((found - lost).value) > kRounding ||
        others > lost * kMostOthersPercent / 100 ||
        (!best.sql.empty() && others >= best.others))
      continue;
    // An AND of INs, so all combinations must be meant.
    std::vector<std::set<std::string>> texts;
    std::vector<const char*> names;
    for (size_t c = 0; c < kColumns; ++c)
      if ((set >> c & 1) != 0) {
        names.push_back(kNames[c]);
        std::set<std::string>& column = texts.emplace_back();
        for (const auto& part : mine)
          column.insert(Text(c, part[names.size() - 1]));
      }
    bool unnamed = false;
    size_t product = 1;
    for (const auto& column : texts) {
      unnamed = unnamed || column.count("") != 0;
      product *= column.size();
    }
    if (unnamed || product != mine.size()) continue;
    std::string where;
    for (size_t i = 0; i < texts.size(); ++i) {
      std::string list;
      for (const std::string& text : texts[i])
        list += (list.empty() ? "" : ", ") + text;
      where += std::string(" AND ") + names[i] +
               (texts[i].size() == 1 ? " = " + list : " IN (" + list + ")");
    }
    best.sql = "SELECT sum(ns) FROM path_totals WHERE pid = " +
               std::to_string(pid) + " AND known = 1" + where;
    best.others = others;
    if (others == Ns(0)) break;
  }
  return best;
}

}  // namespace ingero::analysis
