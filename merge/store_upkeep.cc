// SPDX-License-Identifier: Apache-2.0
#include "merge/store_upkeep.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/file_error.h"
#include "base/leftover.h"
#include "base/tables.h"
#include "base/text.h"
#include "merge/block_joiner.h"
#include "merge/store_lock.h"
#include "merge/store_output.h"
#include "wire/wire.h"

namespace ingero::merge {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

// A rewrite has to save so much of the file to be worth it.
constexpr double kLeastGain = 0.05;

// Numbered rows and keyframes are found by their block.
bool Joins(uint16_t table) {
  return FindTable(table) != nullptr && table != keyframe_table::kSchema.id;
}

// A recording's id ends in the beginning of the boot's.
std::string WithoutBoot(std::string recording, const std::string& boot) {
  for (const size_t digits : {8, 4}) {
    const size_t at = recording.find("-" + boot.substr(0, digits));
    if (boot.size() < digits || at == std::string::npos) continue;
    recording.replace(at + 1, digits, digits, '0');
    break;
  }
  return recording;
}

bool Describes(uint16_t table) { return table >= process_table::kSchema.id; }

std::string NameOf(uint16_t table) {
  const TableSchema* schema = FindStoreTable(table);
  return schema != nullptr ? schema->name : fmt::format("table {}", table);
}

// Calls f(table, owner, blocks) for every owner, in the order of keys.
template <typename F>
Status EachOwner(const StoreFile& file, F f) {
  const std::vector<BlockRef>& blocks = file.blocks();
  for (size_t begin = 0; begin < blocks.size();) {
    size_t end = begin;
    while (end < blocks.size() && blocks[end].table == blocks[begin].table &&
           blocks[end].owner == blocks[begin].owner)
      ++end;
    INGERO_RETURN_IF_ERROR(
        f(blocks[begin].table, blocks[begin].owner,
          std::span<const BlockRef>(&blocks[begin], end - begin)));
    begin = end;
  }
  return {};
}

// ---- writing a store anew --------------------------------------------------

class Rewriter {
 public:
  explicit Rewriter(const UpkeepProgress& progress) : progress_(progress) {}
  virtual ~Rewriter() = default;

  // output "": in the place of the old one.
  Result<Rewritten> Run(const std::string& path, const std::string& output);

 protected:
  // What becomes of the rows, set before anything is written.
  virtual Status Begin(const TraceReader&) { return {}; }
  // Nothing would come of it.
  virtual bool Useless(const TraceReader&) { return false; }
  // nullopt: all rows of the block stay as they are.
  // False: the row is left out. `text`: "" where the table has none.
  using Change =
      std::function<bool(std::vector<uint64_t>* row, std::string* text)>;
  virtual std::optional<Change> ChangeOf(const BlockRef&) {
    return std::nullopt;
  }
  virtual bool Drops(const BlockRef&) { return false; }
  // Facts and streams, which tell of all the rest, come last.
  virtual Status WriteDescription(const TraceReader& reader) {
    for (const TableSchema* schema :
         {&fact_table::kSchema, &stream_table::kSchema})
      for (const BlockRef& ref : reader.file().Table(schema->id))
        INGERO_RETURN_IF_ERROR(Copy(ref));
    return {};
  }
  Status Copy(const BlockRef& ref) {
    std::string bytes;
    INGERO_ASSIGN_OR_RETURN(const BlockPreamble p, Read(ref, &bytes));
    Wrote(ref.table, ref.owner, p.rows);
    return writer_->PutBlock(std::move(bytes));
  }
  // Errors of reading name the old store, those of writing the new one.
  Result<BlockPreamble> Read(const BlockRef& ref, std::string* bytes) const {
    INGERO_RETURN_IF_ERROR(
        reader_->file().Read(ref, bytes).In(reader_->file().path()));
    INGERO_RETURN_IF_ERROR(CheckBlock(*bytes).In(reader_->file().path()));
    return ReadPreamble(*bytes);
  }
  Status ReadRows(const BlockRef& ref, const TableSchema& schema,
                  Rows* rows) const {
    std::string bytes;
    INGERO_RETURN_IF_ERROR(Read(ref, &bytes).status());
    return DecodeBlock(bytes, schema, rows).In(reader_->file().path());
  }
  Status Put(Rows* rows, uint32_t owner) {
    if (rows->size() == 0) return {};
    Wrote(rows->schema->id, owner, rows->size());
    return writer_->PutRows(rows, owner);
  }
  void Wrote(uint16_t table, uint32_t owner, uint64_t rows) {
    rows_[table] += rows;
    rows_of_[{table, owner}] += rows;
    result_.rows_after += rows;
  }

