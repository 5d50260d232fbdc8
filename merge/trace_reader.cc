// SPDX-License-Identifier: Apache-2.0
#include "merge/trace_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <thread>

#include "analysis/feeding.h"
#include "base/tables.h"
#include "base/text.h"
#include "merge/coverage.h"
#include "merge/stream.h"
#include "merge/switch_row.h"

namespace ingero::merge {

using namespace analysis;

// analysis/trace.h repeats the wire's values so that it need not see it.
#define X(id, value, name) \
  static_assert(static_cast<int>(INGERO_CLASS_##id) == value);
INGERO_CLASSES(X)
#undef X
static_assert(INGERO_CLASS_REGISTER == static_cast<int>(CallClass::kRegister));
static_assert(INGERO_CLASS_CUDNN == static_cast<int>(CallClass::kCudnn));
static_assert(INGERO_CLASS_MODULE == static_cast<int>(CallClass::kModule));
static_assert(INGERO_CLASS_COPY_ASYNC ==
              static_cast<int>(CallClass::kCopyAsync));
static_assert(INGERO_CLASS_SYNC_EVENT ==
              static_cast<int>(CallClass::kSyncEvent));
static_assert(INGERO_CLASS_FREE == static_cast<int>(CallClass::kFree));
static_assert(INGERO_LAYER_LIBRARY == static_cast<int>(Layer::kLibrary));
static_assert(INGERO_COPY_DEFAULT == static_cast<int>(CopyDirection::kDefault));
static_assert(INGERO_COPY_H2D ==
              static_cast<int>(CopyDirection::kHostToDevice));

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

constexpr int64_t kMinuteNs = 60 * kSecondNs;

// So many blocks take longer to decode than a thread to begin; smaller ones,
// on average, less than to be handed from one to the other.
constexpr size_t kDecodeAhead = 16, kDecodeAheadBytes = 1024;

int64_t FloorTo(int64_t unit, int64_t t) {
  const int64_t floor = t / unit * unit;
  return t < floor ? floor - unit : floor;
}
int64_t CeilTo(int64_t unit, int64_t t) {
  const int64_t floor = FloorTo(unit, t);
  return floor == t ? floor : floor + unit;
}
int64_t FloorSecond(int64_t t) { return FloorTo(kSecondNs, t); }
int64_t CeilSecond(int64_t t) { return CeilTo(kSecondNs, t); }

uint32_t MinusOne(uint64_t v) {
  return v == 0 ? kNone : static_cast<uint32_t>(v - 1);
}

// Splits "a NUL b NUL c"; missing parts are "".
std::vector<std::string> Parts(std::string_view text, size_t count) {
  std::vector<std::string> parts(count);
  for (size_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const size_t nul = last ? text.npos : text.find('\0');
    parts[i] = text.substr(0, nul);
    if (nul == text.npos) break;
    text.remove_prefix(nul + 1);
  }
  return parts;
}

Ns NsOf(uint64_t v) { return Ns(static_cast<int64_t>(v)); }

// A cursor over rows, with a function that makes a value of a row, or says no.
template <typename T, typename Decode>
class DecodingCursor : public Cursor<T> {
 public:
  DecodingCursor(std::unique_ptr<RowCursor> rows, Decode decode)
      : rows_(std::move(rows)), decode_(std::move(decode)) {}
  bool Next(T* out) override {
    while (rows_->Next())
      if (decode_(*rows_, out)) return true;
    return false;
  }

 private:
  std::unique_ptr<RowCursor> rows_;
  Decode decode_;
};

template <typename T, typename Decode>
std::unique_ptr<Cursor<T>> MakeCursor(std::unique_ptr<RowCursor> rows,
                                      Decode decode) {
  return std::make_unique<DecodingCursor<T, Decode>>(std::move(rows),
                                                     std::move(decode));
}

// One after the other.
template <typename T>
class ChainCursor : public Cursor<T> {
 public:
  explicit ChainCursor(std::vector<std::unique_ptr<Cursor<T>>> parts)
      : parts_(std::move(parts)) {}
  bool Next(T* out) override {
    for (; at_ < parts_.size(); parts_[at_++].reset())
      if (parts_[at_]->Next(out)) return true;
    return false;
  }

 private:
  std::vector<std::unique_ptr<Cursor<T>>> parts_;
  size_t at_ = 0;
};

// What a row of [range) weighs within the window: the range is cut, the time
// in proportion. False where they do not meet.
bool ClipTo(Interval window, Interval* range, Ns* time) {
  const Interval whole = *range;
  const Interval cut = whole.Clip(window);
  if (whole.empty()) return window.Contains(whole.begin);
  if (cut.empty()) return false;
  if (cut.length() != whole.length()) {
    const double share = Ratio(cut.length(), whole.length());
    *time = std::min(cut.length(),
                     Ns(static_cast<int64_t>(
                         static_cast<double>(time->value) * share)));
  }
  *range = cut;
  return true;
}

}  // namespace

Result<std::unique_ptr<TraceReader>> TraceReader::Open(
    const std::string& data_path, bool verify) {
  return Open(data_path, verify ? Verify::kAll : Verify::kNothing);
}

Result<std::unique_ptr<TraceReader>> TraceReader::OpenToAsk(
    const std::string& data_path) {
  return Open(data_path, Verify::kKeys);
}

Result<std::unique_ptr<TraceReader>> TraceReader::Open(
    const std::string& data_path, Verify verify) {
  std::unique_ptr<TraceReader> reader(new TraceReader());
  INGERO_ASSIGN_OR_RETURN(reader->file_, StoreFile::Open(data_path));
  const auto load = [&]() -> Status {
    if (verify == Verify::kKeys) {
      // To be asked.
      reader->decoders_ = std::thread::hardware_concurrency() > 1 ? 1 : 0;
      INGERO_ASSIGN_OR_RETURN(const bool known, reader->file_->VerifyKeys());
      if (!known) verify = Verify::kAll;
    }
    if (verify == Verify::kAll)
      INGERO_RETURN_IF_ERROR(reader->file_->VerifyBlocks());
    INGERO_RETURN_IF_ERROR(reader->Load());
    // Without it nothing would tell that other keys are gone.
    if (reader->Fact("indexed") != 0 &&
        reader->file_->Table(index_table::kSchema.id).empty())
      return Status::Error("damaged store: its index is missing");
    return {};
  };
  Status s = load();
  if (!s.ok()) return std::move(s).In(data_path);
  return reader;
}

Status TraceReader::AllRead() const {
  const uint64_t unreadable = unreadable_blocks();
  if (unreadable == 0) return {};
  return Status::Error(fmt::format(
      "{}: damaged store: {} block{} that the answer needs can't be read; "
      "`ingero store check` says which times are whole, `ingero merge` makes a "
      "new one",
      file_->path(), unreadable, unreadable == 1 ? "" : "s"));
}

Status TraceReader::Load() {
  Rows rows;
  INGERO_RETURN_IF_ERROR(file_->ReadAll(fact_table::kSchema, &rows));
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto parts = Parts(rows.texts[r], 2);
    facts_[parts[0]] = {static_cast<int64_t>(rows.at(r, fact_table::kValue)),
                        parts[1]};
  }
  if (FactText("schema") != kSchemaName)
    return Status::Error("not an ingero store");
  if (const int64_t version = Fact("schema.version");
      version != static_cast<int64_t>(kSchemaVersion))
    return Status::Error(fmt::format(
        "store version {}, this ingero reads version {}; run `ingero merge` "
        "again, or use the ingero that wrote it ({})",
        version, kSchemaVersion, FactText("ingero.version")));
  span_ = {Ns(Fact("span.begin")), Ns(Fact("span.end"))};

  INGERO_RETURN_IF_ERROR(file_->ReadAll(process_table::kSchema, &rows));
  std::vector<bool> host_ids;
  for (size_t r = 0; r < rows.size(); ++r) {
    using namespace process_table;
    Process p;
    p.first_seen = NsOf(rows.at(r, kFirstSeen));
    p.last_seen = NsOf(rows.at(r, kLastSeen));
    p.pid = static_cast<uint32_t>(rows.at(r, kPid));
    p.ns_pid = static_cast<uint32_t>(rows.at(r, kNsPid));
    p.start = NsOf(rows.at(r, kStart));
    if (rows.at(r, kExited) != 0) p.exited = NsOf(rows.at(r, kExited) - 1);
    const uint64_t flags = rows.at(r, process_table::kFlags);
    if (flags & kHasExitCode)
      p.exit_code = static_cast<int64_t>(rows.at(r, kExitCode));
    p.parent = MinusOne(rows.at(r, kParent));
    p.main_thread = MinusOne(rows.at(r, kMainThread));
    p.has_cuda = flags & kHasCuda;
    p.is_ingero = flags & kIsIngero;
    p.is_kernel = flags & kIsKernel;
    p.outside_scope = flags & kOutsideScope;
    p.cgroup_id = rows.at(r, kCgroup);
    p.cpus_allowed = static_cast<uint32_t>(rows.at(r, kCpusAllowed));
    const auto parts = Parts(rows.texts[r], 3);
    p.name = parts[0];
    p.exe = parts[1];
    p.cmdline = parts[2];
    host_ids.push_back(flags & kHostIds);
    processes_.push_back(std::move(p));
  }
  for (Process& p : processes_)
    if (p.parent != kNone && p.parent >= processes_.size())
      return Status::Error("damaged store: a parent that does not exist");

  INGERO_RETURN_IF_ERROR(file_->ReadAll(thread_table::kSchema, &rows));
  for (size_t r = 0; r < rows.size(); ++r) {
    Thread t;
    t.tid = static_cast<uint32_t>(rows.at(r, thread_table::kTid));
    t.process = static_cast<uint32_t>(rows.at(r, thread_table::kProcess));
    t.name = rows.texts[r];
    if (t.process >= processes_.size())
      return Status::Error("damaged store: a thread without a process");
    threads_.push_back(std::move(t));
    thread_begin_.push_back(NsOf(rows.at(r, thread_table::kFirstSeen)));
  }
  std::vector<uint32_t> order(threads_.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return thread_begin_[a] < thread_begin_[b];
  });
  for (uint32_t i : order) {
    const Thread& t = threads_[i];
    if (host_ids[t.process]) by_host_tid_.at(t.tid).push_back(i);
    by_process_tid_[uint64_t{t.process} << 32 | t.tid].push_back(i);
  }

