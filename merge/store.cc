// SPDX-License-Identifier: Apache-2.0
#include "merge/store.h"

#include <endian.h>
#include <errno.h>
#include <lmdb.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/file_error.h"
#include "wire/wire.h"

namespace ingero::merge {
namespace {

constexpr size_t kKeyBytes = 26;
constexpr uint64_t kSignBit = uint64_t{1} << 63;

template <typename T>
T LoadAt(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// ---- LMDB's file format, data version 1 (little endian, 64 bit) ----------

constexpr uint32_t kLmdbMagic = 0xBEEFC0DE;
constexpr uint32_t kLmdbVersion = 1;
constexpr size_t kPageHeader = 16;
constexpr size_t kNodeHeader = 8;
constexpr uint16_t kPageBranch = 0x01, kPageLeaf = 0x02, kPageOverflow = 0x04,
                   kPageMeta = 0x08;
constexpr uint16_t kNodeBigData = 0x01;
constexpr uint64_t kNoPage = ~uint64_t{0};
constexpr int kMaxDepth = 32;  // LMDB's own bound (CURSOR_STACK)

struct LmdbDb {
  uint32_t pad;  // of the first: page size
  uint16_t flags, depth;
  uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
};
static_assert(sizeof(LmdbDb) == 48);

struct LmdbMeta {
  uint32_t magic, version;
  uint64_t address, map_size;
  LmdbDb free_db, main_db;
  uint64_t last_page, txn_id;
};
static_assert(sizeof(LmdbMeta) == 136);

struct LmdbPageHeader {
  uint64_t number;
  uint16_t pad, flags;
  uint16_t lower, upper;  // overflow: uint32_t count of pages instead
};
static_assert(sizeof(LmdbPageHeader) == kPageHeader);

Status Damaged(const std::string& what) {
  return Status::Error("damaged store: " + what +
                       "; run `ingero merge` again to make a new one");
}

// What an entry adds to keys_check: order does not matter.
uint64_t CheckOfKey(std::string_view key, uint32_t value_bytes) {
  const uint32_t bytes = htole32(value_bytes);
  return Crc32c({reinterpret_cast<const char*>(&bytes), sizeof(bytes)},
                Crc32c(key));
}

// LMDB writes a commit in pieces of up to this size.
constexpr uint64_t kWriteBytes = 1 << 20;

Status LmdbError(const std::string& verb, const std::string& path, int rc) {
  std::string hint;
  // A short write, as on a full disk, is EIO in LMDB's words, or ENOSPC.
  struct statvfs fs;
  const bool cut = rc == EIO || rc == ENOSPC;
  const bool full = cut && statvfs(path.c_str(), &fs) == 0 &&
                    uint64_t{fs.f_bavail} * fs.f_frsize < kWriteBytes;
  if (full) rc = ENOSPC;
  // Nor is one at the limit on the size of files (ulimit -f) told apart.
  struct stat st;
  rlimit most;
  if (cut && !full && getrlimit(RLIMIT_FSIZE, &most) == 0 &&
      most.rlim_cur != RLIM_INFINITY &&
      (stat((path + "/data.mdb").c_str(), &st) == 0 ||
       stat(path.c_str(), &st) == 0) &&
      static_cast<uint64_t>(st.st_size) + kWriteBytes > most.rlim_cur)
    rc = EFBIG;
  if (rc == ENOMEM)
    hint = "; more memory or address space is needed";
  else if (rc > 0)
    hint = WriteAdvice(rc);
  return Status::Error(verb + " " + path + ": " + mdb_strerror(rc) + hint);
}

Status NoStore(const std::string& why) {
  return Status::Error("not an ingero store: " + why +
                       "; name one that `ingero merge` made (`ingero list` "
                       "shows them)");
}

bool IsStream(std::string_view head) {
  if (head.size() < sizeof(uint64_t)) return false;
  const auto magic = LoadAt<uint64_t>(head, 0);
  return magic == INGERO_MAGIC_CUDA || magic == INGERO_MAGIC_KERNEL ||
         magic == INGERO_MAGIC_CODE;
}

}  // namespace

std::string EncodeKey(const BlockRef& ref) {
  std::string key(kKeyBytes, '\0');
  const uint16_t table = htobe16(ref.table);
  const uint32_t owner = htobe32(ref.owner);
  const uint64_t first =
      htobe64(static_cast<uint64_t>(ref.first_ns) ^ kSignBit);
  const uint64_t last = htobe64(static_cast<uint64_t>(ref.last_ns) ^ kSignBit);
  const uint32_t sequence = htobe32(ref.sequence);
  std::memcpy(&key[0], &table, 2);
  std::memcpy(&key[2], &owner, 4);
  std::memcpy(&key[6], &first, 8);
  std::memcpy(&key[14], &last, 8);
  std::memcpy(&key[22], &sequence, 4);
  return key;
}

bool DecodeKey(std::string_view key, BlockRef* ref) {
  if (key.size() != kKeyBytes) return false;
  ref->table = be16toh(LoadAt<uint16_t>(key, 0));
  ref->owner = be32toh(LoadAt<uint32_t>(key, 2));
  ref->first_ns =
      static_cast<int64_t>(be64toh(LoadAt<uint64_t>(key, 6)) ^ kSignBit);
  ref->last_ns =
      static_cast<int64_t>(be64toh(LoadAt<uint64_t>(key, 14)) ^ kSignBit);
  ref->sequence = be32toh(LoadAt<uint32_t>(key, 22));
  return true;
}

std::string StoreDataPath(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode))
    return path + "/data.mdb";
  return path;
}