  const TraceReader* reader_ = nullptr;
  Rewritten result_;
  std::map<uint16_t, uint64_t> rows_;  // written, by table
  std::map<std::pair<uint16_t, uint32_t>, uint64_t> rows_of_;  // and owner
  std::map<std::pair<uint16_t, uint32_t>, uint64_t> rows_were_;

 private:
  Status WriteOwner(uint16_t table, uint32_t owner,
                    std::span<const BlockRef> blocks);

  const UpkeepProgress& progress_;
  std::unique_ptr<StoreWriter> writer_;
  uint64_t bytes_read_ = 0;
};

Status Rewriter::WriteOwner(uint16_t table, uint32_t owner,
                            std::span<const BlockRef> blocks) {
  if (table == index_table::kSchema.id) return {};
  // Written with the description, but counted as `store check` does.
  if (table == fact_table::kSchema.id || table == stream_table::kSchema.id) {
    std::string block;
    for (const BlockRef& ref : blocks) {
      INGERO_ASSIGN_OR_RETURN(const BlockPreamble p, Read(ref, &block));
      result_.rows_before += p.rows;
    }
    return {};
  }
  const TableSchema* schema = FindStoreTable(table);
  BlockJoiner joiner(writer_.get());
  Rows rows, kept;
  std::string bytes, no_text;
  std::vector<uint64_t> row;
  for (const BlockRef& ref : blocks) {
    bytes_read_ += ref.bytes;
    if (progress_)
      progress_(static_cast<double>(bytes_read_) /
                    static_cast<double>(reader_->file().size()),
                result_.rows_after);
    INGERO_ASSIGN_OR_RETURN(const BlockPreamble p, Read(ref, &bytes));
    rows_were_[{table, owner}] += p.rows;
    result_.rows_before += p.rows;
    if (!result_.copied && Drops(ref)) continue;
    // One of a newer ingero has columns that would be lost by decoding it.
    const bool foreign =
        schema == nullptr || p.columns > schema->columns.size();
    const auto change =
        foreign || result_.copied ? std::nullopt : ChangeOf(ref);
    if (!change) {
      Wrote(table, owner, p.rows);
      INGERO_RETURN_IF_ERROR(Joins(table) ? joiner.Put(bytes, *schema)
                                          : writer_->PutBlock(bytes));
      continue;
    }
    INGERO_RETURN_IF_ERROR(
        DecodeBlock(bytes, *schema, &rows).In(reader_->file().path()));
    kept.schema = schema;
    for (size_t r = 0; r < rows.size(); ++r) {
      row.assign(rows.row(r).begin(), rows.row(r).end());
      std::string* const text =
          schema->has_text ? &rows.texts[r] : &no_text;
      if ((*change)(&row, text)) kept.Append(row, *text);
    }
    INGERO_RETURN_IF_ERROR(Put(&kept, owner));
  }
  return joiner.Finish();
}

Result<Rewritten> Rewriter::Run(const std::string& path,
                                const std::string& output) {
  INGERO_ASSIGN_OR_RETURN(const auto reader, OpenTrace(path));
  reader_ = reader.get();
  const std::string old_data = StoreDataPath(path);
  const size_t slash = old_data.rfind('/');
  const bool in_place = output.empty();
  result_.path = !in_place                 ? output
                 : slash == std::string::npos ? "."
                                              : old_data.substr(0, slash);
  while (result_.path.size() > 1 && result_.path.back() == '/')
    result_.path.pop_back();
  if (!in_place) INGERO_RETURN_IF_ERROR(CheckStoreOutput(result_.path));
  result_.bytes_before = result_.bytes_after = reader->file().size();
  result_.blocks_before = result_.blocks_after = reader->file().blocks().size();
  result_.span_before = result_.span = reader->span();
  INGERO_RETURN_IF_ERROR(Begin(*reader));
  result_.copied = Useless(*reader);
  if (result_.copied && in_place) return result_;

  Leftover folder;
  if (!in_place) {
    INGERO_ASSIGN_OR_RETURN(folder, MakeStoreFolder(result_.path));
  }
  const std::string data = in_place ? old_data : result_.path + "/data.mdb";
  INGERO_ASSIGN_OR_RETURN(const StoreLock lock, StoreLock::Take(result_.path, false));
  struct stat before, now;
  if (fstat(reader->file().fd(), &before) != 0)
    return Status::Errno("look at " + old_data, errno);
  if (in_place &&
      (stat(data.c_str(), &now) != 0 || now.st_ino != before.st_ino ||
       now.st_dev != before.st_dev))
    return Status::Error(data + ": a merge has just replaced it; try again");
  if (!in_place && stat(data.c_str(), &now) == 0)
    return Status::Error(result_.path +
                         ": holds a store already; name another folder with -o");

  const std::string next = data + ".new";
  Leftover unfinished(next, Leftover::kFile);
  INGERO_ASSIGN_OR_RETURN(writer_, StoreWriter::Create(next));
  const auto write = [&]() -> Status {
    INGERO_RETURN_IF_ERROR(EachOwner(
        reader->file(), [&](uint16_t table, uint32_t owner,
                            std::span<const BlockRef> blocks) {
          return WriteOwner(table, owner, blocks);
        }));
    INGERO_RETURN_IF_ERROR(result_.copied ? Rewriter::WriteDescription(*reader)
                                          : WriteDescription(*reader));
    return writer_->Finish();
  };
  INGERO_RETURN_IF_ERROR(write());
  // Whose it was, it stays. Where that can't be had, the caller's is as good.
  if (in_place && (chmod(next.c_str(), before.st_mode & 0777) != 0 ||
                   (geteuid() == 0 &&
                    lchown(next.c_str(), before.st_uid, before.st_gid) != 0))) {
  }
  if (rename(next.c_str(), data.c_str()) != 0)
    return CannotWrite(data, errno);
  unfinished.Keep();
  folder.Keep();
  if (auto dir = OpenFile(result_.path, O_RDONLY | O_DIRECTORY); dir.ok())
    (void)fsync(dir->get());
  INGERO_ASSIGN_OR_RETURN(const auto written, StoreFile::Open(data));
  result_.bytes_after = written->size();
  result_.blocks_after = written->blocks().size();
  result_.changed = true;
  return result_;
}

class Compacter : public Rewriter {
 public:
  using Rewriter::Rewriter;

