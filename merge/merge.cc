// SPDX-License-Identifier: Apache-2.0
// One merge, in order: look (recordings), read (streams), write (a new store
// file), explain (attribution over that file), publish (rename). See store.h
// for why the file is new each time.
#include "merge/merge.h"

#include <cxxabi.h>
#include <errno.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include "analysis/attribution.h"
#include "base/file_error.h"
#include "base/leftover.h"
#include "base/tables.h"
#include "base/text.h"
#include "base/trace_dir.h"
#include "merge/ahead.h"
#include "merge/ahead_trace.h"
#include "merge/block_queue.h"
#include "merge/code_ingest.h"
#include "merge/cuda_ingest.h"
#include "merge/kernel_ingest.h"
#include "merge/recordings.h"
#include "merge/second_folder.h"
#include "merge/store_lock.h"
#include "merge/store_output.h"
#include "merge/store_trace.h"
#include "merge/trace_reader.h"

#ifndef INGERO_VERSION
#define INGERO_VERSION "unknown"
#endif

namespace ingero::merge {
namespace {

constexpr size_t kBlockRows = 4096;
// Results that wait for their block to be full, of all processes: 64 MiB.
constexpr size_t kMostWaiting = 8u << 20;
// More was not lost: the header is damaged.
constexpr uint64_t kMostLost = uint64_t{1} << 48;

uint64_t PlusOne(uint32_t index) {
  return index == analysis::kNone ? 0 : uint64_t{index} + 1;
}

uint64_t U(Ns t) { return static_cast<uint64_t>(t.value); }

std::string Demangle(const std::string& mangled) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), free);
  return status == 0 && text != nullptr ? text.get() : "";
}

// Attribution's results, encoded, in a file of their own: the store cannot be
// written while the attribution reads it.
class ResultFile : public analysis::AttributionSink {
 public:
  explicit ResultFile(const TraceReader& trace) : trace_(trace) {}
  Status Open(const std::string& path) {
    path_ = path;
    INGERO_ASSIGN_OR_RETURN(fd_,
                            OpenFile(path, O_RDWR | O_CREAT | O_TRUNC, 0600));
    // No name: gone with the process.
    if (unlink(path.c_str()) != 0) return Status::Errno("unlink " + path, errno);
    INGERO_ASSIGN_OR_RETURN(
        queue_, BlockQueue::Start(
                    [this](const std::string& block) {
                      size_ += block.size();
                      return WriteAllAt(fd_.get(), block, size_ - block.size())
                          .In(path_);
                    },
                    [] { return Status(); }));
    return {};
  }

  void OnFeed(const analysis::FeedInterval& f) override {
    const uint64_t row[] = {U(f.range.begin), U(f.range.length()), U(f.time),
                            f.intervals, f.device,
                            static_cast<uint64_t>(f.state)};
    static_assert(std::size(row) == feed_table::kCount);
    Add(feed_table::kSchema, f.process, row, f.range.length().value);
  }
  void OnPath(const analysis::PathCell& c) override {
    const uint64_t row[] = {
        U(c.range.begin), U(c.range.length()), U(c.time), c.stretches,
        PlusOne(c.thread), static_cast<uint64_t>(c.state),
        static_cast<uint64_t>(c.reason), PlusOne(c.culprit), PlusOne(c.func),
        static_cast<uint64_t>(c.certainty), c.pages,
        static_cast<uint64_t>(c.ended_by) |
            static_cast<uint64_t>(static_cast<uint16_t>(c.syscall + 1)) << 8 |
            (c.submits ? kDetailSubmits : 0)};
    static_assert(std::size(row) == path_table::kCount);
    Add(path_table::kSchema, c.process, row, c.range.length().value);
  }
  void OnSplit(const analysis::CallSplit& s) override {
    const uint32_t tid = s.thread < trace_.threads().size()
                             ? trace_.threads()[s.thread].tid
                             : 0;
    const uint64_t row[] = {U(s.begin), tid, s.func, U(s.running),
                            U(s.runnable), U(s.sleeping), U(s.io),
                            U(s.unknown), PlusOne(s.holder), PlusOne(s.waker),
                            s.starts_up ? 1u + *s.starts_up : 0u};
    static_assert(std::size(row) == split_table::kCount);
    Add(split_table::kSchema, s.process, row, 0);
  }
  void OnStep(const analysis::StepMark& m) override {
    const uint32_t tid = m.thread < trace_.threads().size()
                             ? trace_.threads()[m.thread].tid
                             : 0;
    const uint64_t row[] = {U(m.t), tid, m.func, m.every, m.submissions};
    static_assert(std::size(row) == step_table::kCount);
    Add(step_table::kSchema, m.process, row, 0);
  }

  void OnCode(analysis::ProcessIndex process, std::span<const uint64_t> row) {
    Add(code_table::kSchema, process, row, 0);
  }

  // Flushes, then copies everything into the store.
  Status CopyTo(StoreWriter* writer) {
    FlushAll();
    INGERO_RETURN_IF_ERROR(std::move(status_));
    INGERO_RETURN_IF_ERROR(queue_->Flush());
    uint64_t at = 0;
    std::string block(sizeof(BlockPreamble), '\0');
    while (at < size_) {
      block.resize(sizeof(BlockPreamble));
      INGERO_RETURN_IF_ERROR(ReadExactly(at, &block));
      INGERO_ASSIGN_OR_RETURN(const BlockPreamble p, ReadPreamble(block));
      block.resize(BlockBytes(p));
      INGERO_RETURN_IF_ERROR(ReadExactly(at, &block));
      at += block.size();
      INGERO_RETURN_IF_ERROR(writer->PutBlock(block));
    }
    return {};
  }
  const std::map<std::string, int64_t>& longest() const { return longest_; }