// ---- writing --------------------------------------------------------------

struct StoreWriter::Env {
  MDB_env* env = nullptr;
  size_t map_bytes = kFirstMapBytes;
  ~Env() {
    if (env != nullptr) mdb_env_close(env);
  }
};

StoreWriter::StoreWriter(std::string path)
    : path_(std::move(path)), env_(std::make_unique<Env>()) {}

StoreWriter::~StoreWriter() {
  queue_.reset();
  env_.reset();
  if (!finished_) unlink(path_.c_str());
}

Result<std::unique_ptr<StoreWriter>> StoreWriter::Create(
    const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT)
    return CannotWrite(path, errno);
  std::unique_ptr<StoreWriter> writer(new StoreWriter(path));
  Env& e = *writer->env_;
  int rc = mdb_env_create(&e.env);
  if (rc == 0) rc = mdb_env_set_mapsize(e.env, e.map_bytes);
  // No lock file: nobody else knows this file before it is renamed. No sync
  // before Finish(): what a crash leaves of it is never looked at.
  if (rc == 0)
    rc = mdb_env_open(e.env, path.c_str(),
                      MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC | MDB_NOTLS,
                      0644);
  if (rc != 0) return LmdbError("create", path, rc);
  StoreWriter* w = writer.get();
  INGERO_ASSIGN_OR_RETURN(
      writer->queue_,
      BlockQueue::Start(
          [w](std::string b) { return w->AddToBatch(std::move(b)); },
          [w] { return w->Commit(); }));
  return writer;
}

Status StoreWriter::PutBlock(std::string block) {
  return queue_->PutBlock(std::move(block));
}

Status StoreWriter::PutRows(Rows* rows, uint32_t owner,
                            BlockQueue::Prepare prepare) {
  return queue_->PutRows(rows, owner, prepare);
}

Status StoreWriter::AddToBatch(std::string block) {
  INGERO_ASSIGN_OR_RETURN(const BlockPreamble p, ReadPreamble(block));
  BlockRef ref;
  ref.table = p.table;
  ref.owner = p.owner;
  ref.first_ns = p.first_ns;
  ref.last_ns = p.last_ns;
  ref.sequence = sequences_[uint64_t{p.table} << 32 | p.owner]++;
  batch_bytes_ += block.size();
  std::string key = EncodeKey(ref);
  ++entries_;
  keys_check_ += CheckOfKey(key, static_cast<uint32_t>(block.size()));
  batch_.emplace_back(std::move(key), std::move(block));
  return batch_bytes_ >= kBatchBytes ? Commit() : Status();
}