 private:
  // Free pages, and what joined blocks would save.
  bool Useless(const TraceReader& reader) override {
    const StoreFile& file = reader.file();
    uint64_t saved = 0;
    Status s = EachOwner(file, [&](uint16_t table, uint32_t,
                                   std::span<const BlockRef> blocks) -> Status {
      uint64_t small_rows = 0, small = 0, small_bytes = 0;
      for (const BlockRef& ref : blocks) {
        if (!Joins(table)) continue;
        INGERO_ASSIGN_OR_RETURN(const BlockPreamble p, file.VerifyBlock(ref));
        if (!BlockJoiner::IsSmall(p)) continue;
        ++small;
        small_rows += p.rows;
        small_bytes += file.PageBytesOf(ref);
      }
      const uint64_t joined =
          (small_rows + BlockJoiner::kMostRows - 1) / BlockJoiner::kMostRows;
      // What a block takes besides its rows: preamble, key, half a page.
      constexpr uint64_t kOfABlock = 150;
      if (small > joined)
        saved += std::min(small_bytes, (small - joined) * kOfABlock);
      return {};
    });
    if (!s.ok()) return false;  // said when it is read
    const uint64_t free =
        file.size() - std::min(file.size(), file.used_bytes());
    return static_cast<double>(free + saved) <
           kLeastGain * static_cast<double>(file.size());
  }
};

class Redacter : public Rewriter {
 public:
  Redacter(const Redaction& what, const UpkeepProgress& progress)
      : Rewriter(progress), what_(what) {}