  INGERO_RETURN_IF_ERROR(file_->ReadAll(function_table::kSchema, &rows));
  for (size_t r = 0; r < rows.size(); ++r) {
    Function f;
    f.name = rows.texts[r];
    f.layer = static_cast<Layer>(rows.at(r, function_table::kLayer));
    f.call_class = static_cast<CallClass>(rows.at(r, function_table::kClass));
    functions_.push_back(std::move(f));
    StoredFunction words;
    for (int w = 0; w < 4; ++w)
      words.words[w] = static_cast<uint8_t>(
          rows.at(r, function_table::kWords) >> (8 * w));
    words_.push_back(words);
  }

  INGERO_RETURN_IF_ERROR(file_->ReadAll(kernel_name_table::kSchema, &rows));
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto parts = Parts(rows.texts[r], 2);
    const auto process =
        static_cast<uint32_t>(rows.at(r, kernel_name_table::kProcess));
    const std::string& name = parts[1].empty() ? parts[0] : parts[1];
    kernel_names_[{process, rows.at(r, kernel_name_table::kKernel)}] = name;
    if (process < processes_.size() &&
        processes_[process].peer_kernel.empty() &&
        analysis::WaitsForPeers(name))
      processes_[process].peer_kernel = name;
  }

  INGERO_RETURN_IF_ERROR(file_->ReadAll(code_line_table::kSchema, &rows));
  for (size_t r = 0; r < rows.size(); ++r) {
    using namespace code_line_table;
    const auto parts = Parts(rows.texts[r], 2);
    code_lines_.push_back(
        {parts[0], parts[1], static_cast<uint32_t>(rows.at(r, kLine)),
         (rows.at(r, code_line_table::kFlags) & code_place_table::kUser) != 0});
  }

  INGERO_RETURN_IF_ERROR(file_->ReadAll(stream_table::kSchema, &rows));
  for (size_t r = 0; r < rows.size(); ++r) {
    using namespace stream_table;
    StoredStream s;
    s.span = {NsOf(rows.at(r, kBegin)), NsOf(rows.at(r, kEnd))};
    s.kernel = rows.at(r, kKernel) == 1;
    s.code = rows.at(r, kKernel) == 2;
    s.stream_id = rows.at(r, kStreamId);
    s.pid = rows.at(r, kPid);
    s.fingerprint = rows.at(r, kFingerprint);
    s.bytes = rows.at(r, kBytes);
    s.events = rows.at(r, kEvents);
    s.skipped_calls = rows.at(r, kSkippedCalls);
    s.process = MinusOne(rows.at(r, kProcess));
    if (s.process != kNone && s.process >= processes_.size())
      return Status::Error("damaged store: a stream without a process");
    s.clock_error_ns = rows.at(r, kClockErrorNs);
    s.clock_knots = rows.at(r, kClockKnots);
    s.self_ns = rows.at(r, kSelfNs);
    s.flags = rows.at(r, stream_table::kFlags);
    s.nesting_violations = rows.at(r, kNestingViolations);
    const auto parts = Parts(rows.texts[r], 3);
    s.file = parts[0];
    s.comm = parts[1];
    s.tool_version = parts[2];
    streams_.push_back(std::move(s));
  }
  for (int64_t i = 0;; ++i) {
    const auto it = facts_.find("kernel_span." + std::to_string(i));
    if (it == facts_.end()) break;
    kernel_spans_.push_back(
        {Ns(it->second.first),
         Ns(Fact("kernel_span_end." + std::to_string(i)))});
  }
  return LoadLosses();
}