Status StoreWriter::Grow() {
  // Twice the size; where the address space is limited, what still fits.
  for (size_t step = env_->map_bytes; step >= kFirstMapBytes; step /= 2) {
    const int rc = mdb_env_set_mapsize(env_->env, env_->map_bytes + step);
    if (rc == 0) {
      env_->map_bytes += step;
      return {};
    }
    // A failed attempt leaves the environment without a map: put one back.
    const int back = mdb_env_set_mapsize(env_->env, env_->map_bytes);
    if (back != 0) return LmdbError("map", path_, back);
    if (rc != ENOMEM) return LmdbError("grow", path_, rc);
  }
  return LmdbError("grow", path_, ENOMEM);
}

Status StoreWriter::Commit() {
  std::sort(batch_.begin(), batch_.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  while (!batch_.empty()) {
    MDB_txn* txn = nullptr;
    MDB_dbi dbi = 0;
    int rc = mdb_txn_begin(env_->env, nullptr, 0, &txn);
    if (rc != 0) return LmdbError("begin a transaction in", path_, rc);
    rc = mdb_dbi_open(txn, nullptr, 0, &dbi);
    for (size_t i = 0; rc == 0 && i < batch_.size(); ++i) {
      MDB_val key{batch_[i].first.size(), batch_[i].first.data()};
      MDB_val value{batch_[i].second.size(), batch_[i].second.data()};
      rc = mdb_put(txn, dbi, &key, &value, MDB_NOOVERWRITE);
    }
    if (rc == 0) {
      rc = mdb_txn_commit(txn);  // frees txn whatever it returns
    } else {
      mdb_txn_abort(txn);
    }
    if (rc == MDB_MAP_FULL) {
      INGERO_RETURN_IF_ERROR(Grow());
      continue;
    }
    if (rc != 0) return LmdbError("write", path_, rc);
    batch_.clear();
  }
  batch_bytes_ = 0;
  return {};
}

Status StoreWriter::Flush() { return queue_->Flush(); }

Status StoreWriter::Finish() {
  INGERO_RETURN_IF_ERROR(Flush());  // and the thread rests: these are final
  Rows index;
  index.schema = &index_table::kSchema;
  const uint64_t row[] = {0, entries_, keys_check_};
  index.Append(row);
  INGERO_RETURN_IF_ERROR(PutRows(&index, 0));
  INGERO_RETURN_IF_ERROR(Flush());
  int rc = mdb_env_sync(env_->env, 1);
  if (rc != 0) return LmdbError("sync", path_, rc);
  env_.reset();
  // LMDB writes its meta pages through another descriptor; sync the file as a
  // whole, so that the rename that follows publishes nothing half-written.
  INGERO_ASSIGN_OR_RETURN(Fd fd, OpenFile(path_, O_RDONLY));
  if (fsync(fd.get()) != 0) return Status::Errno("sync " + path_, errno);
  finished_ = true;
  return {};
}

// ---- reading --------------------------------------------------------------

Result<std::unique_ptr<StoreFile>> StoreFile::Open(
    const std::string& data_path) {
  auto opened = InputFile::Open(data_path);
  if (!opened.ok()) return opened.status();
  std::unique_ptr<StoreFile> file(new StoreFile(std::move(*opened)));
  INGERO_ASSIGN_OR_RETURN(file->size_, file->file_.Size());
  Status s = file->Walk();
  if (!s.ok()) return std::move(s).In(data_path);
  return file;
}

Result<std::string> FindStoreData(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) != 0)
    return errno == ENOENT || errno == ENOTDIR
               ? Status::Error(
                     Status::Errno("open store " + path, errno).message() +
                     "; `ingero list` shows those there are")
               : CannotOpen("store " + path, errno);
  const std::string data = StoreDataPath(path);
  if (S_ISDIR(st.st_mode) && access(data.c_str(), F_OK) != 0)
    return errno == ENOENT
               ? Status::Error(path +
                               ": not a store: no data.mdb in this folder; "
                               "`ingero list` shows the stores there are")
               : CannotOpen(data, errno);
  return data;
}