 private:
  Status Begin(const TraceReader& reader) override {
    host_ = reader.FactText("host");
    return {};
  }
  std::optional<Change> ChangeOf(const BlockRef& ref) override {
    switch (ref.table) {
      case process_table::kSchema.id:
        return [this](std::vector<uint64_t>*, std::string* text) {
          std::vector<std::string> parts = Parts(*text, 3);
          parts[0] = Name("process", parts[0]);
          parts[1] = what_.names ? "" : Path(parts[1]);
          if (what_.command_lines) parts[2].clear();
          return Join(parts, text);
        };
      case thread_table::kSchema.id:
        return [this](std::vector<uint64_t>*, std::string* text) {
          *text = Name("thread", *text);
          return true;
        };
      case task_table::kSchema.id:
        return [this](std::vector<uint64_t>*, std::string* text) {
          std::vector<std::string> parts = Parts(*text, 2);
          parts[0] = Name("thread", parts[0]);
          parts[1] = what_.names ? "" : Path(parts[1]);
          // What more of the command is in a birth's or start's row.
          if (parts.size() > 2 && what_.command_lines) parts.resize(2);
          return Join(parts, text);
        };
      case sample_table::kSchema.id:
        return [this](std::vector<uint64_t>*, std::string* text) {
          // A cgroup's path says whose it is in each of its parts.
          if (what_.paths && text->find('/') != std::string::npos)
            *text = Numbered("/cgroup", *text);
          else
            *text = Free(*text);
          return true;
        };
      case nvtx_table::kSchema.id:
        return [this](std::vector<uint64_t>*, std::string* text) {
          if (!what_.ranges) return true;
          std::vector<std::string> parts = Parts(*text, 2);
          parts[0] = Numbered("domain", parts[0]);
          parts[1] = Numbered("range", parts[1]);
          return Join(parts, text);
        };
      case code_line_table::kSchema.id:
        return [this](std::vector<uint64_t>*, std::string* text) {
          std::vector<std::string> parts = Parts(*text, 2);
          parts[0] = what_.code ? Numbered("file", parts[0]) : Path(parts[0]);
          if (what_.code) parts[1] = Numbered("function", parts[1]);
          return Join(parts, text);
        };
      case kernel_name_table::kSchema.id:
        return [this](std::vector<uint64_t>*, std::string* text) {
          if (what_.kernels) *text = Numbered("kernel", *text);
          return true;
        };
      case coverage_table::kSchema.id:
        return [this](std::vector<uint64_t>*, std::string* text) {
          *text = Free(*text);
          return true;
        };
      default:
        return std::nullopt;
    }
  }
  Status WriteDescription(const TraceReader& reader) override {
    INGERO_RETURN_IF_ERROR(
        Rewrite(reader, fact_table::kSchema, [&](std::string* text) {
          std::vector<std::string> parts = Parts(*text, 2);
          if (parts[0] == "host" && what_.host)
            parts[1] = "host";
          else if (parts[0] == "recording" && what_.host)
            parts[1] = WithoutBoot(parts[1], reader.FactText("boot_id"));
          else if (parts[0] == "boot_id" && what_.host)
            parts[1] = std::string(parts[1].size(), '0');
          else
            parts[1] = Free(parts[1]);
          Join(parts, text);
        }));
    return Rewrite(reader, stream_table::kSchema, [this](std::string* text) {
      std::vector<std::string> parts = Parts(*text, 3);
      parts[0] = Path(parts[0]);
      parts[1] = Name("process", parts[1]);
      Join(parts, text);
    });
  }
  Status Rewrite(const TraceReader& reader, const TableSchema& schema,
                 const std::function<void(std::string*)>& change) {
    Rows rows;
    for (const BlockRef& ref : reader.file().Table(schema.id)) {
      INGERO_RETURN_IF_ERROR(ReadRows(ref, schema, &rows));
      for (std::string& text : rows.texts) change(&text);
      INGERO_RETURN_IF_ERROR(Put(&rows, ref.owner));
    }
    return {};
  }