Status TraceReader::LoadLosses() {
  auto rows = Cursor(loss_table::kSchema, file_->Table(loss_table::kSchema.id),
                     {Ns(INT64_MIN), Ns(INT64_MAX)});
  // (loss, process) -> newest of them in losses_
  std::map<std::pair<uint64_t, ProcessIndex>, size_t> newest;
  while (rows->Next()) {
    const auto row = rows->row();
    const LossInfo* info = FindLoss(row[loss_table::kLoss]);
    Loss loss;
    loss.range = {Ns(rows->time()), NsOf(row[loss_table::kEndT])};
    if (loss.range.empty()) loss.range.end = loss.range.begin + Ns(1);
    loss.id = info != nullptr
                  ? info->id
                  : "loss-" + std::to_string(row[loss_table::kLoss]);
    loss.text = info != nullptr
                    ? info->text
                    : "a loss that this version does not know; explain with "
                      "the ingero that recorded it";
    loss.severity = info != nullptr ? info->severity : 2;
    loss.count = row[loss_table::kCountLost];
    loss.side = Loss::Side::kKernel;
    if (rows->owner() >= kStreamLossOwner) {
      const uint32_t stream = rows->owner() - kStreamLossOwner;
      if (stream < streams_.size()) {
        loss.side = streams_[stream].code     ? Loss::Side::kCode
                    : streams_[stream].kernel ? Loss::Side::kKernel
                                              : Loss::Side::kCuda;
        loss.process = streams_[stream].process;
      }
    }
    // A row a CPU and drain or second is too much to read: one line a loss.
    // Where data were lost, only what touches; a notice may have gaps.
    const auto [last, first_of_it] = newest.try_emplace(
        {row[loss_table::kLoss], loss.process}, losses_.size());
    const Ns slack = loss.severity >= 2 ? Ns(0) : Ns(10 * kSecondNs);
    Loss* joins = first_of_it ? nullptr : &losses_[last->second];
    if (joins != nullptr && joins->side == loss.side &&
        loss.range.begin <= joins->range.end + slack) {
      joins->range.end = std::max(joins->range.end, loss.range.end);
      joins->count += loss.count;
    } else {
      last->second = losses_.size();
      losses_.push_back(std::move(loss));
    }
  }
  if (!rows->damaged().empty())
    return Status::Error("damaged store: losses can't be read");
  return {};
}

int64_t TraceReader::Fact(const std::string& name) const {
  const auto it = facts_.find(name);
  return it == facts_.end() ? 0 : it->second.first;
}

const std::string& TraceReader::FactText(const std::string& name) const {
  static const std::string kEmpty;
  const auto it = facts_.find(name);
  return it == facts_.end() ? kEmpty : it->second.second;
}

std::vector<std::string> TraceReader::Lines(const std::string& name) const {
  std::vector<std::string> lines;
  for (size_t i = 0;; ++i) {
    const std::string& line = FactText(fmt::format("{}.{}", name, i));
    if (line.empty()) return lines;
    lines.push_back(line);
  }
}

const std::string& TraceReader::KernelName(ProcessIndex process,
                                           uint64_t kernel) const {
  static const std::string kEmpty;
  const auto it = kernel_names_.find({process, kernel});
  return it == kernel_names_.end() ? kEmpty : it->second;
}

ThreadIndex TraceReader::ThreadOfCall(ProcessIndex process, uint32_t tid,
                                      int64_t t) const {
  const auto it = by_process_tid_.find(uint64_t{process} << 32 | tid);
  if (it == by_process_tid_.end()) return kNone;
  const auto& lives = it->second;
  for (auto i = lives.rbegin(); i != lives.rend(); ++i)
    if (thread_begin_[*i].value <= t) return *i;
  return lives.front();
}

ThreadIndex TraceReader::ThreadOfSwitch(uint32_t tid, uint32_t tgid,
                                        int64_t t) const {
  if (tid == 0) return kNone;
  const auto* lives = by_host_tid_.find(tid);
  if (lives == nullptr) return kNone;
  ThreadIndex other = kNone;
  for (auto i = lives->rbegin(); i != lives->rend(); ++i) {
    if (processes_[threads_[*i].process].pid != tgid) continue;
    other = *i;
    if (thread_begin_[*i].value <= t) return *i;
  }
  return other;
}

const StoredFunction& TraceReader::WordsOf(uint64_t func) const {
  static const StoredFunction kNoWords{};
  return func < words_.size() ? words_[func] : kNoWords;
}

std::unique_ptr<RowCursor> TraceReader::Cursor(
    const TableSchema& schema, std::span<const BlockRef> blocks,
    Interval window) const {
  class CountingCursor : public RowCursor {
   public:
    CountingCursor(const TraceReader* reader, const TableSchema& schema,
                   std::vector<BlockRef> blocks, Interval window,
                   size_t decoders)
        : RowCursor(
              schema, std::move(blocks), window,
              [file = reader->file_.get()](const BlockRef& ref,
                                           std::string* bytes) {
                return file->Read(ref, bytes);
              },
              decoders, reader->cache_.get()),
          reader_(reader) {}
    ~CountingCursor() override { reader_->unreadable_ += damaged().size(); }

   private:
    const TraceReader* reader_;
  };
  std::vector<BlockRef> touching = file_->Touching(blocks, window);
  uint64_t bytes = 0;
  for (const BlockRef& ref : touching) bytes += ref.bytes;
  const bool many = touching.size() >= kDecodeAhead &&
                    bytes >= kDecodeAheadBytes * touching.size();
  return std::make_unique<CountingCursor>(this, schema, std::move(touching),
                                          window, many ? decoders_ : 0);
}

