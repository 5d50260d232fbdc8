// SPDX-License-Identifier: Apache-2.0
// Rows of path_table and feed_table summed by second: path_seconds_table and
// feed_seconds_table.
//
// Summed are rows of one second that agree in all but range, time, stretches
// and pages, and that the rules judge alike (they tell cells of short stretches
// and of many pages apart).
//
// Threads: one. Memory: a slot for each row that is folded at once.
#ifndef INGERO_MERGE_SECOND_FOLDER_H_
#define INGERO_MERGE_SECOND_FOLDER_H_

#include <cstdint>
#include <vector>

#include "base/block_codec.h"

namespace ingero::merge {

class SecondFolder {
 public:
  // Appends what `rows` sum up to. `rows` are of path_table or feed_table, and
  // *sums of the table by second.
  void Fold(const Rows& rows, Rows* sums);

 private:
  std::vector<uint32_t> slots_;  // by hash: row of sums plus 1; 0 = free
  std::vector<uint64_t> keys_;   // of the rows that were added
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_SECOND_FOLDER_H_