  // At least `least` of them.
  static std::vector<std::string> Parts(const std::string& text, size_t least) {
    std::vector<std::string> parts;
    for (size_t at = 0; at <= text.size();) {
      const size_t end = std::min(text.find('\0', at), text.size());
      parts.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    if (parts.size() < least) parts.resize(least);
    return parts;
  }
  static bool Join(const std::vector<std::string>& parts, std::string* text) {
    text->clear();
    for (size_t i = 0; i < parts.size(); ++i)
      *text += (i == 0 ? "" : std::string(1, '\0')) + parts[i];
    return true;
  }
  std::string Numbered(const std::string& kind, const std::string& text) {
    if (text.empty()) return text;
    auto& known = numbers_[kind];
    return fmt::format("{}-{}", kind,
                       known.try_emplace(text, known.size() + 1).first->second);
  }
  std::string Name(const std::string& kind, const std::string& text) {
    return what_.names ? Numbered(kind, text) : text;
  }
  std::string Path(const std::string& text) const {
    const size_t slash = text.rfind('/');
    return what_.paths && slash != text.npos ? text.substr(slash + 1) : text;
  }
  // A sentence, or a path: each word that is one, and the host's name.
  std::string Free(const std::string& text) const {
    std::string out, word;
    const auto flush = [&] {
      out += Path(word);
      word.clear();
    };
    for (const char c : text) {
      if (c == ' ' || c == '\'' || c == '"' || c == '=' || c == ',' || c == '(' ||
          c == '\0') {
        flush();
        out += c;
      } else {
        word += c;
      }
    }
    flush();
    if (what_.host && !host_.empty())
      for (size_t at = 0; (at = out.find(host_, at)) != out.npos; at += 4)
        out.replace(at, host_.size(), "host");
    return out;
  }

  const Redaction what_;
  std::string host_;
  std::map<std::string, std::map<std::string, size_t>> numbers_;
};

class Pruner : public Rewriter {
 public:
  Pruner(Ns keep, const UpkeepProgress& progress)
      : Rewriter(progress), keep_(keep) {}

 private:
  Status Begin(const TraceReader& reader) override {
    const Interval span = reader.span();
    // Summaries are of whole seconds.
    const Ns wanted = span.end - std::min(keep_, span.length());
    from_ = Ns((wanted.value / kSecondNs) * kSecondNs);
    if (from_ <= span.begin) return {};
    result_.span = {from_, span.end};
    // What threads do at `from` is known from the keyframe before it and the
    // switches since.
    lead_in_ = std::min(from_, reader.StatesAt(from_).first);
    // Samples that are taken once or rarely hold until the next.
    auto samples = reader.Cursor(
        sample_table::kSchema,
        reader.file().Table(sample_table::kSchema.id),
        {Ns(INT64_MIN), from_ - kSampleLeadIn});
    while (samples->Next())
      last_sample_[{samples->row()[sample_table::kMetric],
                    samples->row()[sample_table::kInstance]}] =
          samples->time();
    samples.reset();  // counts what it could not read
    for (const std::string name : {feed_table::kSchema.name,
                                   path_table::kSchema.name})
      longest_ = std::max(longest_, reader.Fact("longest_ns." + name));
    return reader.AllRead();
  }
  bool Useless(const TraceReader& reader) override {
    return from_ <= reader.span().begin;
  }