Status TraceReader::ReadAll(const TableSchema& schema, Rows* rows) const {
  Status s = file_->ReadAll(schema, rows);
  if (!s.ok()) ++unreadable_;
  return s;
}

// ---- TraceSource ----------------------------------------------------------

std::unique_ptr<analysis::Cursor<Call>> TraceReader::Calls(
    ProcessIndex process, Interval window) const {
  const auto decode = [this, process](const RowCursor& rows, Call* call) {
    using namespace call_table;
    const auto row = rows.row();
    const uint64_t flags = row[call_table::kFlags];
    *call = {};
    call->begin = Ns(rows.time());
    call->end = call->begin + NsOf(row[kDuration]);
    call->thread = ThreadOfCall(process, static_cast<uint32_t>(row[kTid]),
                                rows.time());
    call->func = row[kFunc] < functions_.size()
                     ? static_cast<FuncIndex>(row[kFunc])
                     : kNone;
    call->result = static_cast<uint32_t>(row[kResult]);
    call->depth = static_cast<uint8_t>(row[kDepth]);
    call->first_use = flags & INGERO_CALL_FIRST_USE;
    call->first_call = flags & kFirstCall;
    call->captured = flags & INGERO_CALL_CAPTURED;
    call->no_end = flags & kNoEnd;
    call->direction = static_cast<CopyDirection>(
        flags >> INGERO_CALL_DIRECTION_SHIFT & 7);
    call->host_memory = flags & kHostPinned     ? HostMemory::kPinned
                        : flags & kHostPageable ? HostMemory::kPageable
                                                : HostMemory::kUnknown;
    const StoredFunction& f = WordsOf(row[kFunc]);
    bool have_object = false;
    for (size_t w = 0; w < 4; ++w) {
      const uint64_t value = row[kWord0 + w];
      switch (f.words[w]) {
        case INGERO_WORD_BYTES: call->bytes = value; break;
        case INGERO_WORD_STREAM: call->stream = value; break;
        case INGERO_WORD_KERNEL:
        case INGERO_WORD_EVENT:
        case INGERO_WORD_ADDRESS:
        case INGERO_WORD_DEVICE:
        case INGERO_WORD_CONTEXT:
        case INGERO_WORD_GRAPH:
        case INGERO_WORD_MODULE:
          if (!have_object) call->object = value;
          have_object = true;
          break;
        case INGERO_WORD_GPU_WORK:
          if (value == 0) break;
          call->gpu = static_cast<uint32_t>(
              value >> INGERO_GPU_WORK_DEVICE_SHIFT);
          call->gpu_end =
              call->begin +
              NsOf(value &
                   ((uint64_t{1} << INGERO_GPU_WORK_DEVICE_SHIFT) - 1));
          break;
        default: break;
      }
    }
    return call->func != kNone && call->thread != kNone;
  };
  return MakeCursor<Call>(
      Cursor(call_table::kSchema,
             file_->Owner(call_table::kSchema.id, process), window),
      decode);
}

std::unique_ptr<analysis::Cursor<Switch>> TraceReader::Switches(
    Interval window) const {
  const auto decode = [this](const RowCursor& rows, Switch* s) {
    using namespace switch_table;
    const auto row = rows.row();
    const uint64_t flags = row[switch_table::kFlags];
    const int64_t t = rows.time();
    *s = {};
    s->t = Ns(t);
    s->cpu = static_cast<uint16_t>(rows.owner());
    s->left_out = flags & INGERO_PREV_LEFT_OUT;
    s->prev_idle = row[kPrevTid] == 0 && !s->left_out;
    s->next_idle = row[kNextTid] == 0;
    s->prev = ThreadOfSwitch(static_cast<uint32_t>(row[kPrevTid]),
                             static_cast<uint32_t>(row[kPrevTgid]), t);
    s->next = ThreadOfSwitch(static_cast<uint32_t>(row[kNextTid]),
                             static_cast<uint32_t>(row[kNextTgid]), t);
    s->prev_state = StateAfter(flags, row[kPrevState]);
    s->preempted = flags & INGERO_PREV_PREEMPTED;
    s->yielded = flags & INGERO_PREV_YIELDED;
    s->prev_syscall = static_cast<int16_t>(row[kPrevSyscall]) - 1;
    s->prev_arg0 = row[kPrevArg0];
    if (row[kWakeT] != 0 && !(flags & INGERO_NEXT_OUTSIDE))
      s->wake = NsOf(row[kWakeT]);
    // Unknown is what interrupted a thread in user mode: it called nobody.
    s->wake_from_irq = flags & (INGERO_WAKE_IRQ | INGERO_WAKE_UNKNOWN);
    if (s->wake && !s->wake_from_irq)
      s->waker =
          ThreadOfSwitch(static_cast<uint32_t>(row[kWakerTid]),
                         static_cast<uint32_t>(row[kWakerTgid]), t);
    s->prev_pages = row[kPrevPages];
    s->prev_min_faults = row[kPrevMinFaults];
    s->prev_maj_faults = row[kPrevMajFaults];
    s->prev_kernel = NsOf(row[kPrevKernelUs]) * 1000;
    s->next_throttled = NsOf(row[kNextThrottledNs]);
    return true;
  };
  return MakeCursor<Switch>(
      Cursor(switch_table::kSchema, file_->Table(switch_table::kSchema.id),
             window),
      decode);
}

std::pair<Ns, std::vector<StateAt>> TraceReader::StatesAt(Ns t) const {
  const auto blocks = file_->Table(keyframe_table::kSchema.id);
  auto after = std::upper_bound(
      blocks.begin(), blocks.end(), t.value,
      [](int64_t v, const BlockRef& b) { return v < b.first_ns; });
  if (after == blocks.begin()) return {span_.begin, {}};
  const int64_t at = std::prev(after)->first_ns;
  auto first = after;
  while (first != blocks.begin() && std::prev(first)->first_ns == at) --first;
  std::vector<StateAt> states;
  auto rows = Cursor(keyframe_table::kSchema, {first, after},
                     {Ns(at), Ns(at + 1)});
  while (rows->Next()) {
    using namespace keyframe_table;
    const auto row = rows->row();
    StateAt s;
    s.thread = ThreadOfSwitch(static_cast<uint32_t>(row[kTid]),
                              static_cast<uint32_t>(row[kTgid]), at);
    if (s.thread == kNone) continue;
    s.state = static_cast<ThreadState>(row[kState]);
    s.since = NsOf(row[kSince]);
    s.cpu = static_cast<uint16_t>(row[kCpu]);
    s.syscall = static_cast<int16_t>(row[kSyscall]) - 1;
    states.push_back(s);
  }
  return {Ns(at), std::move(states)};
}