Status StoreFile::Walk() {
  if (size_ == 0) return Damaged("the file is empty");
  // Meta pages: page 0 and 1. The newer valid one rules. Page size is only
  // known from them; every sane one is a power of two from 512 on.
  std::string head;
  INGERO_RETURN_IF_ERROR(
      file_.ReadAt(0, std::min<uint64_t>(size_, 2 * 65536 + 512), &head));
  const auto read_meta = [&](size_t at, LmdbMeta* meta) {
    if (head.size() < at + kPageHeader + sizeof(LmdbMeta)) return false;
    const auto page = LoadAt<LmdbPageHeader>(head, at);
    *meta = LoadAt<LmdbMeta>(head, at + kPageHeader);
    return (page.flags & kPageMeta) != 0 && meta->magic == kLmdbMagic;
  };
  LmdbMeta first, second;
  if (!read_meta(0, &first))
    return IsStream(head)
               ? Status::Error("a stream of a recorder, not a store; `ingero "
                               "merge` makes a store of it, `ingero dump` "
                               "prints it")
               : NoStore("no LMDB header");
  if (first.version != kLmdbVersion)
    return Status::Error("not an ingero store: LMDB data version " +
                         std::to_string(first.version) + ", this ingero reads " +
                         std::to_string(kLmdbVersion));
  const uint64_t page_bytes = page_bytes_ = first.free_db.pad;
  if (page_bytes < 512 || page_bytes > 65536 ||
      (page_bytes & (page_bytes - 1)) != 0)
    return Damaged("impossible page size");
  if (!read_meta(page_bytes, &second) || second.version != kLmdbVersion ||
      second.free_db.pad != page_bytes)
    return Damaged("its second header does not fit the first");
  // Commits write them in turn. One with a wrong number would put the state of
  // before the last commit in the place of the newest.
  if (first.txn_id % 2 != 0 || second.txn_id % 2 != 1 ||
      (first.txn_id > second.txn_id ? first.txn_id - second.txn_id
                                    : second.txn_id - first.txn_id) != 1)
    return Damaged("its two headers do not follow each other");
  const LmdbMeta& meta = second.txn_id > first.txn_id ? second : first;
  const uint64_t pages = size_ / page_bytes;
  if (meta.last_page >= pages)
    return Damaged("it is cut off: " + std::to_string(size_) + " bytes of " +
                   std::to_string((meta.last_page + 1) * page_bytes));
  if (meta.main_db.flags != 0)
    return NoStore("another program's database");
  if (meta.main_db.root == kNoPage || meta.main_db.entries == 0)
    return NoStore("it holds no entries");

  // Depth first, in key order. Each page is visited at most once: a page seen
  // twice is a loop or a shared child.
  struct Frame {
    std::string page;
    size_t next = 0;  // index of the next node
  };
  std::vector<bool> seen(pages, false);
  std::vector<Frame> stack;
  BlockRef previous;
  std::string previous_key;
  uint64_t next_page = meta.main_db.root;
  while (true) {
    if (next_page != kNoPage) {
      if (next_page < 2 || next_page > meta.last_page || seen[next_page] ||
          stack.size() >= kMaxDepth)
        return Damaged("a page points to an impossible page");
      seen[next_page] = true;
      Frame frame;
      INGERO_RETURN_IF_ERROR(
          file_.ReadAt(next_page * page_bytes, page_bytes, &frame.page));
      if (frame.page.size() != page_bytes) return Damaged("it is cut off");
      const auto h = LoadAt<LmdbPageHeader>(frame.page, 0);
      const uint16_t kind = h.flags & (kPageBranch | kPageLeaf |
                                       kPageOverflow | kPageMeta);
      if (h.number != next_page || (kind != kPageBranch && kind != kPageLeaf) ||
          (h.flags & 0x60) != 0 || h.lower < kPageHeader || h.lower > h.upper ||
          h.upper > page_bytes || (h.lower - kPageHeader) % 2 != 0)
        return Damaged("page " + std::to_string(next_page) +
                       " has an impossible header");
      stack.push_back(std::move(frame));
      next_page = kNoPage;
    }
    if (stack.empty()) break;
    Frame& top = stack.back();
    const auto h = LoadAt<LmdbPageHeader>(top.page, 0);
    const size_t nodes = (h.lower - kPageHeader) / 2;
    if (top.next == nodes) {
      stack.pop_back();
      continue;
    }
    const size_t at =
        LoadAt<uint16_t>(top.page, kPageHeader + 2 * top.next);
    const bool leftmost = top.next == 0;
    ++top.next;
    if (at < h.upper || at + kNodeHeader > page_bytes)
      return Damaged("an entry lies outside of its page");
    const auto lo = LoadAt<uint16_t>(top.page, at);
    const auto hi = LoadAt<uint16_t>(top.page, at + 2);
    const auto flags = LoadAt<uint16_t>(top.page, at + 4);
    const auto key_bytes = LoadAt<uint16_t>(top.page, at + 6);
    if (at + kNodeHeader + key_bytes > page_bytes)
      return Damaged("a key lies outside of its page");
    if (h.flags & kPageBranch) {
      if (key_bytes != kKeyBytes && !(leftmost && key_bytes == 0))
        return Damaged("a branch key has an impossible size");
      next_page = uint64_t{lo} | uint64_t{hi} << 16 | uint64_t{flags} << 32;
      if (next_page == kNoPage) return Damaged("a page points nowhere");
      continue;
    }
    const std::string_view key =
        std::string_view(top.page).substr(at + kNodeHeader, key_bytes);
    BlockRef ref;
    if (!DecodeKey(key, &ref))
      return blocks_.empty()
                 ? NoStore("another program's database")
                 : Damaged("a key has an impossible size");
    if (!previous_key.empty() && key <= previous_key)
      return Damaged("its keys are out of order");
    previous_key.assign(key);
    const uint64_t value_bytes = uint64_t{lo} | uint64_t{hi} << 16;
    const size_t value_at = at + kNodeHeader + key_bytes;
    if ((flags & ~kNodeBigData) != 0 || value_bytes > UINT32_MAX)
      return Damaged("an entry has impossible flags");
    if (flags & kNodeBigData) {
      if (value_at + 8 > page_bytes)
        return Damaged("an entry lies outside of its page");
      const auto page = LoadAt<uint64_t>(top.page, value_at);
      const uint64_t span =
          (kPageHeader + value_bytes + page_bytes - 1) / page_bytes;
      if (page < 2 || page > meta.last_page ||
          span > meta.last_page + 1 - page)
        return Damaged("a value lies outside of the file");
      for (uint64_t i = page; i < page + span; ++i) {
        if (seen[i]) return Damaged("two values share a page");
        seen[i] = true;
      }
      ref.offset = page * page_bytes + kPageHeader;
    } else {
      if (value_at + value_bytes > page_bytes)
        return Damaged("a value lies outside of its page");
      ref.offset = (stack.size() > 0 ? LoadAt<LmdbPageHeader>(top.page, 0).number
                                     : 0) *
                       page_bytes +
                   value_at;
    }
    ref.bytes = static_cast<uint32_t>(value_bytes);
    const bool same_owner = !blocks_.empty() &&
                            blocks_.back().table == ref.table &&
                            blocks_.back().owner == ref.owner;
    reach_.push_back(same_owner ? std::max(reach_.back(), ref.last_ns)
                                : ref.last_ns);
    blocks_.push_back(ref);
  }
  used_bytes_ = (2 + static_cast<uint64_t>(std::count(seen.begin(), seen.end(),
                                                      true))) *
                page_bytes;
  if (blocks_.size() != meta.main_db.entries)
    return Damaged("it holds " + std::to_string(blocks_.size()) + " of " +
                   std::to_string(meta.main_db.entries) + " entries");
  return {};
}