  // Rows before this are dropped, whatever they reach into.
  int64_t FirstOf(uint16_t table) const {
    switch (table) {
      case switch_table::kSchema.id:
      case task_table::kSchema.id:
      case keyframe_table::kSchema.id:
        return lead_in_.value;
      case sample_table::kSchema.id:
      case loss_table::kSchema.id:
        return INT64_MIN;
      case sched_summary_table::kSchema.id:
        return INT64_MIN;  // a row may be of many seconds
      case feed_table::kSchema.id:
      case path_table::kSchema.id:
        return from_.value - longest_;
      default:
        return from_.value;
    }
  }
  bool Drops(const BlockRef& ref) override {
    return !Describes(ref.table) && FindStoreTable(ref.table) != nullptr &&
           ref.last_ns < FirstOf(ref.table);
  }
  std::optional<Change> ChangeOf(const BlockRef& ref) override {
    if (Describes(ref.table) || ref.first_ns >= from_.value)
      return std::nullopt;
    const int64_t from = from_.value;
    const auto time = [](const std::vector<uint64_t>& row) {
      return static_cast<int64_t>(row[0]);
    };
    switch (ref.table) {
      case feed_table::kSchema.id:
      case path_table::kSchema.id:
        static_assert(size_t{feed_table::kLength} ==
                      size_t{path_table::kEndOffset});
        return [=](std::vector<uint64_t>* row, std::string*) {
          return time(*row) + static_cast<int64_t>((*row)[feed_table::kLength]) >
                 from;
        };
      case loss_table::kSchema.id:
        return [=](std::vector<uint64_t>* row, std::string*) {
          return static_cast<int64_t>((*row)[loss_table::kEndT]) >= from;
        };
      case sample_table::kSchema.id:
        return [=, this](std::vector<uint64_t>* row, std::string*) {
          if (time(*row) >= from - kSampleLeadIn.value) return true;
          const auto last = last_sample_.find({(*row)[sample_table::kMetric],
                                               (*row)[sample_table::kInstance]});
          return last != last_sample_.end() && last->second == time(*row);
        };
      case sched_summary_table::kSchema.id:
        return [=](std::vector<uint64_t>* row, std::string*) {
          return CutRun(from, row);
        };
      default: {
        const int64_t first = FirstOf(ref.table);
        return [=](std::vector<uint64_t>* row, std::string*) { return time(*row) >= first; };
      }
    }
  }
  // A run of whole seconds in one state loses those before `from`.
  static bool CutRun(int64_t from, std::vector<uint64_t>* row) {
    using namespace sched_summary_table;
    const auto begin = static_cast<int64_t>((*row)[kT]);
    if (begin >= from) return true;
    const auto seconds =
        static_cast<int64_t>(std::max<uint64_t>(1, (*row)[kSeconds]));
    const int64_t left = seconds - (from - begin) / kSecondNs;
    if (left <= 0) return false;
    (*row)[kT] = static_cast<uint64_t>(from);
    (*row)[kSeconds] = static_cast<uint64_t>(left);
    for (const size_t c : {kRunningNs, kRunnableNs, kSleepingNs, kIoNs})
      (*row)[c] = (*row)[c] / static_cast<uint64_t>(seconds) *
                  static_cast<uint64_t>(left);
    return true;
  }

  // Of `value`, what belongs to the rows that are left; exact where a stream's
  // rows are its process's.
  static uint64_t Share(uint64_t value, uint64_t left, uint64_t all) {
    return all == 0 ? 0
                    : static_cast<uint64_t>(static_cast<double>(value) *
                                                static_cast<double>(left) /
                                                static_cast<double>(all) +
                                            0.5);
  }

