// SPDX-License-Identifier: Apache-2.0
// A finding's lost time as a query of the stored path: whoever doubts a rule
// adds up the same rows by themselves.
#ifndef INGERO_ANALYSIS_LOST_TIME_QUERY_H_
#define INGERO_ANALYSIS_LOST_TIME_QUERY_H_

#include <array>
#include <map>
#include <string>
#include <vector>

#include "analysis/report.h"

namespace ingero::analysis {

// Of one starved process. All cells of the process are added, then asked.
class LostTimeQuery {
 public:
  explicit LostTimeQuery(const Report* report) : report_(report) {}

  // `taken[r]` of the cell went to rule r. Cells that may not have been lost do
  // not count.
  void Add(const PathCell& cell, const std::vector<Ns>& taken);

  struct Answer {
    std::string sql;
    Ns others;  // what it also adds up, and other rules took
  };
  // The SELECT that gives what `rule` took, `lost`, of process `pid`'s path,
  // and little beside it; "" where no short condition does.
  Answer Sql(size_t rule, uint32_t pid, Ns lost) const;

 private:
  // Columns of the table, as kNames has them. Numbers; ~0 for none.
  static constexpr size_t kColumns = 7;
  using Key = std::array<uint64_t, kColumns>;
  struct Sum {
    Ns all;
    std::map<size_t, Ns> taken;  // by rule
  };

  std::string Text(size_t column, uint64_t value) const;

  const Report* report_;
  std::map<Key, Sum> sums_;
  bool too_many_ = false;
};

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_LOST_TIME_QUERY_H_