 private:
  void Add(const TableSchema& schema, uint32_t owner,
           std::span<const uint64_t> row, int64_t length) {
    Rows& rows = rows_[{schema.id, owner}];
    rows.schema = &schema;
    rows.Append(row);
    waiting_ += row.size();
    int64_t& longest = longest_[schema.name];
    longest = std::max(longest, length);
    if (rows.size() >= kBlockRows) FlushRows(owner, &rows);
    if (waiting_ > kMostWaiting) FlushAll();
  }
  // Tables by second come after those that they sum.
  void FlushAll() {
    for (auto& [key, rows] : rows_) FlushRows(key.second, &rows);
    rows_.clear();  // they hold what they once needed
  }
  void Sum(const Rows& rows, const TableSchema& schema, uint32_t owner) {
    Rows& sums = rows_[{schema.id, owner}];
    sums.schema = &schema;
    const size_t before = sums.values.size();
    folder_.Fold(rows, &sums);
    waiting_ += sums.values.size() - before;
    if (sums.size() >= kBlockRows) FlushRows(owner, &sums);
  }
  // Results come in any order; in a block they are by time.
  void FlushRows(uint32_t owner, Rows* rows) {
    if (rows->schema == &path_table::kSchema)
      Sum(*rows, path_seconds_table::kSchema, owner);
    else if (rows->schema == &feed_table::kSchema)
      Sum(*rows, feed_seconds_table::kSchema, owner);
    waiting_ -= rows->values.size();
    if (status_.ok()) status_ = queue_->PutRows(rows, owner, SortByTime);
    rows->Clear();
  }
  Status ReadExactly(uint64_t at, std::string* to) {
    size_t done = 0;
    while (done < to->size()) {
      const ssize_t n = pread(fd_.get(), to->data() + done, to->size() - done,
                              static_cast<off_t>(at + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return Status::Errno("read back results", n == 0 ? EIO : errno);
      done += static_cast<size_t>(n);
    }
    return {};
  }

  const TraceReader& trace_;
  std::string path_;
  Fd fd_;
  uint64_t size_ = 0;
  Status status_;
  std::map<std::pair<uint16_t, uint32_t>, Rows> rows_;
  size_t waiting_ = 0;  // values in rows_
  SecondFolder folder_;
  std::map<std::string, int64_t> longest_;
  std::unique_ptr<BlockQueue> queue_;  // last: its thread uses fd_ and size_
};

// Facts by name, in one block.
class Facts {
 public:
  Facts() { rows_.schema = &fact_table::kSchema; }
  void Add(const std::string& name, int64_t value,
           const std::string& text = "") {
    const uint64_t row[] = {0, static_cast<uint64_t>(value)};
    rows_.Append(row, name + '\0' + text);
  }
  Status Write(StoreWriter* writer, uint32_t chunk) {
    return writer->PutRows(&rows_, chunk);
  }

 private:
  Rows rows_;
};

// Numbered rows: chunk c holds rows c * kRowsPerChunk onwards.
class NumberedRows {
 public:
  NumberedRows(StoreWriter* writer, const TableSchema& schema)
      : writer_(writer) {
    rows_.schema = &schema;
  }
  Status Add(std::span<const uint64_t> row, std::string_view text) {
    rows_.Append(row, text);
    bytes_ += text.size();
    // Chunks are also bounded in bytes: command lines can be long.
    return rows_.size() >= kRowsPerChunk || bytes_ > (4u << 20) ? Flush()
                                                                : Status();
  }
  Status Flush() {
    bytes_ = 0;
    return writer_->PutRows(&rows_, chunk_++);
  }

 private:
  StoreWriter* writer_;
  Rows rows_;
  uint32_t chunk_ = 0;
  size_t bytes_ = 0;
};

struct CudaInput {
  std::unique_ptr<CudaStream> stream;
  Interval plausible;  // in which its calls can lie
  StreamInfo info;
  std::optional<ClockMap> clock;
  std::string no_clock;  // why there is none
  Interval span;
  analysis::ProcessIndex process = analysis::kNone;
  bool joined = false;
  IngestedCalls calls;
};

struct KernelInput {
  std::unique_ptr<KernelStream> stream;
  StreamInfo info;
};

struct CodeInput {
  CodeIngest code;
  StreamInfo info;
};

// Where CPUs are many, decoding is no longer what the rest waits for.
constexpr unsigned kMostDecoders = 4;

size_t DecodersFor(const MergeOptions& options) {
  if (options.decoders >= 0) return static_cast<size_t>(options.decoders);
  const unsigned cpus = std::thread::hardware_concurrency();
  return cpus < 2 ? 0 : std::min(cpus, kMostDecoders);
}

class Merger {
 public:
  Merger(const MergeOptions& options, const Recording& recording)
      : options_(options),
        recording_(recording),
        decoders_(DecodersFor(options)) {
    store_ = options.output.empty() ? recording.store_path : options.output;
    unrecorded_ = options.unrecorded;
    while (store_.size() > 1 && store_.back() == '/') store_.pop_back();
  }
  Result<MergeSummary> Run();

 private:
  void Report(const std::string& stage, double fraction, uint64_t events) {
    if (options_.progress) options_.progress(stage, fraction, events);
  }
  Status ReadStreams();
  void AddMissing(const std::vector<std::string>& lines) {
    missing_.insert(missing_.end(), lines.begin(), lines.end());
  }
  static uint64_t Fingerprint(const KernelStream& s) {
    return s.header().stream_id * 31 + s.bytes();
  }
  // What the store that is there says: nothing new, or what would be lost.
  Result<std::optional<MergeSummary>> AlreadyMerged();
  Status WriteEvents(StoreWriter* writer);
  Status WriteDescription(StoreWriter* writer);
  MergeSummary Summarize(const TraceReader& reader) const;
  void GiveToOwner(const std::string& path) const;

  const MergeOptions& options_;
  const Recording& recording_;
  const size_t decoders_;
  std::string store_;
  std::vector<CudaInput> cuda_;
  std::vector<KernelInput> kernel_;
  std::vector<CodeInput> code_;
  std::vector<std::unique_ptr<KernelStream>> kernel_streams_;
  std::vector<std::string> notes_;    // of this merge
  std::vector<std::string> missing_;  // kept in the store, for explain
  std::string unrecorded_;            // likewise
  Lives lives_;
  FunctionTable functions_;
  KernelFacts kernel_facts_;
  Interval span_;
  uint64_t calls_ = 0, ranges_ = 0, gpu_activities_ = 0, code_samples_ = 0;
  uint64_t events_before_ = 0;
};

Status Merger::ReadStreams() {
  struct Opened {
    Status status;
    std::unique_ptr<KernelStream> kernel;
    std::unique_ptr<CudaStream> cuda;
  };
  const std::vector<StreamInfo>& streams = recording_.streams;
  const auto open = [](auto result, Opened* opened, auto* stream) {
    opened->status = result.status();
    if (result.ok()) *stream = std::move(*result);
  };
  Ahead<Opened> ahead(
      std::min(decoders_, streams.size()), 2 * decoders_,
      [&](uint64_t i, Opened* out) {
        if (i >= streams.size()) return false;
        *out = {};
        const StreamInfo& info = streams[i];
        if (!info.problem.empty())
          out->status = Status::Error(info.problem);
        else if (!info.cuda())
          open(KernelStream::Open(info.path, true), out, &out->kernel);
        else
          open(CudaStream::Open(info.path), out, &out->cuda);
        return true;
      });
  for (size_t i = 0; i < streams.size(); ++i) {
    Report("reading streams",
           static_cast<double>(i) / static_cast<double>(streams.size()), 0);
    Opened* opened = ahead.Next();
    // One that can't be read any more does not keep the others out.
    if (!opened->status.ok()) {
      missing_.push_back("left out: " + opened->status.message());
    } else if (opened->kernel != nullptr) {
      AddMissing(opened->kernel->damage());
      if (streams[i].code)
        code_.push_back({CodeIngest(std::move(opened->kernel)), streams[i]});
      else
        kernel_.push_back({std::move(opened->kernel), streams[i]});
    } else {
      AddMissing(opened->cuda->damage());
      CudaInput input;
      input.stream = std::move(opened->cuda);
      input.info = streams[i];
      cuda_.push_back(std::move(input));
    }
  }
  return {};
}

// "a.ingero, b.ingero and 3 more".
std::string FirstOf(const std::vector<std::string>& files) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(files.size(), kShown); ++i)
    text += (i == 0 ? "" : ", ") + files[i];
  if (files.size() > kShown)
    text += fmt::format(" and {} more", files.size() - kShown);
  return text;
}