std::unique_ptr<analysis::Cursor<Sample>> TraceReader::Samples(
    Interval window) const {
  const auto decode = [](const RowCursor& rows, Sample* s) {
    const auto row = rows.row();
    s->t = Ns(rows.time());
    s->metric = static_cast<uint16_t>(row[sample_table::kMetric]);
    s->instance = row[sample_table::kInstance];
    s->value = row[sample_table::kValue];
    s->text = rows.text();
    return true;
  };
  return MakeCursor<Sample>(
      Cursor(sample_table::kSchema, file_->Table(sample_table::kSchema.id),
             window),
      decode);
}

std::vector<MemoryStall> TraceReader::MemoryStalls(Interval window) const {
  std::vector<MemoryStall> stalls;
  if (Fact("count.memory_stalls") == 0) return stalls;
  auto rows =
      Cursor(task_table::kSchema, file_->Table(task_table::kSchema.id), window);
  while (rows->Next()) {
    using namespace task_table;
    const auto row = rows->row();
    if (row[kEvent] != INGERO_TASK_EVENT_RECLAIM &&
        row[kEvent] != INGERO_TASK_EVENT_COMPACTION)
      continue;
    MemoryStall s;
    s.range = {Ns(rows->time()) - NsOf(row[kCode]), Ns(rows->time())};
    s.thread = ThreadOfSwitch(static_cast<uint32_t>(row[kTid]),
                              static_cast<uint32_t>(row[kTgid]), rows->time());
    s.compaction = row[kEvent] == INGERO_TASK_EVENT_COMPACTION;
    stalls.push_back(s);
  }
  return stalls;
}

// ---- ReportSource ---------------------------------------------------------

Interval TraceReader::Widened(Interval window,
                              const TableSchema& schema) const {
  // Rows are found by their begin: go back by the longest row.
  const int64_t longest =
      Fact("longest_ns." + std::string(schema.name));
  if (window.begin.value > INT64_MIN + longest)
    window.begin -= Ns(longest);
  return window;
}

Interval TraceReader::WholeSeconds(Interval window) const {
  return {Ns(window.begin <= span_.begin ? FloorSecond(window.begin.value)
                                         : CeilSecond(window.begin.value)),
          Ns(window.end >= span_.end ? CeilSecond(window.end.value)
                                     : FloorSecond(window.end.value))};
}

Interval TraceReader::WholeMinutes(Interval window) const {
  const Interval seconds = WholeSeconds(window);
  return {Ns(CeilTo(kMinuteNs, seconds.begin.value)),
          Ns(FloorTo(kMinuteNs, seconds.end.value))};
}

template <typename T, typename Decode>
std::unique_ptr<analysis::Cursor<T>> TraceReader::Results(
    const TableSchema& rows, const TableSchema& by_second, const Part& part,
    Decode decode) const {
  const auto of = [&](const TableSchema& schema, Interval window) {
    return MakeCursor<T>(
        Cursor(schema,
               part.process == kNone ? file_->Table(schema.id)
                                     : file_->Owner(schema.id, part.process),
               Widened(window, schema)),
        [=](const RowCursor& row, T* out) { return decode(row, window, out); });
  };
  const Interval whole = WholeSeconds(part.window.Clip(
      {span_.begin, std::max(span_.begin, span_.end + Ns(1))}));
  // An older store has none.
  if (!part.by_second || whole.empty() || file_->Table(by_second.id).empty())
    return of(rows, part.window);
  // No row reaches over the border of a second.
  std::vector<std::unique_ptr<analysis::Cursor<T>>> parts;
  const Interval before{part.window.begin, whole.begin};
  const Interval after{whole.end, part.window.end};
  if (!before.empty()) parts.push_back(of(rows, before));
  parts.push_back(of(by_second, whole));
  if (!after.empty()) parts.push_back(of(rows, after));
  return std::make_unique<ChainCursor<T>>(std::move(parts));
}

std::unique_ptr<analysis::Cursor<FeedInterval>> TraceReader::Feeds(
    const Part& part) const {
  const auto decode = [](const RowCursor& rows, Interval window, FeedInterval* f) {
    using namespace feed_table;
    const auto row = rows.row();
    *f = {};
    f->range = {Ns(rows.time()), Ns(rows.time()) + NsOf(row[kLength])};
    f->time = NsOf(row[kNs]);
    f->intervals = row[kIntervals];
    f->process = rows.owner();
    f->device = static_cast<uint32_t>(row[kDevice]);
    f->state = static_cast<FeedState>(row[kState]);
    return ClipTo(window, &f->range, &f->time);
  };
  return Results<FeedInterval>(feed_table::kSchema, feed_seconds_table::kSchema,
                               part, decode);
}

std::unique_ptr<analysis::Cursor<PathCell>> TraceReader::Paths(
    const Part& part) const {
  const auto decode = [](const RowCursor& rows, Interval window, PathCell* c) {
    using namespace path_table;
    const auto row = rows.row();
    *c = {};
    c->range = {Ns(rows.time()), Ns(rows.time()) + NsOf(row[kEndOffset])};
    c->time = NsOf(row[kNs]);
    c->stretches = row[kStretches];
    c->process = rows.owner();
    c->thread = MinusOne(row[kThread]);
    c->state = static_cast<ThreadState>(row[kState]);
    c->reason = static_cast<Reason>(row[kReason]);
    c->culprit = MinusOne(row[kCulprit]);
    c->func = MinusOne(row[kFunc]);
    c->certainty = static_cast<Certainty>(row[kCertainty]);
    c->pages = row[kPages];
    c->ended_by = static_cast<CallClass>(row[kDetail] & 0xff);
    c->syscall = static_cast<int16_t>(row[kDetail] >> 8 & 0xffff) - 1;
    c->submits = row[kDetail] & kDetailSubmits;
    const Ns whole = c->time;
    if (!ClipTo(window, &c->range, &c->time)) return false;
    if (c->time != whole)
      c->pages = static_cast<uint64_t>(static_cast<double>(c->pages) *
                                       Ratio(c->time, whole));
    return true;
  };
  return Results<PathCell>(path_table::kSchema, path_seconds_table::kSchema,
                           part, decode);
}