  Status WriteDescription(const TraceReader& reader) override {
    const Interval before = reader.span();
    uint64_t kernel = 0, kernel_were = 0;
    for (const auto& [key, rows] : rows_were_)
      if (key.first < call_table::kSchema.id) {
        kernel_were += rows;
        const auto now = rows_of_.find(key);
        kernel += now != rows_of_.end() ? now->second : 0;
      }
    Rows rows;
    for (const BlockRef& ref : reader.file().Table(stream_table::kSchema.id)) {
      INGERO_RETURN_IF_ERROR(ReadRows(ref, stream_table::kSchema, &rows));
      using namespace stream_table;
      for (size_t r = 0; r < rows.size(); ++r) {
        uint64_t* row = &rows.values[r * rows.columns()];
        uint64_t left = kernel, all = kernel_were;
        if (row[kKernel] == 2) {
          left = all = 0;
          for (const auto& [key, count] : rows_were_)
            if (key.first == code_table::kSchema.id) {
              all += count;
              left += rows_of_.count(key) ? rows_of_[key] : 0;
            }
        } else if (row[kKernel] == 0) {
          const std::pair key{call_table::kSchema.id,
                              static_cast<uint32_t>(row[kProcess] - 1)};
          left = rows_of_.count(key) ? rows_of_[key] : 0;
          all = rows_were_.count(key) ? rows_were_[key] : 0;
        }
        row[kEvents] = Share(row[kEvents], left, all);
        row[kSelfNs] = Share(row[kSelfNs], left, all);
        row[kBegin] = static_cast<uint64_t>(
            std::max(static_cast<int64_t>(row[kBegin]), from_.value));
        row[kEnd] = static_cast<uint64_t>(std::max(
            static_cast<int64_t>(row[kEnd]), static_cast<int64_t>(row[kBegin])));
      }
      INGERO_RETURN_IF_ERROR(Put(&rows, ref.owner));
    }

    std::map<std::string, std::pair<int64_t, std::string>> facts;
    for (const auto& [name, value] : reader.facts_by_name())
      if (!name.starts_with("kernel_span")) facts[name] = value;
    const uint64_t events_before =
        static_cast<uint64_t>(reader.Fact("count.events"));
    const auto set = [&](const char* name, uint16_t table) {
      return facts[name].first =
                 static_cast<int64_t>(rows_.count(table) ? rows_[table] : 0);
    };
    const int64_t events = set("count.calls", call_table::kSchema.id) +
                           set("count.ranges", nvtx_table::kSchema.id) +
                           set("count.switches", switch_table::kSchema.id) +
                           set("count.tasks", task_table::kSchema.id) +
                           set("count.samples", sample_table::kSchema.id);
    facts["count.events"].first = events;
    facts["span.begin"].first = from_.value;
    size_t n = 0;
    for (const Interval& i : reader.kernel_spans()) {
      // From the keyframe on: it is what the first moment is known from.
      const Interval clipped = i.Clip({lead_in_, result_.span.end});
      if (clipped.empty()) continue;
      facts[fmt::format("kernel_span.{}", n)].first = clipped.begin.value;
      facts[fmt::format("kernel_span_end.{}", n++)].first = clipped.end.value;
    }
    // Since it was merged, however often it was pruned.
    const int64_t gone = reader.Fact("pruned.events") +
                         static_cast<int64_t>(events_before) - events;
    const bool again = reader.Fact("pruned.events") != 0;
    const Ns merged_begin(again ? reader.Fact("pruned.begin_ns")
                                : before.begin.value);
    facts["pruned.begin_ns"].first = merged_begin.value;
    facts["pruned.events"].first = gone;
    facts["indexed"].first = 1;
    const std::string line = fmt::format(
        "pruned: this store keeps the last {} of a recording of {}; {} events "
        "of before are not in it",
        FormatDuration(result_.span.length()),
        FormatDuration(before.end - merged_begin),
        FormatCount(static_cast<uint64_t>(gone)));
    size_t missing = 0;
    while (!reader.FactText(fmt::format("missing.{}", missing)).empty() &&
           !reader.FactText(fmt::format("missing.{}", missing))
                .starts_with("pruned: "))
      ++missing;
    facts[fmt::format("missing.{}", missing)] = {0, line};

    Rows out;
    out.schema = &fact_table::kSchema;
    for (const auto& [name, value] : facts) {
      const uint64_t row[] = {0, static_cast<uint64_t>(value.first)};
      out.Append(row, name + '\0' + value.second);
    }
    return Put(&out, 0);
  }

  // Reports look at samples up to that far around what is asked for.
  static constexpr Ns kSampleLeadIn{5 * kSecondNs};

