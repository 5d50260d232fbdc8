// SPDX-License-Identifier: Apache-2.0
// The store file. Writing goes through LMDB; this is the only unit that
// includes lmdb.h.
//
// A store file never changes once it has its name. A merge builds a new file
// beside it and renames it over the old one when it is whole and on disk. So:
//   - a kill or a full disk leaves the previous state intact;
//   - a reader keeps the file that it opened: its view is consistent while a
//     merge writes, and it needs neither LMDB's lock file nor write access, so
//     a store opens on read-only media;
//   - no reader slots, hence none left over by killed readers.
//
// Reading walks LMDB's pages itself and checks every number before using it,
// because LMDB trusts its pages: on damaged ones it faults or asserts. The walk
// touches no value, only branch and leaf pages, and yields where each value
// lies. That all keys are as they were written is known from a check over them
// (index_table), so no block is missed; a block's own CRC and that it is the one
// of its key are checked when it is read. So a store opens in a time that its
// events do not add to, and damage is told by who meets it. All reads are pread(2): a file that is cut meanwhile gives an error,
// where a mapping would give SIGBUS.
#ifndef INGERO_MERGE_STORE_H_
#define INGERO_MERGE_STORE_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/block_codec.h"
#include "base/file.h"
#include "base/interval.h"
#include "base/status.h"
#include "merge/block_queue.h"
#include "merge/schema.h"

namespace ingero::merge {

// Where a block lies: its key and its bytes in the file or stream.
struct BlockRef {
  uint16_t table = 0;
  uint16_t source = 0;  // of several files; 0 in a store
  uint32_t owner = 0;
  int64_t first_ns = 0, last_ns = 0;
  uint32_t sequence = 0;
  uint32_t bytes = 0;
  uint64_t offset = 0;
};

std::string EncodeKey(const BlockRef& ref);
// False where `key` is not a store key.
bool DecodeKey(std::string_view key, BlockRef* ref);

// The data file of a store given as its folder or as the file itself.
std::string StoreDataPath(const std::string& path);
// Likewise. Errors: there is none, and where to look for one.
Result<std::string> FindStoreData(const std::string& path);

// Coding and committing is done by a thread of the writer (BlockQueue), so that
// who decodes streams and who writes the store use two cores.
//
// Threads: one caller. An error of the thread is returned by the next call.
class StoreWriter {
 public:
  // Begins a new file at `path`, which is replaced if present.
  static Result<std::unique_ptr<StoreWriter>> Create(const std::string& path);
  ~StoreWriter();  // without Finish(): removes the file
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  // Queues an encoded block. Batches of kBatchBytes are one transaction.
  Status PutBlock(std::string block);
  // Queues rows to be encoded; no-op for no rows. *rows is empty afterwards.
  Status PutRows(Rows* rows, uint32_t owner,
                 BlockQueue::Prepare prepare = nullptr);
  // Commits what is queued, and waits for it.
  Status Flush();
  // Flush, add the index row, write everything to disk, close. The file stays
  // at `path`.
  Status Finish();

  static constexpr size_t kBatchBytes = 4u << 20;
  static constexpr size_t kFirstMapBytes = 1u << 20;

 private:
  struct Env;
  explicit StoreWriter(std::string path);
  // Of the thread:
  Status AddToBatch(std::string block);
  Status Commit();
  Status Grow();

  std::string path_;
  std::unique_ptr<Env> env_;
  std::unique_ptr<BlockQueue> queue_;
  bool finished_ = false;
  // Of the thread:
  std::vector<std::pair<std::string, std::string>> batch_;
  size_t batch_bytes_ = 0;
  std::unordered_map<uint64_t, uint32_t> sequences_;  // by (table, owner)
  uint64_t entries_ = 0, keys_check_ = 0;  // see index_table
};

class StoreFile {
 public:
  // Checks the file's pages and keys. One line says what is wrong.
  static Result<std::unique_ptr<StoreFile>> Open(const std::string& data_path);
  // All blocks in key order.
  const std::vector<BlockRef>& blocks() const { return blocks_; }
  // The blocks of a table, in key order: owner, then time.
  std::span<const BlockRef> Table(uint16_t table) const;
  std::span<const BlockRef> Owner(uint16_t table, uint32_t owner) const;
  // Of `blocks`, a part of blocks(), those that touch `window`: in a time that
  // the others do not add to.
  std::vector<BlockRef> Touching(std::span<const BlockRef> blocks,
                                 Interval window) const;
  // Replaces *bytes by the block's. An error where they are not of its key; the
  // CRC is left to who decodes.
  Status Read(const BlockRef& ref, std::string* bytes) const;
  // Checks the keys alone. false: the store is of before there was an index.
  Result<bool> VerifyKeys() const;
  // Checks one block, all of it, and says what it says of itself.
  Result<BlockPreamble> VerifyBlock(const BlockRef& ref) const;
  // Every block, and the keys. Reads everything.
  Status VerifyBlocks() const;
  // Reads the numbered rows of a description table (chunks in owner order).
  Status ReadAll(const TableSchema& schema, Rows* rows) const;

  uint64_t size() const { return size_; }
  // Of pages that hold something; the rest was left over by commits.
  uint64_t used_bytes() const { return used_bytes_; }
  // Bytes of the pages that an entry of this size takes for itself.
  uint64_t PageBytesOf(const BlockRef& ref) const;
  const std::string& path() const { return file_.path(); }
  int fd() const { return file_.fd(); }

 private:
  explicit StoreFile(InputFile file) : file_(std::move(file)) {}
  Status Walk();
  // Of the block that `bytes` begins with, if it is the one of `ref`.
  static Result<BlockPreamble> PreambleOf(const BlockRef& ref,
                                          std::string_view bytes);

  InputFile file_;
  uint64_t size_ = 0, page_bytes_ = 0, used_bytes_ = 0;
  std::vector<BlockRef> blocks_;
  std::vector<int64_t> reach_;  // latest last_ns of the owner's blocks so far
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_STORE_H_