std::unique_ptr<analysis::Cursor<CallSplit>> TraceReader::Splits(
    const Part& part) const {
  const auto decode = [this](const RowCursor& rows, CallSplit* s) {
    using namespace split_table;
    const auto row = rows.row();
    *s = {};
    s->begin = Ns(rows.time());
    s->process = rows.owner();
    s->thread = ThreadOfCall(rows.owner(), static_cast<uint32_t>(row[kTid]),
                             rows.time());
    s->func = static_cast<FuncIndex>(row[kFunc]);
    s->running = NsOf(row[kRunningNs]);
    s->runnable = NsOf(row[kRunnableNs]);
    s->sleeping = NsOf(row[kSleepingNs]);
    s->io = NsOf(row[kIoNs]);
    s->unknown = NsOf(row[kUnknownNs]);
    s->holder = MinusOne(row[kHolder]);
    s->waker = MinusOne(row[kWaker]);
    if (row[kStartsUp] != 0) s->starts_up = row[kStartsUp] == 2;
    return true;
  };
  return MakeCursor<CallSplit>(
      Cursor(split_table::kSchema,
             part.process == kNone
                 ? file_->Table(split_table::kSchema.id)
                 : file_->Owner(split_table::kSchema.id, part.process),
             part.window),
      decode);
}

std::unique_ptr<analysis::Cursor<StepMark>> TraceReader::Steps(
    ProcessIndex process, Interval window) const {
  const auto decode = [this](const RowCursor& rows, StepMark* m) {
    using namespace step_table;
    const auto row = rows.row();
    *m = {};
    m->t = Ns(rows.time());
    m->process = rows.owner();
    m->thread = ThreadOfCall(rows.owner(), static_cast<uint32_t>(row[kTid]),
                             rows.time());
    m->func = static_cast<FuncIndex>(row[kFunc]);
    m->every = static_cast<uint32_t>(row[kEvery]);
    m->submissions = row[kSubmissions];
    return true;
  };
  return MakeCursor<StepMark>(
      Cursor(step_table::kSchema,
             file_->Owner(step_table::kSchema.id, process), window),
      decode);
}

std::unique_ptr<analysis::Cursor<CodeSample>> TraceReader::CodeSamples(
    ProcessIndex process, Interval window) const {
  const auto decode = [this, process](const RowCursor& rows, CodeSample* s) {
    using namespace code_table;
    const auto row = rows.row();
    *s = {};
    s->t = Ns(rows.time());
    s->thread = ThreadOfCall(process, static_cast<uint32_t>(row[kTid]),
                             rows.time());
    s->line = static_cast<uint32_t>(row[kPlace]);
    s->innermost = static_cast<uint32_t>(row[kInnermost]);
    s->func = row[kFunc] <= functions_.size() ? MinusOne(row[kFunc]) : kNone;
    switch (static_cast<CodeState>(row[kState])) {
      case CodeState::kRunning: s->state = CodeSample::State::kRunning; break;
      case CodeState::kAsleep: s->state = CodeSample::State::kAsleep; break;
      case CodeState::kBlocked: s->state = CodeSample::State::kBlocked; break;
      default: s->state = CodeSample::State::kUnknown;
    }
    s->native = row[kKind] == static_cast<uint64_t>(CodeKind::kNative);
    return row[kPlace] < code_lines_.size() &&
           row[kInnermost] < code_lines_.size();
  };
  return MakeCursor<CodeSample>(
      Cursor(code_table::kSchema,
             file_->Owner(code_table::kSchema.id, process), window),
      decode);
}

namespace {

struct OpTotals {
  uint64_t calls = 0, total = 0, outermost = 0, max = 0, first_uses = 0,
           first_use_ns = 0, errors = 0, bytes = 0;
  Histogram histogram;
};

// Exact sums of the calls in a window: what op_summary would hold for it.
void AddCalls(const TraceReader& reader, ProcessIndex process, Interval window,
              std::map<FuncIndex, OpTotals>* totals) {
  if (window.empty()) return;
  auto calls = reader.Calls(process, window);
  // Of a thread's last, CUDA's and libraries' apart.
  std::map<uint32_t, Ns> first_use_end[2];
  Call call;
  while (calls->Next(&call)) {
    if (call.no_end) continue;
    const CallClass c = reader.functions()[call.func].call_class;
    const bool library =
        reader.functions()[call.func].layer == Layer::kLibrary;
    OpTotals& t = (*totals)[call.func];
    const auto duration = static_cast<uint64_t>((call.end - call.begin).value);
    if (call.first_use || call.first_call || c == CallClass::kContext ||
        c == CallClass::kModule) {
      ++t.first_uses;
      // The driver's call inside a runtime's first use is its time, too.
      Ns& until = first_use_end[library]
                      .try_emplace(call.thread, call.begin)
                      .first->second;
      if (call.begin >= until) t.first_use_ns += duration;
      until = std::max(until, call.end);
    } else {
      ++t.calls;
      t.total += duration;
      if (call.depth == 0) t.outermost += duration;
      t.max = std::max(t.max, duration);
      t.histogram.Add(duration);
    }
    const bool asks =
        c == CallClass::kQueryStream || c == CallClass::kQueryEvent;
    if (call.result != 0 && !(asks && call.result == kResultNotReady))
      ++t.errors;
    t.bytes += call.bytes;
  }
}

}  // namespace

std::vector<Operation> TraceReader::Operations(Interval window) const {
  std::vector<Operation> out;
  window = window.Clip({span_.begin, span_.end + Ns(1)});
  if (window.empty()) return out;
  int64_t first = WholeSeconds(window).begin.value;
  int64_t last = WholeSeconds(window).end.value;
  const bool whole = first < last;
  if (!whole) first = last = window.end.value;

  for (ProcessIndex p = 0; p < processes_.size(); ++p) {
    if (!processes_[p].has_cuda) continue;
    std::map<FuncIndex, OpTotals> totals;
    AddCalls(*this, p, {window.begin, std::min(Ns(first), window.end)},
             &totals);
    if (whole) AddCalls(*this, p, {Ns(last), window.end}, &totals);
    Interval minutes = WholeMinutes(window);
    if (minutes.empty() ||
        file_->Owner(op_minutes_table::kSchema.id, p).empty())
      minutes = {Ns(last), Ns(last)};
    const auto add = [&](const TableSchema& schema, Interval part) {
      if (part.empty()) return;
      auto rows = Cursor(schema, file_->Owner(schema.id, p), part);
      while (rows->Next()) {
        using namespace op_summary_table;
        const auto row = rows->row();
        if (row[kFunc] >= functions_.size()) continue;
        OpTotals& t = totals[static_cast<FuncIndex>(row[kFunc])];
        t.calls += row[kCalls];
        t.total += row[kTotalNs];
        t.outermost += row[kOutermostNs];
        t.max = std::max(t.max, row[kMaxNs]);
        t.first_uses += row[kFirstUses];
        t.first_use_ns += row[kFirstUseNs];
        t.errors += row[kErrors];
        t.bytes += row[kBytes];
        auto histogram = Histogram::Parse(rows->text());
        if (histogram.ok()) t.histogram.Merge(*histogram);
      }
    };
    add(op_summary_table::kSchema, {Ns(first), minutes.begin});
    add(op_minutes_table::kSchema, minutes);
    add(op_summary_table::kSchema, {minutes.end, Ns(last)});
    for (const auto& [func, t] : totals) {
      Operation op;
      op.func = func;
      op.process = p;
      op.count = t.calls;
      op.total = NsOf(t.total);
      op.average = t.calls == 0 ? Ns(0) : NsOf(t.total / t.calls);
      op.p50 = NsOf(t.histogram.Quantile(0.50, t.max));
      op.p95 = NsOf(t.histogram.Quantile(0.95, t.max));
      op.p99 = NsOf(t.histogram.Quantile(0.99, t.max));
      op.max = NsOf(t.max);
      op.first_uses = t.first_uses;
      op.first_use_time = NsOf(t.first_use_ns);
      op.errors = t.errors;
      op.bytes = t.bytes;
      op.wall_share = Ratio(NsOf(t.outermost), window.length());
      out.push_back(op);
    }
  }
  return out;
}