std::span<const BlockRef> StoreFile::Table(uint16_t table) const {
  const auto less = [](const BlockRef& r, uint16_t t) { return r.table < t; };
  const auto begin =
      std::lower_bound(blocks_.begin(), blocks_.end(), table, less);
  const auto end = std::upper_bound(
      begin, blocks_.end(), table,
      [](uint16_t t, const BlockRef& r) { return t < r.table; });
  return {begin, end};
}

std::span<const BlockRef> StoreFile::Owner(uint16_t table,
                                           uint32_t owner) const {
  const auto key = [](const BlockRef& r) {
    return uint64_t{r.table} << 32 | r.owner;
  };
  const uint64_t wanted = uint64_t{table} << 32 | owner;
  const auto begin = std::lower_bound(
      blocks_.begin(), blocks_.end(), wanted,
      [&](const BlockRef& r, uint64_t k) { return key(r) < k; });
  const auto end = std::upper_bound(
      begin, blocks_.end(), wanted,
      [&](uint64_t k, const BlockRef& r) { return k < key(r); });
  return {begin, end};
}

std::vector<BlockRef> StoreFile::Touching(std::span<const BlockRef> blocks,
                                          Interval window) const {
  std::vector<BlockRef> out;
  for (auto owner = blocks.begin(); owner != blocks.end();) {
    const auto end = std::upper_bound(
        owner, blocks.end(), *owner, [](const BlockRef& a, const BlockRef& b) {
          return a.table != b.table ? a.table < b.table : a.owner < b.owner;
        });
    const auto reach =
        reach_.begin() + (&*owner - blocks_.data());
    auto at = owner + (std::lower_bound(reach, reach + (end - owner),
                                        window.begin.value) -
                       reach);
    for (; at != end && at->first_ns < window.end.value; ++at)
      if (at->last_ns >= window.begin.value) out.push_back(*at);
    owner = end;
  }
  return out;
}

