// SPDX-License-Identifier: Apache-2.0
// A kernel stream: where its coded blocks lie, by table.
//
// Indexing reads only preambles unless asked to verify. What is not a block is
// skipped up to the next one and counted; a cut last block is a torn tail.
#ifndef INGERO_MERGE_KERNEL_STREAM_H_
#define INGERO_MERGE_KERNEL_STREAM_H_

#include <memory>
#include <string>
#include <vector>

#include "merge/store.h"
#include "merge/stream.h"

namespace ingero::merge {

class KernelStream {
 public:
  // verify: checks every block's CRC too, which reads the whole file. Without,
  // a damaged block may be among blocks(), but none that ends more than a
  // minute after those before it.
  static Result<std::unique_ptr<KernelStream>> Open(const std::string& path,
                                                    bool verify);

  const ingero_stream_header& header() const { return stream_.header; }
  const std::string& path() const { return stream_.file.path(); }
  uint64_t bytes() const { return stream_.bytes; }
  // In file order. A newer writer's tables are included.
  const std::vector<BlockRef>& blocks() const { return blocks_; }
  Status Read(const BlockRef& ref, std::string* bytes) const;

  uint64_t rows() const { return rows_; }
  // First and last row of any table; begin = the header's creation time.
  Interval span() const { return span_; }
  uint64_t skipped_bytes() const { return skipped_; }  // damage
  uint64_t skipped_places() const { return places_; }
  bool torn() const { return torn_; }
  // Damage, for a person: where in the file, how much, what to do.
  const std::vector<std::string>& damage() const { return damage_.lines(); }

 private:
  explicit KernelStream(OpenStream stream) : stream_(std::move(stream)) {}
  Status Index(bool verify);
  void Skip(uint64_t* at, uint64_t next);
  // Offset of the next whole block at or after `offset`, or the size.
  Result<uint64_t> FindBlock(uint64_t offset) const;

  OpenStream stream_;
  std::vector<BlockRef> blocks_;
  uint64_t rows_ = 0, skipped_ = 0, places_ = 0;
  bool torn_ = false;
  DamageLines damage_;
  Interval span_;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_KERNEL_STREAM_H_