Summaries TraceReader::Summarize(Interval window) const {
  Summaries out;
  window = window.Clip({span_.begin, span_.end + Ns(1)});
  if (window.empty()) return out;
  out.operations = Operations(window);
  std::map<ProcessIndex, uint64_t> calls_of;
  for (const Operation& op : out.operations)
    if (functions_[op.func].layer != Layer::kLibrary)
      calls_of[op.process] += op.count + op.first_uses;

  std::map<ProcessIndex, ProcessActivity> activities;
  // sums: the columns from kPreempted to kMajFaults.
  const auto add = [&](ProcessIndex process, double share,
                       std::span<const uint64_t> sums, uint64_t kernel_ns) {
    namespace t = sched_summary_table;
    ProcessActivity& a = activities[process];
    const auto part = [&](uint64_t value) {
      return share == 1.0
                 ? value
                 : static_cast<uint64_t>(static_cast<double>(value) * share +
                                         0.5);
    };
    const auto of = [&](size_t column) { return sums[column - t::kPreempted]; };
    a.preempted += part(of(t::kPreempted));
    a.slept += part(of(t::kSlept));
    a.yielded += part(of(t::kYielded));
    a.running += NsOf(part(of(t::kRunningNs)));
    a.runnable += NsOf(part(of(t::kRunnableNs)));
    a.sleeping += NsOf(part(of(t::kSleepingNs)));
    a.io += NsOf(part(of(t::kIoNs)));
    a.worst_off_cpu = std::max(a.worst_off_cpu, NsOf(of(t::kWorstOffCpuNs)));
    a.pages += part(of(t::kPages));
    a.min_faults += part(of(t::kMinFaults));
    a.maj_faults += part(of(t::kMajFaults));
    a.kernel += NsOf(part(kernel_ns));
  };
  const auto add_seconds = [&](uint32_t owner, Ns from, Interval part) {
    if (part.empty()) return;
    auto rows = Cursor(sched_summary_table::kSchema,
                       file_->Owner(sched_summary_table::kSchema.id, owner),
                       {from, part.end});
    while (rows->Next()) {
      using namespace sched_summary_table;
      const auto row = rows->row();
      const int64_t seconds =
          std::max<int64_t>(1, static_cast<int64_t>(row[kSeconds]));
      const Interval range{Ns(rows->time()),
                           Ns(rows->time() + seconds * kSecondNs)};
      const Interval alive = range.Clip({span_.begin, span_.end + Ns(1)});
      const double share =
          std::min(1.0, Ratio(alive.Clip(part).length(), alive.length()));
      if (share <= 0) continue;
      const ThreadIndex thread =
          ThreadOfSwitch(static_cast<uint32_t>(row[kTid]),
                         static_cast<uint32_t>(row[kTgid]),
                         range.end.value - 1);
      if (thread != kNone)
        add(threads_[thread].process, share, row.subspan(kPreempted),
            row[kKernelNs]);
    }
  };
  const auto minute_blocks = file_->Table(sched_minutes_table::kSchema.id);
  const auto add_edge = [&](Interval part) {
    add_seconds(kSchedSeconds, Ns(FloorSecond(part.begin.value)), part);
    // An older store's rows of several seconds may be of any length.
    add_seconds(kSchedLate,
                minute_blocks.empty()
                    ? Ns(INT64_MIN)
                    : Ns(FloorTo(kMinuteNs, part.begin.value)),
                part);
  };
  const Interval minutes = minute_blocks.empty() ? Interval{} : WholeMinutes(window);
  if (minutes.empty()) {
    add_edge(window);
  } else {
    add_edge({window.begin, minutes.begin});
    auto rows = Cursor(sched_minutes_table::kSchema, minute_blocks, minutes);
    while (rows->Next()) {
      using namespace sched_minutes_table;
      const auto row = rows->row();
      if (row[kProcess] < processes_.size())
        add(static_cast<ProcessIndex>(row[kProcess]), 1.0,
            row.subspan(kPreempted), row[kKernelNs]);
    }
    add_edge({minutes.end, window.end});
  }
  for (const auto& [process, count] : calls_of) activities[process];
  for (auto& [process, a] : activities) {
    a.process = process;
    a.calls = calls_of.count(process) ? calls_of[process] : 0;
    const auto switches =
        static_cast<int64_t>(a.preempted + a.slept + a.yielded);
    if (switches > 0)
      a.average_off_cpu = (a.runnable + a.sleeping + a.io) / switches;
    // Only stretches that ended inside are measured one by one; of those that
    // did not, the worst is at least the average.
    a.worst_off_cpu = std::max(a.worst_off_cpu, a.average_off_cpu);
    out.activities.push_back(a);
  }
  return out;
}

// What recording a context switch with its waking takes: an estimate, as
// kCallCostNs is (bench/README.md).
constexpr int64_t kSwitchCostNs = 200;

std::string NestingSentence(const StoredStream& stream) {
  const uint64_t n = stream.nesting_violations;
  return fmt::format(
      "{} call{} not lie within the one around {}: the clock of {} thread was "
      "wrong there (a TSC that differs between CPUs?)",
      FormatCount(n), n == 1 ? " does" : "s do", n == 1 ? "it" : "them",
      n == 1 ? "its" : "their");
}