uint64_t StoreFile::PageBytesOf(const BlockRef& ref) const {
  // A value that does not lie in its leaf page has pages of its own.
  if (ref.offset % page_bytes_ != kPageHeader) return ref.bytes;
  return (kPageHeader + ref.bytes + page_bytes_ - 1) / page_bytes_ *
         page_bytes_;
}

Result<BlockPreamble> StoreFile::PreambleOf(const BlockRef& ref,
                                            std::string_view bytes) {
  auto p = ReadPreamble(bytes);
  if (!p.ok()) return Damaged(p.status().message());
  if (p->table != ref.table || p->owner != ref.owner ||
      p->first_ns != ref.first_ns || p->last_ns != ref.last_ns ||
      BlockBytes(*p) != ref.bytes)
    return Damaged("a key does not fit its block");
  return *p;
}

Status StoreFile::Read(const BlockRef& ref, std::string* bytes) const {
  INGERO_RETURN_IF_ERROR(file_.ReadAt(ref.offset, ref.bytes, bytes));
  if (bytes->size() != ref.bytes) return Damaged("it was cut while being read");
  return PreambleOf(ref, *bytes).status();
}

Result<bool> StoreFile::VerifyKeys() const {
  Rows index;
  INGERO_RETURN_IF_ERROR(ReadAll(index_table::kSchema, &index));
  if (index.size() == 0) return false;
  uint64_t entries = 0, check = 0;
  for (const BlockRef& ref : blocks_) {
    if (ref.table == index_table::kSchema.id) continue;
    ++entries;
    check += CheckOfKey(EncodeKey(ref), ref.bytes);
  }
  if (index.size() != 1 || index.at(0, index_table::kEntries) != entries ||
      index.at(0, index_table::kKeysCheck) != check)
    return Damaged("its keys are not those that were written");
  return true;
}

Result<BlockPreamble> StoreFile::VerifyBlock(const BlockRef& ref) const {
  std::string bytes;
  INGERO_RETURN_IF_ERROR(file_.ReadAt(ref.offset, ref.bytes, &bytes));
  INGERO_ASSIGN_OR_RETURN(const BlockPreamble p, PreambleOf(ref, bytes));
  Status s = CheckBlock(bytes);
  return s.ok() ? Result<BlockPreamble>(p) : Damaged(s.message());
}

Status StoreFile::VerifyBlocks() const {
  INGERO_ASSIGN_OR_RETURN(const bool has_index, VerifyKeys());
  (void)has_index;
  for (const BlockRef& ref : blocks_)
    if (auto block = VerifyBlock(ref); !block.ok()) return block.status();
  return {};
}

Status StoreFile::ReadAll(const TableSchema& schema, Rows* rows) const {
  rows->schema = &schema;
  rows->Clear();
  std::string bytes;
  Rows chunk;
  for (const BlockRef& ref : Table(schema.id)) {
    INGERO_RETURN_IF_ERROR(Read(ref, &bytes));
    Status s = DecodeBlock(bytes, schema, &chunk);
    if (!s.ok()) return Damaged(s.message());
    for (size_t r = 0; r < chunk.size(); ++r)
      rows->Append(chunk.row(r), schema.has_text ? chunk.texts[r] : "");
  }
  return {};
}

}  // namespace ingero::merge