  const Ns keep_;
  Ns from_{INT64_MIN}, lead_in_;
  int64_t longest_ = 0;
  std::map<std::pair<uint64_t, uint64_t>, int64_t> last_sample_;
};

// What the ranges in `damaged` leave of `span`.
std::vector<Interval> Without(Interval span, std::vector<Interval> damaged) {
  std::sort(damaged.begin(), damaged.end(),
            [](const Interval& a, const Interval& b) {
              return a.begin < b.begin;
            });
  std::vector<Interval> whole;
  Ns at = span.begin;
  for (const Interval& d : damaged) {
    if (d.begin > at && at < span.end)
      whole.push_back({at, std::min(d.begin, span.end)});
    at = std::max(at, d.end);
  }
  if (at < span.end) whole.push_back({at, span.end});
  return whole;
}

}  // namespace

Result<std::vector<TableSize>> MeasureStore(const StoreFile& file) {
  std::map<uint16_t, TableSize> sizes;
  for (const BlockRef& ref : file.blocks()) {
    TableSize& t = sizes[ref.table];
    t.table = ref.table;
    INGERO_ASSIGN_OR_RETURN(const BlockPreamble p, file.VerifyBlock(ref));
    ++t.blocks;
    t.rows += p.rows;
    t.bytes += ref.bytes;
    t.page_bytes += file.PageBytesOf(ref);
  }
  std::vector<TableSize> out;
  for (auto& [id, t] : sizes) {
    t.name = NameOf(id);
    out.push_back(std::move(t));
  }
  return out;
}

Result<StoreCheck> CheckStore(const std::string& path,
                              const UpkeepProgress& progress) {
  INGERO_ASSIGN_OR_RETURN(const std::string data, FindStoreData(path));
  INGERO_ASSIGN_OR_RETURN(const auto file, StoreFile::Open(data));
  StoreCheck check;
  if (auto keys = file->VerifyKeys(); !keys.ok())
    check.problems.push_back(keys.status().message());
  std::map<uint16_t, uint64_t> rows_of;
  std::vector<Interval> damaged;
  std::set<uint16_t> damaged_tables;
  std::string bytes;
  Rows rows;
  bool description = false;
  for (const BlockRef& ref : file->blocks()) {
    ++check.blocks;
    check.bytes += ref.bytes;
    const TableSchema* schema = FindStoreTable(ref.table);
    Status s = file->Read(ref, &bytes);
    if (s.ok()) s = CheckBlock(bytes);
    if (s.ok() && schema != nullptr) {
      s = DecodeBlock(bytes, *schema, &rows);
      int64_t first = INT64_MAX, last = INT64_MIN;
      for (size_t r = 0; s.ok() && r < rows.size(); ++r) {
        const auto t = static_cast<int64_t>(rows.at(r, 0));
        first = std::min(first, t);
        last = std::max(last, t);
      }
      if (s.ok() && (first != ref.first_ns || last != ref.last_ns))
        s = Status::Error("block: its rows are of other times than it says");
      if (s.ok()) {
        rows_of[ref.table] += rows.size();
        // Where blocks are is nothing that was recorded.
        if (ref.table != index_table::kSchema.id) check.rows += rows.size();
      }
    }
    if (progress)
      progress(static_cast<double>(check.bytes) /
                   static_cast<double>(file->size()),
               check.rows);
    if (s.ok()) continue;
    ++check.damaged_blocks;
    const Interval range{Ns(ref.first_ns), Ns(ref.last_ns + 1)};
    if (Describes(ref.table)) description = true;
    damaged_tables.insert(ref.table);
    damaged.push_back(range);
    if (check.damage.size() < kMaxDamage)
      check.damage.push_back({NameOf(ref.table), ref.owner, range, s.message()});
  }
  if (description) return check;
  auto reader = TraceReader::Open(data, false);
  if (!reader.ok()) {
    check.problems.push_back(reader.status().message());
    return check;
  }
  check.span = (*reader)->span();
  if ((*reader)->Fact("attributed") == 0)
    check.problems.push_back("its merge did not end; run `ingero merge` again");
  for (const auto& [fact, table] :
       {std::pair{"count.calls", call_table::kSchema.id},
        std::pair{"count.switches", switch_table::kSchema.id},
        std::pair{"count.tasks", task_table::kSchema.id},
        std::pair{"count.samples", sample_table::kSchema.id}}) {
    const auto told = static_cast<uint64_t>((*reader)->Fact(fact));
    if (damaged_tables.count(table) == 0 && told != rows_of[table])
      check.problems.push_back(fmt::format(
          "it holds {} rows of {}, and says that it holds {}",
          FormatCount(rows_of[table]), NameOf(table), FormatCount(told)));
  }
  if (!check.problems.empty()) return check;
  // An answer about a window looks a little way around it: at the keyframe
  // before, at samples, at rows that reach into it.
  for (Interval& d : damaged)
    d = {d.begin - Ns(2 * kSecondNs), d.end + Ns(2 * kSecondNs)};
  check.whole = Without(check.span, std::move(damaged));
  return check;
}

Result<Rewritten> ShareStore(const std::string& path, const Redaction& redaction,
                             const std::string& output,
                             const UpkeepProgress& progress) {
  return Redacter(redaction, progress).Run(path, output);
}

Result<Rewritten> CompactStore(const std::string& path,
                               const std::string& output,
                               const UpkeepProgress& progress) {
  return Compacter(progress).Run(path, output);
}

Result<Rewritten> PruneStore(const std::string& path, Ns keep,
                             const std::string& output,
                             const UpkeepProgress& progress) {
  return Pruner(keep, progress).Run(path, output);
}

}  // namespace ingero::merge
