// SPDX-License-Identifier: Apache-2.0
#include "merge/block_joiner.h"

namespace ingero::merge {

Status BlockJoiner::Put(std::string block, const TableSchema& schema) {
  INGERO_ASSIGN_OR_RETURN(const BlockPreamble p, ReadPreamble(block));
  Waiting& w = waiting_[{p.table, p.owner}];
  // A newer writer's columns would be lost on the way through rows.
  const bool small = IsSmall(p) && p.columns == schema.columns.size();
  if (w.rows > 0 && (!small || w.rows + p.rows > kMostRows ||
                     w.raw_bytes + p.raw_bytes > kMostBytes))
    INGERO_RETURN_IF_ERROR(Flush(p.owner, &w));
  if (!small) return writer_->PutBlock(std::move(block));
  w.schema = &schema;
  w.rows += p.rows;
  w.raw_bytes += p.raw_bytes;
  w.blocks.push_back(std::move(block));
  return {};
}

Status BlockJoiner::Finish() {
  for (auto& [key, w] : waiting_)
    INGERO_RETURN_IF_ERROR(Flush(key.second, &w));
  waiting_.clear();
  return {};
}

Status BlockJoiner::Flush(uint32_t owner, Waiting* w) {
  if (w->blocks.size() == 1) {
    INGERO_RETURN_IF_ERROR(writer_->PutBlock(std::move(w->blocks.front())));
  } else if (w->blocks.size() > 1) {
    joined_.schema = w->schema;
    joined_.Clear();
    for (const std::string& block : w->blocks) {
      INGERO_RETURN_IF_ERROR(DecodeBlock(block, *w->schema, &rows_));
      for (size_t r = 0; r < rows_.size(); ++r)
        joined_.Append(rows_.row(r),
                       w->schema->has_text ? rows_.texts[r] : "");
    }
    INGERO_RETURN_IF_ERROR(writer_->PutRows(&joined_, owner));
  }
  *w = {};
  return {};
}

}  // namespace ingero::merge