Result<std::optional<MergeSummary>> Merger::AlreadyMerged() {
  const std::string data = store_ + "/data.mdb";
  if (access(data.c_str(), F_OK) != 0) return std::optional<MergeSummary>();
  auto reader = TraceReader::Open(data, true);
  if (!reader.ok()) {
    // Damaged or another version: the streams are still there, make it anew.
    notes_.push_back("replaced a store that could not be read: " +
                     reader.status().message());
    return std::optional<MergeSummary>();
  }
  events_before_ = static_cast<uint64_t>((*reader)->Fact("count.events"));
  const std::string& unrecorded = (*reader)->FactText("unrecorded");
  if (unrecorded_.empty()) unrecorded_ = unrecorded;
  std::map<uint64_t, uint64_t> present;  // stream id -> fingerprint
  for (const CudaInput& c : cuda_)
    present[c.stream->header().stream_id] = c.stream->fingerprint();
  for (const KernelInput& k : kernel_)
    present[k.stream->header().stream_id] = Fingerprint(*k.stream);
  for (const CodeInput& c : code_)
    present[c.code.stream().header().stream_id] =
        Fingerprint(c.code.stream());
  std::vector<std::string> gone;
  const bool pruned = (*reader)->Fact("pruned.events") != 0;
  bool changed = (*reader)->Fact("analysis.version") !=
                 static_cast<int64_t>(kAnalysisVersion);
  size_t known = 0;
  for (const StoredStream& s : (*reader)->streams()) {
    const auto it = present.find(s.stream_id);
    if (it == present.end()) {
      gone.push_back(s.file);
      continue;
    }
    ++known;
    if (it->second != s.fingerprint) changed = true;
    const bool was_live = s.flags & stream_table::kLive;
    for (const StreamInfo& info : recording_.streams)
      if (info.stream_id == s.stream_id && was_live && !info.live)
        changed = true;  // what was in flight has an end now
  }
  if (known != present.size() || unrecorded_ != unrecorded) changed = true;
  if (gone.empty() && !pruned && (*reader)->StoredMissing() != missing_)
    changed = true;
  if (changed && pruned)
    return Status::Error(
        store_ +
        " was pruned to its last part, and its streams have changed since: "
        "merging again would bring back all of the recording. Write another "
        "store with -o, or remove this one");
  if (changed && !gone.empty())
    return Status::Error(fmt::format(
        "{} holds {} stream{} that {} no longer in the trace folder ({}); "
        "merging again would drop {}. Put {} back, or write another store "
        "with -o",
        store_, gone.size(), gone.size() == 1 ? "" : "s",
        gone.size() == 1 ? "is" : "are", FirstOf(gone),
        gone.size() == 1 ? "it" : "them", gone.size() == 1 ? "it" : "them"));
  if (changed) return std::optional<MergeSummary>();
  MergeSummary summary = Summarize(**reader);
  summary.added_events = 0;
  if (!gone.empty())
    summary.notes.push_back(fmt::format(
        "the store holds {} no longer in the trace folder, {}: what {} told is "
        "in it all the same, and 'ingero merge -o' would make one without",
        gone.size() == 1 ? std::string("a stream that is")
                         : fmt::format("{} streams that are", gone.size()),
        FirstOf(gone), gone.size() == 1 ? "it" : "they"));
  return std::optional<MergeSummary>(std::move(summary));
}

