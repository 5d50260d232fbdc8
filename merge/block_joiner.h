// SPDX-License-Identifier: Apache-2.0
// Small blocks, as the companion writes them of a CPU with little to do, joined
// by table and owner: a few rows cost more bytes each than many, in their block
// and in the store. Others stay as they are.
//
// Threads: one. Memory: a block's bytes for each table and owner.
#ifndef INGERO_MERGE_BLOCK_JOINER_H_
#define INGERO_MERGE_BLOCK_JOINER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/block_codec.h"
#include "base/status.h"
#include "merge/store.h"

namespace ingero::merge {

class BlockJoiner {
 public:
  explicit BlockJoiner(StoreWriter* writer) : writer_(writer) {}
  Status Put(std::string block, const TableSchema& schema);
  // Nothing waits any more.
  Status Finish();

  static constexpr size_t kMostRows = 4096;
  static constexpr size_t kMostBytes = 1 << 20;  // before they are coded
  static bool IsSmall(const BlockPreamble& block) {
    return block.rows < kMostRows / 2 && block.raw_bytes < kMostBytes / 2;
  }

 private:
  struct Waiting {
    const TableSchema* schema = nullptr;
    std::vector<std::string> blocks;  // coded: they wait for long
    size_t rows = 0, raw_bytes = 0;
  };
  Status Flush(uint32_t owner, Waiting* w);

  StoreWriter* writer_;
  std::map<std::pair<uint16_t, uint32_t>, Waiting> waiting_;
  Rows rows_, joined_;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_BLOCK_JOINER_H_