TraceFacts TraceReader::facts() const {
  TraceFacts f;
  f.host = FactText("host");
  f.boot_id = FactText("boot_id");
  f.tool_version = FactText("ingero.version");
  f.store_path = file_->path();
  if (const int64_t real = Fact("wall.real_ns"); real != 0)
    f.wall_clock_at_span_begin_ns =
        real + (span_.begin.value - Fact("wall.mono_ns"));
  f.cpus = static_cast<uint32_t>(Fact("cpus"));
  f.page_cost = Ns(Fact("page_cost_ns"));
  f.events = static_cast<uint64_t>(Fact("count.events"));
  f.switches = static_cast<uint64_t>(Fact("count.switches"));
  f.code_hz = static_cast<uint32_t>(Fact("code.hz"));
  if (const int64_t cut = Fact("code.cut"); cut != 0) f.code_cut = Ns(cut);
  for (size_t i = 0;; ++i) {
    const std::string name = fmt::format("code.problem.{}", i);
    if (FactText(name).empty()) break;
    const auto process = static_cast<uint64_t>(Fact(name));
    f.code_problems.push_back(
        {process == 0 || process > processes_.size()
             ? analysis::kNone
             : static_cast<analysis::ProcessIndex>(process - 1),
         FactText(name)});
  }
  f.companion_cost = Ns(Fact("count.switches") * kSwitchCostNs);
  if (const std::string& scope = FactText("scope"); !scope.empty()) {
    const auto left_out = static_cast<uint64_t>(Fact("scope.left_out"));
    f.scope = fmt::format(
        "recorded only {}, and who held the CPUs that it waited for; {} switches "
        "of others left out",
        scope, FormatCount(left_out));
  }

  const std::vector<ProcessCoverage> coverage = ReadCoverage(*this);
  bool kernel = false, cuda = false, imports = false;
  std::string kernel_recorder;  // "" = ingero's own
  for (const StoredStream& s : streams_) {
    f.clock_error =
        std::max(f.clock_error, NsOf(s.clock_error_ns));
    if (s.code) {
      f.code_cost += NsOf(s.self_ns);
      f.code_samples += s.events;
      continue;
    }
    (s.kernel ? kernel : cuda) = true;
    f.tracing_cost += NsOf(s.self_ns);
    const double seconds = static_cast<double>(s.span.length().value) / 1e9;
    if (s.kernel) {
      // As import/write_kernel.cc names it.
      const bool perf = s.comm == "perf";
      if (perf) {
        kernel_recorder = s.comm;
        f.companion_cost = Ns(0);  // what that one cost is not known
      }
      f.streams.push_back(fmt::format("kernel: {} rows in {:.1f} s ({}{})",
                                      s.events, seconds,
                                      perf ? "imported from perf, " : "",
                                      s.file));
      continue;
    }
    bool imported = false;  // what that profiler cost is not known
    for (const ProcessCoverage& c : coverage)
      imported |= c.process == s.process && !c.imported_from.empty();
    imports |= imported;
    if (!imported)
      f.tracing_cost += Ns(static_cast<int64_t>(s.events) * kCallCostNs);
    const Process& p = processes_[s.process == kNone ? 0 : s.process];
    std::string text =
        fmt::format("cuda: {}/{}: {} calls in {:.1f} s ({})", p.name, p.pid,
                    s.events, seconds, s.file);
    if (s.skipped_calls != 0) {
      std::string choice;
      for (const ProcessCoverage& c : coverage)
        if (c.process == s.process) choice = c.choice;
      text += fmt::format("; {} calls {}", s.skipped_calls, LeftOut(choice));
    }
    if (s.nesting_violations != 0) text += "; " + NestingSentence(s);
    if (!(s.flags & stream_table::kExited))
      text += s.flags & stream_table::kLive
                  ? "; still running when merged"
                  : "; ended without its exit handler (killed, _exit or exec)";
    f.streams.push_back(text);
  }

  // How calls were seen, one sentence a process. That a worker inherited
  // libraries and made no call is worth a line only where nobody made any.
  std::string unseen;
  const bool no_calls = Fact("count.calls") == 0;
  for (const ProcessCoverage& c : coverage) {
    if (!c.recorded && c.shim_mapped && !no_calls) continue;
    f.coverage.push_back({c.process, CoverageSentence(c, processes_[c.process]),
                          NameOf(processes_[c.process])});
    if (unseen.empty() && !c.recorded) unseen = f.coverage.back().text;
  }

  if (!kernel && imports)
    f.missing.push_back(
        "an imported trace says nothing of the scheduler: waiting for a CPU, "
        "wakers and workers cannot be judged; import it together with what perf "
        "recorded at the same time, or record the program with `ingero run`");
  else if (!kernel)
    f.missing.push_back(
        "no kernel stream: waiting for a CPU, wakers and workers cannot be "
        "judged; run `sudo ingero-kprobe` beside the program");
  else if (kernel_spans_.empty())
    f.missing.push_back(
        "no context switches in the kernel stream: waiting for a CPU, wakers "
        "and workers cannot be judged");
  const std::string& unrecorded = FactText("unrecorded");
  if (!cuda)
    f.missing.push_back(
        "no CUDA stream: GPU feeding cannot be judged; " +
        (!unrecorded.empty() ? unrecorded
         : !unseen.empty()   ? unseen
         : kernel && !kernel_recorder.empty()
             ? "import a trace of the program's CUDA calls together with what " +
                   kernel_recorder + " recorded"
         : kernel ? "start the program with LD_PRELOAD=libingero_cuda.so, and "
                    "see that sudo, env -i or a setuid program do not drop it; "
                    "a program without a CUDA call leaves no stream"
                  : std::string("start the program with "
                                "LD_PRELOAD=libingero_cuda.so")));
  else if (no_calls)
    f.missing.push_back(
        "no CUDA call was recorded: GPU feeding cannot be judged" +
        (f.coverage.empty() ? std::string()
                            : "; " + f.coverage.front().text));
  if (cuda && !unrecorded.empty()) f.missing.push_back(unrecorded);
  if (kernel && cuda && Fact("joined") == 0)
    f.missing.push_back(
        "no traced process was found in the kernel stream: their threads' "
        "states are not known");
  for (const char* name : {"missing", "no_clock"})
    for (std::string& line : Lines(name)) f.missing.push_back(std::move(line));
  if (unreadable_blocks() > 0)
    f.missing.push_back(fmt::format(
        "{} blocks could not be read: the store was changed or cut meanwhile; "
        "results are incomplete",
        unreadable_blocks()));
  return f;
}

}  // namespace ingero::merge