Status Merger::WriteEvents(StoreWriter* writer) {
  std::sort(kernel_.begin(), kernel_.end(),
            [](const KernelInput& a, const KernelInput& b) {
              return a.stream->span().begin < b.stream->span().begin;
            });
  for (KernelInput& k : kernel_) kernel_streams_.push_back(std::move(k.stream));
  INGERO_RETURN_IF_ERROR(IngestKernel(
      kernel_streams_, decoders_, writer, &lives_, &kernel_facts_,
      [&](double fraction, uint64_t rows) {
        Report("merging kernel events", fraction, rows);
      }));

  const auto extend = [&](Interval i) {
    if (span_.begin == Ns(0) && span_.end == Ns(0))
      span_ = i;
    else
      span_ = {std::min(span_.begin, i.begin), std::max(span_.end, i.end)};
  };
  for (const auto& k : kernel_streams_) {
    Interval i{Ns(INT64_MAX), k->span().end};
    for (const BlockRef& ref : k->blocks())
      if (ref.table == switch_table::kSchema.id)
        i.begin = std::min(i.begin, Ns(ref.first_ns));
    if (i.begin == Ns(INT64_MAX)) i.begin = k->span().begin;
    extend(i);
  }

  // Clocks and spans of all processes, before any call is placed: a call in
  // flight ends where the trace does.
  for (CudaInput& c : cuda_) {
    const CudaStream& s = *c.stream;
    if (s.header().clock == INGERO_CLOCK_MONOTONIC)
      c.clock = ClockMap::Identity(s.header().monotonic_offset_ns);
    else
      c.clock = ClockMap::Fit(kernel_facts_.knots, s.knots(),
                              s.header().tsc_hz, &c.no_clock);
    c.span = {Ns(s.created_ns()), Ns(s.created_ns())};
    if (c.clock && s.first_ticks() != 0)
      c.span = {Ns(c.clock->ToNs(s.first_ticks())),
                Ns(c.clock->ToNs(s.last_ticks()))};
    // A damaged time stamp must not stretch the trace over years. A thread
    // that waits takes no clock sample, hence the day.
    Ns last = std::max(Ns(s.created_ns()), span_.end);
    for (const Knot& k : s.knots()) last = std::max(last, Ns(k.mono_ns));
    c.plausible = {Ns(s.created_ns()) - kSecond, last + kSecond * 86'400};
    c.span = c.span.Clip(c.plausible);
    extend(c.span);
  }
  std::sort(cuda_.begin(), cuda_.end(),
            [](const CudaInput& a, const CudaInput& b) {
              return a.span.begin < b.span.begin;
            });
  for (CudaInput& c : cuda_) {
    const CudaStream& s = *c.stream;
    c.process = lives_.ForStream(s.header(), c.span, &c.joined);
    analysis::Process& p = lives_.processes()[c.process];
    if (p.exe.empty()) p.exe = s.exe();
    if (p.cmdline.empty()) p.cmdline = s.cmdline();
    if (!c.clock) continue;
    CudaTarget target;
    target.process = c.process;
    target.plausible = c.plausible;
    target.clock = &*c.clock;
    // As far as the call is known to have lasted: to its process's end, or as
    // long as the trace saw the process.
    target.end_of_unfinished = p.exited           ? *p.exited
                               : c.info.live      ? span_.end
                               : c.joined         ? std::max(p.last_seen,
                                                             c.span.end)
                                                  : c.span.end;
    INGERO_ASSIGN_OR_RETURN(
        c.calls,
        IngestCalls(s, target, &functions_, &lives_, writer,
                    [&](uint64_t n) {
                      Report("merging CUDA calls",
                             static_cast<double>(n) /
                                 static_cast<double>(
                                     std::max<uint64_t>(s.calls(), 1)),
                             calls_ + n);
                    }));
    INGERO_ASSIGN_OR_RETURN(const IngestedRanges ranges,
                            IngestRanges(s, target, &lives_, writer));
    ranges_ += ranges.count;
    INGERO_ASSIGN_OR_RETURN(const IngestedRanges on_gpu,
                            IngestGpuActivity(s, target, writer));
    gpu_activities_ += on_gpu.count;
    if (const uint64_t damaged =
            c.calls.damaged + ranges.damaged + on_gpu.damaged;
        damaged > 0)
      c.stream->Count(INGERO_LOSS_DAMAGED_BLOCK, damaged);
    calls_ += c.calls.count;
  }
  uint32_t lines = 0;
  for (CodeInput& c : code_) {
    c.code.Learn(lines, &lives_);
    lines += static_cast<uint32_t>(c.code.lines().size());
    code_samples_ += c.code.samples();
  }
  lives_.Finish();
  return {};
}

Status Merger::WriteDescription(StoreWriter* writer) {
  {
    NumberedRows rows(writer, process_table::kSchema);
    for (uint32_t i = 0; i < lives_.processes().size(); ++i) {
      const analysis::Process& p = lives_.processes()[i];
      using namespace process_table;
      uint64_t flags = 0;
      if (p.has_cuda) flags |= kHasCuda;
      if (p.is_ingero) flags |= kIsIngero;
      if (p.is_kernel) flags |= kIsKernel;
      if (p.outside_scope) flags |= kOutsideScope;
      if (p.exit_code) flags |= kHasExitCode;
      if (lives_.host_ids(i)) flags |= kHostIds;
      const uint64_t row[] = {U(p.first_seen),
                              U(p.last_seen),
                              p.pid,
                              p.ns_pid,
                              U(p.start),
                              p.exited ? U(*p.exited) + 1 : 0,
                              static_cast<uint64_t>(p.exit_code.value_or(0)),
                              PlusOne(p.parent),
                              PlusOne(p.main_thread),
                              flags,
                              p.cgroup_id,
                              p.cpus_allowed};
      static_assert(std::size(row) == process_table::kCount);
      INGERO_RETURN_IF_ERROR(
          rows.Add(row, p.name + '\0' + p.exe + '\0' + p.cmdline));
    }
    INGERO_RETURN_IF_ERROR(rows.Flush());
  }
  {
    NumberedRows rows(writer, thread_table::kSchema);
    for (uint32_t i = 0; i < lives_.threads().size(); ++i) {
      const analysis::Thread& t = lives_.threads()[i];
      const uint64_t row[] = {U(lives_.thread_begin(i)), t.tid, t.process};
      static_assert(std::size(row) == thread_table::kCount);
      INGERO_RETURN_IF_ERROR(rows.Add(row, t.name));
    }
    INGERO_RETURN_IF_ERROR(rows.Flush());
  }
  {
    NumberedRows rows(writer, function_table::kSchema);
    for (const WireFunction& f : functions_.functions()) {
      uint64_t words = 0;
      for (size_t w = 0; w < f.words.size(); ++w)
        words |= uint64_t{f.words[w]} << (8 * w);
      const uint64_t row[] = {0, f.layer, f.call_class, words};
      static_assert(std::size(row) == function_table::kCount);
      INGERO_RETURN_IF_ERROR(rows.Add(row, f.name));
    }
    INGERO_RETURN_IF_ERROR(rows.Flush());
  }
  NumberedRows names(writer, kernel_name_table::kSchema);
  NumberedRows coverage(writer, coverage_table::kSchema);
  NumberedRows streams(writer, stream_table::kSchema);
  Facts facts;
  std::map<uint32_t, uint64_t> layers;
  uint32_t index = 0;
  uint64_t joined = 0;
  size_t no_clock = 0;
  for (const CudaInput& c : cuda_) {
    const CudaStream& s = *c.stream;
    const ingero_stream_header& h = s.header();
    layers[c.process] |= c.calls.layers;
    if (c.joined) ++joined;
    for (const auto& [kernel, name] : s.kernels()) {
      const uint64_t row[] = {0, c.process, kernel};
      INGERO_RETURN_IF_ERROR(names.Add(row, name + '\0' + Demangle(name)));
    }
    for (const CudaStream::Coverage& w : s.coverage()) {
      const uint64_t row[] = {0, c.process, w.way, w.count, w.detail};
      static_assert(std::size(row) == coverage_table::kCount);
      INGERO_RETURN_IF_ERROR(coverage.Add(row, w.text));
    }
    Rows losses;
    losses.schema = &loss_table::kSchema;
    const auto lose = [&](Interval range, uint64_t loss, uint64_t count) {
      const uint64_t row[] = {U(range.begin), U(range.end), loss, count};
      losses.Append(row);
    };
    for (const CudaStream::Loss& l : s.losses()) {
      Interval range = c.span;
      if (c.clock && l.first_ticks != 0)
        range = {Ns(c.clock->ToNs(l.first_ticks)),
                 Ns(c.clock->ToNs(l.last_ticks))};
      lose(range, l.loss, l.count);
    }
    if (!c.clock) {
      lose(c.span, INGERO_LOSS_NO_CLOCK, std::max<uint64_t>(s.calls(), 1));
      facts.Add(fmt::format("no_clock.{}", no_clock++), 0,
                fmt::format("{}: its calls have no place in time: {}",
                            FileName(s.path()), c.no_clock));
    }
    INGERO_RETURN_IF_ERROR(
        writer->PutRows(&losses, kStreamLossOwner + index));
    uint64_t flags = 0;
    if (h.exited != 0) flags |= stream_table::kExited;
    if (c.info.live) flags |= stream_table::kLive;
    if (c.clock && c.clock->uses_host_knots())
      flags |= stream_table::kHostKnots;
    if (h.clock == INGERO_CLOCK_MONOTONIC) flags |= stream_table::kClockIsMono;
    const uint64_t self_ns =
        c.clock && s.self_ticks() != 0
            ? static_cast<uint64_t>(std::max<int64_t>(
                  0, c.clock->ToNs(s.first_ticks() + s.self_ticks()) -
                         c.clock->ToNs(s.first_ticks())))
            : 0;
    const uint64_t row[] = {
        U(c.span.begin), U(c.span.end), 0, h.stream_id, h.pid,
        s.fingerprint(), s.bytes(), c.calls.count, h.calls_skipped,
        PlusOne(c.process),
        static_cast<uint64_t>(c.clock ? c.clock->error_ns() : 0),
        c.clock ? c.clock->knots() : 0, self_ns, flags,
        c.calls.nesting_violations};
    static_assert(std::size(row) == stream_table::kCount);
    INGERO_RETURN_IF_ERROR(streams.Add(
        row, FileName(s.path()) + '\0' + FixedText(h.comm) + '\0' +
                 FixedText(h.tool_version)));
    ++index;
  }
  for (size_t i = 0; i < kernel_streams_.size(); ++i) {
    const KernelStream& s = *kernel_streams_[i];
    const ingero_stream_header& h = s.header();
    uint64_t unknown = 0;
    for (const BlockRef& ref : s.blocks())
      if (FindTable(ref.table) == nullptr) ++unknown;
    Rows losses;
    losses.schema = &loss_table::kSchema;
    const auto lose = [&](uint64_t loss, uint64_t count) {
      if (count == 0) return;
      const uint64_t row[] = {U(s.span().begin), U(s.span().end), loss, count};
      losses.Append(row);
    };
    uint64_t damaged = s.skipped_places();
    for (uint32_t loss = 0; loss < INGERO_LOSS_MAX; ++loss)
      if (h.lost[loss] > kMostLost)
        ++damaged;
      else if (FindLoss(loss) != nullptr)
        lose(loss, h.lost[loss]);
    lose(INGERO_LOSS_DAMAGED_BLOCK, damaged);
    lose(INGERO_LOSS_UNKNOWN_KIND, unknown);
    lose(INGERO_LOSS_TORN_TAIL, s.torn() && !kernel_[i].info.live ? 1 : 0);
    INGERO_RETURN_IF_ERROR(
        writer->PutRows(&losses, kStreamLossOwner + index));
    uint64_t flags = 0;
    if (kernel_[i].info.live) flags |= stream_table::kLive;
    if (h.exited != 0) flags |= stream_table::kExited;
    const uint64_t row[] = {U(s.span().begin), U(s.span().end), 1, h.stream_id,
                            h.pid, h.stream_id * 31 + s.bytes(), s.bytes(),
                            s.rows(), 0, 0, 0, 0, 0, flags, 0};
    static_assert(std::size(row) == stream_table::kCount);
    INGERO_RETURN_IF_ERROR(streams.Add(
        row, FileName(s.path()) + '\0' + FixedText(h.comm) + '\0' +
                 FixedText(h.tool_version)));
    ++index;
  }
  NumberedRows code_lines(writer, code_line_table::kSchema);
  size_t code_problems = 0;
  for (const CodeInput& c : code_) {
    for (const CodeIngest::Line& line : c.code.lines()) {
      const uint64_t row[] = {0, line.line, line.flags};
      static_assert(std::size(row) == code_line_table::kCount);
      INGERO_RETURN_IF_ERROR(code_lines.Add(row, line.text));
    }
    const KernelStream& s = c.code.stream();
    const ingero_stream_header& h = s.header();
    Rows losses;
    losses.schema = &loss_table::kSchema;
    const auto lose = [&](Ns begin, Ns end, uint64_t loss, uint64_t count) {
      const uint64_t row[] = {U(begin), U(end), loss, count};
      if (count > 0) losses.Append(row);
    };
    for (const CodeIngest::Lost& l : c.code.losses())
      lose(Ns(static_cast<int64_t>(l.t)), Ns(static_cast<int64_t>(l.end)),
           l.loss, l.count);
    const auto whole = [&](uint64_t loss, uint64_t count) {
      lose(s.span().begin, s.span().end, loss, count);
    };
    uint64_t damaged = s.skipped_places() + c.code.damaged();
    if (const uint64_t lost = h.lost[INGERO_LOSS_WRITE_FAILED];
        lost > kMostLost)
      ++damaged;
    else
      whole(INGERO_LOSS_WRITE_FAILED, lost);
    whole(INGERO_LOSS_DAMAGED_BLOCK, damaged);
    whole(INGERO_LOSS_TORN_TAIL, s.torn() && !c.info.live ? 1 : 0);
    INGERO_RETURN_IF_ERROR(writer->PutRows(&losses, kStreamLossOwner + index));
    uint64_t flags = 0;
    if (c.info.live) flags |= stream_table::kLive;
    if (h.exited != 0) flags |= stream_table::kExited;
    const uint64_t row[] = {U(s.span().begin), U(s.span().end), 2, h.stream_id,
                            h.pid, Fingerprint(s), s.bytes(),
                            c.code.samples(), 0, 0, 0, 0, c.code.cpu_ns(),
                            flags, 0};
    static_assert(std::size(row) == stream_table::kCount);
    INGERO_RETURN_IF_ERROR(streams.Add(
        row, FileName(s.path()) + '\0' + FixedText(h.comm) + '\0' +
                 FixedText(h.tool_version)));
    ++index;
    facts.Add("code.hz", static_cast<int64_t>(c.code.hz()));
    if (s.torn() && !c.info.live) facts.Add("code.cut", s.span().end.value);
    for (const CodeIngest::Problem& p : c.code.problems())
      facts.Add(fmt::format("code.problem.{}", code_problems++),
                static_cast<int64_t>(PlusOne(p.process)), p.text);
  }
  INGERO_RETURN_IF_ERROR(code_lines.Flush());
  for (const CudaProcess& c : kernel_facts_.cuda_processes) {
    const analysis::ProcessIndex process = lives_.At(c.pid, c.t);
    if (process == analysis::kNone) continue;
    // The companion maps libcuda.so through NVML, as no program of the user's.
    if (lives_.processes()[process].is_ingero) continue;
    const uint64_t row[] = {U(c.t), process, INGERO_WAY_PROCESS, c.seen, 0};
    static_assert(std::size(row) == coverage_table::kCount);
    INGERO_RETURN_IF_ERROR(coverage.Add(row, c.library));
  }
  INGERO_RETURN_IF_ERROR(names.Flush());
  INGERO_RETURN_IF_ERROR(coverage.Flush());
  INGERO_RETURN_IF_ERROR(streams.Flush());

  const ingero_stream_header& any =
      cuda_.empty() ? kernel_streams_.front()->header()
                    : cuda_.front().stream->header();
  facts.Add("schema", 0, kSchemaName);
  facts.Add("schema.version", kSchemaVersion);
  facts.Add("analysis.version", kAnalysisVersion);
  facts.Add("ingero.version", 0, INGERO_VERSION);
  facts.Add("recording", 0, recording_.id);
  facts.Add("host", 0, FixedText(any.host));
  facts.Add("boot_id", 0, BootIdText(any.boot_id));
  facts.Add("wall.real_ns", static_cast<int64_t>(any.created_real_ns));
  facts.Add("wall.mono_ns",
            static_cast<int64_t>(any.created_mono_ns) -
                any.monotonic_offset_ns);
  facts.Add("span.begin", span_.begin.value);
  facts.Add("span.end", span_.end.value);
  facts.Add("cpus", static_cast<int64_t>(kernel_facts_.cpus));
  if (!kernel_facts_.scope.empty()) {
    facts.Add("scope", 0, kernel_facts_.scope);
    facts.Add("scope.left_out", static_cast<int64_t>(kernel_facts_.left_out));
  }
  facts.Add("count.memory_stalls",
            static_cast<int64_t>(kernel_facts_.memory_stalls));
  facts.Add("page_cost_ns", static_cast<int64_t>(kernel_facts_.page_cost_ns));
  if (!unrecorded_.empty()) facts.Add("unrecorded", 0, unrecorded_);
  for (size_t i = 0; i < missing_.size(); ++i)
    facts.Add(fmt::format("missing.{}", i), 0, missing_[i]);
  facts.Add("joined", static_cast<int64_t>(joined));
  facts.Add("count.calls", static_cast<int64_t>(calls_));
  facts.Add("count.ranges", static_cast<int64_t>(ranges_));
  facts.Add("count.switches", static_cast<int64_t>(kernel_facts_.switches));
  facts.Add("count.tasks", static_cast<int64_t>(kernel_facts_.tasks));
  facts.Add("count.samples", static_cast<int64_t>(kernel_facts_.samples));
  facts.Add("count.code_samples", static_cast<int64_t>(code_samples_));
  facts.Add("count.events",
            static_cast<int64_t>(calls_ + ranges_ + kernel_facts_.switches +
                                 kernel_facts_.tasks + kernel_facts_.samples));
  for (const auto& [process, mask] : layers)
    facts.Add("layers." + std::to_string(process),
              static_cast<int64_t>(mask));
  for (size_t i = 0; i < kernel_facts_.spans.size(); ++i) {
    facts.Add("kernel_span." + std::to_string(i),
              kernel_facts_.spans[i].begin.value);
    facts.Add("kernel_span_end." + std::to_string(i),
              kernel_facts_.spans[i].end.value);
  }
  return facts.Write(writer, 0);
}

MergeSummary Merger::Summarize(const TraceReader& reader) const {
  MergeSummary s;
  s.store_path = store_;
  for (const StoredStream& stream : reader.streams())
    if (!stream.code)
      ++(stream.kernel ? s.kernel_streams : s.cuda_streams);
  s.calls = static_cast<uint64_t>(reader.Fact("count.calls"));
  s.switches = static_cast<uint64_t>(reader.Fact("count.switches"));
  s.tasks = static_cast<uint64_t>(reader.Fact("count.tasks"));
  s.samples = static_cast<uint64_t>(reader.Fact("count.samples"));
  s.code_samples = static_cast<uint64_t>(reader.Fact("count.code_samples"));
  s.store_bytes = reader.file().size();
  s.notes = notes_;
  const std::vector<std::string> known = reader.facts().missing;
  s.notes.insert(s.notes.end(), known.begin(), known.end());
  for (const std::string& line : missing_)
    if (std::find(known.begin(), known.end(), line) == known.end())
      s.notes.push_back(line);
  if (s.notes.size() > notes_.size()) s.incomplete = s.notes[notes_.size()];
  for (const StoredStream& stream : reader.streams())
    if (stream.nesting_violations > 0)
      s.notes.push_back(stream.file + ": " + NestingSentence(stream));
  // One line for all ranges of a kind that a process lost.
  struct Lost {
    analysis::Loss loss;
    uint64_t count = 0;
  };
  std::vector<Lost> lost;
  for (const analysis::Loss& loss : reader.losses()) {
    auto same = std::find_if(lost.begin(), lost.end(), [&](const Lost& l) {
      return l.loss.process == loss.process && l.loss.side == loss.side &&
             l.loss.id == loss.id;
    });
    if (same == lost.end()) same = lost.insert(lost.end(), {loss, 0});
    same->count += loss.count;
  }
  for (const auto& [loss, count] : lost) {
    const std::string name =
        loss.side != analysis::Loss::Side::kCuda
            ? std::string(analysis::SideName(loss.side)) + " stream"
        : loss.process == analysis::kNone
            ? std::string("cuda stream")
            : reader.processes()[loss.process].name + "/" +
                  std::to_string(reader.processes()[loss.process].pid);
    s.notes.push_back(fmt::format("{}: {} x {}: {}", name, FormatCount(count),
                                  loss.id, loss.text));
    if (loss.severity >= 2 && s.incomplete.empty())
      s.incomplete = s.notes.back();
  }
  return s;
}

// Under sudo the files belong to whom the folder belongs to.
void Merger::GiveToOwner(const std::string& path) const {
  if (geteuid() != 0) return;
  const std::string parent = store_.find('/') == std::string::npos
                                 ? "."
                                 : store_.substr(0, store_.find_last_of('/'));
  struct stat st;
  if (stat(parent.c_str(), &st) == 0 && st.st_uid != 0 &&
      lchown(path.c_str(), st.st_uid, st.st_gid) != 0) {
    // The data are there and readable; only deleting them may need sudo.
  }
}

Result<MergeSummary> Merger::Run() {
  INGERO_RETURN_IF_ERROR(ReadStreams());
  if (cuda_.empty() && kernel_.empty())
    return Status::Error("recording " + recording_.id +
                         " has no readable stream" +
                         (missing_.empty() ? "" : ": " + missing_.front()));
  INGERO_ASSIGN_OR_RETURN(Leftover folder,
                          MakeStoreFolder(store_, options_.output.empty()));
  // In a folder of another user, root follows no link.
  if (struct stat st; options_.output.empty() &&
                      lstat(store_.c_str(), &st) == 0 && S_ISLNK(st.st_mode))
    return Status::Error(store_ +
                         ": is a symbolic link; remove it, or name another "
                         "store with -o");
  GiveToOwner(store_);
  INGERO_ASSIGN_OR_RETURN(StoreLock lock, StoreLock::Take(store_, options_.wait));
  GiveToOwner(store_ + "/merge.lock");
  {
    INGERO_ASSIGN_OR_RETURN(auto merged, AlreadyMerged());
    if (merged) return std::move(*merged);
  }

  const std::string data = store_ + "/data.mdb";
  const std::string next = data + ".new";
  Leftover unfinished(next, Leftover::kFile);
  INGERO_ASSIGN_OR_RETURN(auto writer, StoreWriter::Create(next));
  INGERO_RETURN_IF_ERROR(WriteEvents(writer.get()));
  INGERO_RETURN_IF_ERROR(WriteDescription(writer.get()));
  INGERO_RETURN_IF_ERROR(writer->Flush());
  // The store has all of it.
  lives_ = {};
  cuda_.clear();
  kernel_streams_.clear();
  {
    INGERO_ASSIGN_OR_RETURN(auto reader, TraceReader::Open(next, false));
    reader->KeepBlocks();
    ResultFile results(*reader);
    INGERO_RETURN_IF_ERROR(results.Open(data + ".results"));
    AheadTrace trace(*reader);
    analysis::AttributeOptions attribute;
    if (decoders_ > 0)
      attribute.will_read = [&](analysis::NextWanted next) {
        trace.WillRead(std::move(next));
      };
    analysis::Attribute(
        trace, &results,
        [&](double fraction) {
          Report("attributing", fraction, calls_ + kernel_facts_.switches);
        },
        attribute);

    for (const CodeInput& c : code_)
      c.code.Write(*reader, [&](analysis::ProcessIndex process,
                                std::span<const uint64_t> row) {
        results.OnCode(process, row);
      });
    INGERO_RETURN_IF_ERROR(results.CopyTo(writer.get()));
    Facts facts;
    for (const auto& [table, longest] : results.longest())
      facts.Add("longest_ns." + table, longest);
    facts.Add("attributed", 1);
    facts.Add("indexed", 1);
    INGERO_RETURN_IF_ERROR(facts.Write(writer.get(), 1));
  }
  INGERO_RETURN_IF_ERROR(writer->Finish());
  if (rename(next.c_str(), data.c_str()) != 0)
    return CannotWrite(data, errno);
  unfinished.Keep();
  folder.Keep();
  if (auto dir = OpenFile(store_, O_RDONLY | O_DIRECTORY); dir.ok())
    (void)fsync(dir->get());
  GiveToOwner(data);

  INGERO_ASSIGN_OR_RETURN(auto reader, TraceReader::Open(data, false));
  MergeSummary summary = Summarize(*reader);
  summary.written = true;
  const uint64_t now = static_cast<uint64_t>(reader->Fact("count.events"));
  summary.added_events = now > events_before_ ? now - events_before_ : 0;
  Report("done", 1, now);
  return summary;
}

}  // namespace

Result<MergeSummary> Merge(const MergeOptions& options) {
  return Merge(options, ListRecordings(options.dirs.empty() ? DefaultTraceDirs()
                                                            : options.dirs));
}

Result<MergeSummary> Merge(const MergeOptions& options,
                           const std::vector<Recording>& recordings) {
  const std::vector<std::string> dirs =
      options.dirs.empty() ? DefaultTraceDirs() : options.dirs;
  std::string places;
  for (const std::string& dir : dirs)
    places += (places.empty() ? "" : ", ") + dir;
  if (recordings.empty())
    return Status::Error(
        "no recording in " + places +
        "; make one with `LD_PRELOAD=libingero_cuda.so PROGRAM`, and `sudo "
        "ingero-kprobe` beside it");
  const Recording* chosen = &recordings.back();
  if (!options.recording.empty()) {
    chosen = nullptr;
    for (const Recording& r : recordings)
      if (r.id == options.recording) chosen = &r;
    if (chosen == nullptr)
      return Status::Error("no recording " + options.recording + " in " +
                           places + "; `ingero list` shows those there are");
  }
  return Merger(options, *chosen).Run();
}

Result<std::unique_ptr<TraceReader>> OpenTrace(const std::string& path) {
  INGERO_ASSIGN_OR_RETURN(const std::string data, FindStoreData(path));
  auto reader = TraceReader::OpenToAsk(data);
  if (!reader.ok()) return reader.status();
  if ((*reader)->Fact("attributed") == 0)
    return Status::Error(data +
                         ": its merge did not end; run `ingero merge` again");
  return std::move(*reader);
}

Result<std::unique_ptr<analysis::ReportSource>> OpenStore(
    const std::string& path) {
  INGERO_ASSIGN_OR_RETURN(auto reader, OpenTrace(path));
  return std::unique_ptr<analysis::ReportSource>(std::move(reader));
}

Result<FoundStore> FindNewestStore(const std::vector<std::string>& dirs) {
  std::vector<std::string> problems;
  const std::vector<Recording> recordings =
      ListRecordings(dirs, dirs.size() > 1, &problems);
  FoundStore found;
  std::string places;
  for (const std::string& dir : dirs) {
    places += (places.empty() ? "" : ", ") + dir;
    // The first folder is where the caller's programs record.
    if (!found.path.empty()) continue;
    timespec newest{};
    for (const std::string& store : ListStores(dir)) {
      struct stat st;
      if (stat((store + "/data.mdb").c_str(), &st) != 0) continue;
      if (!found.path.empty() &&
          std::tie(st.st_mtim.tv_sec, st.st_mtim.tv_nsec) <=
              std::tie(newest.tv_sec, newest.tv_nsec))
        continue;
      found.path = store;
      newest = st.st_mtim;
    }
  }
  const bool unmerged =
      !recordings.empty() &&
      std::none_of(dirs.begin(), dirs.end(), [&](const std::string& dir) {
        return access((dir + "/" + recordings.back().id + ".store/data.mdb")
                          .c_str(),
                      F_OK) == 0;
      });
  if (found.path.empty()) {
    std::string why = "no merged recording in " + places;
    if (!problems.empty())
      why += fmt::format(" ({})", fmt::join(problems, "; "));
    return Status::Error(why + "; run `ingero merge` first");
  }
  // A page that is written to gives its file a new time.
  struct stat store, stream;
  const bool grown =
      !unmerged && !recordings.empty() &&
      stat((found.path + "/data.mdb").c_str(), &store) == 0 &&
      found.path.ends_with(recordings.back().id + ".store") &&
      std::any_of(recordings.back().streams.begin(),
                  recordings.back().streams.end(), [&](const StreamInfo& s) {
                    return stat(s.path.c_str(), &stream) == 0 &&
                           stream.st_mtim.tv_sec > store.st_mtim.tv_sec + 1;
                  });
  if (grown)
    found.note = "the recording has grown since it was merged: `ingero merge` "
                 "adds what is new";
  else if (unmerged)
    found.note = "the newest recording (" + recordings.back().id +
                 ") is not merged: run `ingero merge` to have it explained; "
                 "this is " + found.path;
  else if (!found.path.starts_with(dirs.front() + "/"))
    found.note = dirs.front() + " has no merged recording; this is " +
                 found.path;
  return found;
}

}  // namespace ingero::merge
