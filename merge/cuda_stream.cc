// SPDX-License-Identifier: Apache-2.0
#include "merge/cuda_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace ingero::merge {
namespace {

// A thread's nested calls wait for the call that contains them. Deeper than
// this is damage: emit what there is.
constexpr size_t kMaxPending = 1 << 16;
constexpr uint64_t kFnvPrime = 0x100000001b3;

uint64_t Mix(uint64_t hash, uint64_t value) {
  return (hash ^ value) * kFnvPrime + (hash >> 29);
}

template <typename T>
T Load(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

// Text up to its NUL or the end of the record.
std::string TextOf(std::string_view bytes) {
  return std::string(bytes.substr(0, bytes.find('\0')));
}

// Between the reading of a call's end and its store there may be this much of
// other records (a signal handler's call, another CPU's time stamp counter).
constexpr uint64_t kOrderSlackTicks = 1 << 13;
// The recorder takes a clock sample before any call that ends more than 100 ms
// after the thread's last one.
constexpr uint64_t kSampleGapTicks = uint64_t{1} << 31;

// A process has 1,024 ranges open at most, and each of its threads 64: more are
// those whose ends lie in slots that come later, or were lost.
constexpr size_t kMostOpen = 1 << 20;

// Smallest size of a kind that this version decodes; 0 = skipped knowingly;
// nullopt = a newer kind.
std::optional<size_t> KindBytes(uint8_t kind) {
  switch (kind) {
#define X(id, value, type) \
  case INGERO_RECORD_##id: \
    return sizeof(type);
    INGERO_RECORDS(X)
#undef X
    case INGERO_RECORD_STACK:
      return 0;
    default:
      return std::nullopt;
  }
}

// Bytes of the record that `bytes` begins with; 0 where the framing is broken.
size_t RecordBytes(std::string_view bytes) {
  if (bytes.size() < 8) return 0;
  const auto r = Load<ingero_record>(bytes);
  const size_t size = size_t{r.size8} * 8;
  if (r.kind == 0 || size == 0 || size > bytes.size()) return 0;
  const auto least = KindBytes(r.kind);
  if (least && size < *least) return 0;
  if (r.kind == INGERO_RECORD_CALL &&
      size > sizeof(ingero_call) + 8 * INGERO_CALL_WORDS_MAX)
    return 0;
  return size;
}

// A text without control characters, then zeros to the record's end.
bool IsText(std::string_view bytes) {
  const size_t nul = bytes.find('\0');
  return nul != bytes.npos &&
         bytes.find_first_not_of('\0', nul) == bytes.npos &&
         std::none_of(bytes.begin(), bytes.begin() + nul,
                      [](char c) { return static_cast<uint8_t>(c) < ' '; });
}

// False for what no recorder of this version writes: a record whose kind was
// damaged is taken for another one.
bool IsSound(std::string_view record) {
  const auto tail = [&](size_t bytes) { return record.substr(bytes); };
  switch (Load<ingero_record>(record).kind) {
    case INGERO_RECORD_THREAD:
      return record.size() == sizeof(ingero_thread) &&
             Load<ingero_thread>(record).tid != 0;
    case INGERO_RECORD_KNOT:
      return record.size() == sizeof(ingero_knot);
    case INGERO_RECORD_LOSS:
      return record.size() == sizeof(ingero_loss_range) &&
             FindLoss(Load<ingero_loss_range>(record).loss) != nullptr;
    case INGERO_RECORD_SELF:
      return record.size() == sizeof(ingero_self_cost);
    case INGERO_RECORD_NAME:
      return Load<ingero_name>(record).func != 0 &&
             Load<ingero_name>(record).reserved == 0 &&
             IsText(tail(sizeof(ingero_name)));
    case INGERO_RECORD_KERNEL:
      return Load<ingero_kernel>(record).reserved == 0 &&
             Load<ingero_kernel>(record).kernel != 0 &&
             IsText(tail(sizeof(ingero_kernel)));
    case INGERO_RECORD_PROCESS:
      return (uint64_t{Load<ingero_process>(record).text_bytes} + 7) / 8 * 8 ==
             record.size() - sizeof(ingero_process);
    case INGERO_RECORD_COVERAGE:
      return Load<ingero_coverage>(record).way != 0 &&
             IsText(tail(sizeof(ingero_coverage)));
    case INGERO_RECORD_NVTX_BEGIN:
      return record.size() == sizeof(ingero_nvtx_begin) &&
             Load<ingero_nvtx_begin>(record).start_ticks != 0 &&
             (Load<ingero_record>(record).flags == INGERO_NVTX_NESTED ||
              Load<ingero_record>(record).flags == INGERO_NVTX_PROCESS);
    case INGERO_RECORD_GPU_ACTIVITY: {
      const auto kind = Load<ingero_record>(record).flags;
      return record.size() == sizeof(ingero_gpu_activity) &&
             kind >= INGERO_GPU_KERNEL && kind <= INGERO_GPU_MEMSET;
    }
    case INGERO_RECORD_STACK:
      return false;
    default:
      return true;
  }
}

// Of an NVTX record that comes in a slot of that thread.
template <typename Record>
uint32_t TidOf(std::string_view record, uint32_t slot_tid) {
  const uint32_t tid = Load<Record>(record).tid;
  return tid != 0 ? tid : slot_tid;
}

// Of values that should not fall: false where one lies out of a longest run of
// those that do not.
std::vector<bool> InOrder(const std::vector<uint64_t>& values) {
  std::vector<uint32_t> tails, before(values.size(), UINT32_MAX);
  for (uint32_t i = 0; i < values.size(); ++i) {
    const auto at = std::upper_bound(
        tails.begin(), tails.end(), values[i],
        [&](uint64_t v, uint32_t t) { return v < values[t]; });
    if (at != tails.begin()) before[i] = *(at - 1);
    if (at == tails.end())
      tails.push_back(i);
    else
      *at = i;
  }
  std::vector<bool> in(values.size());
  if (!tails.empty())
    for (uint32_t i = tails.back(); i != UINT32_MAX; i = before[i])
      in[i] = true;
  return in;
}

WireCall DecodeCall(std::string_view record, uint32_t tid) {
  const auto c = Load<ingero_call>(record);
  WireCall call;
  call.start_ticks = c.start_ticks;
  call.end_ticks = c.start_ticks +
                   (uint64_t{c.duration_hi} << 32 | uint64_t{c.duration_lo});
  call.tid = tid;
  call.func = c.func;
  call.result = c.result;
  call.depth = c.depth;
  call.flags = c.r.flags;
  const size_t words =
      std::min<size_t>((record.size() - sizeof(c)) / 8, call.words.size());
  call.words_used = static_cast<uint8_t>(words);
  std::memcpy(call.words.data(), record.data() + sizeof(c), words * 8);
  return call;
}

bool Before(const WireCall& a, const WireCall& b) {
  return a.start_ticks != b.start_ticks ? a.start_ticks < b.start_ticks
                                        : a.depth < b.depth;
}

}  // namespace

// More is a damaged header, not a count.
constexpr uint64_t kMostBlocksMissed = 1 << 20;
// One thread that makes a call each ns needs three days for so many.
constexpr uint64_t kMostCalls = uint64_t{1} << 48;

void CudaStream::Count(ingero_loss loss, uint64_t count) {
  for (Loss& l : losses_) {
    if (l.loss == loss && l.first_ticks == 0) {
      l.count += count;
      return;
    }
  }
  losses_.push_back({count, 0, 0, loss});
}

// Of a DATA block: is it as it was written, as far as can be told?
Result<bool> CudaStream::IsWhole(ingero_block_header* header,
                                 uint64_t index) const {
  const uint64_t at = index * stream_.header.block_bytes;
  // A process that is just writing it may show half a header.
  for (int attempt = 0;; ++attempt) {
    const Checked checked = CheckBlockHeader(*header);
    if (checked == Checked::kNone) return true;
    if (checked == Checked::kWhole) break;
    if (stream_.header.exited != 0 || attempt == 3) return false;
    INGERO_ASSIGN_OR_RETURN(
        const size_t got, stream_.file.ReadAt(at, header, sizeof(*header)));
    if (got != sizeof(*header)) return false;
  }
  std::string records;
  INGERO_RETURN_IF_ERROR(stream_.file.ReadAt(
      at + sizeof(*header), header->cursor & UINT32_MAX, &records));
  // Cut: what is there of it was not damaged; the end is counted as torn.
  return records.size() < (header->cursor & UINT32_MAX) ||
         RecordsCrc(records) == header->records_crc;
}

// The slot's blocks before and after it say when it was.
void CudaStream::RangeOfDamaged(uint32_t slot, uint32_t sequence) {
  const Block *before = nullptr, *after = nullptr;
  for (const Block& b : blocks_) {
    if (b.slot != slot) continue;
    if (b.sequence == sequence) return Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
    if (b.sequence < sequence)
      before = &b;
    else if (after == nullptr)
      after = &b;
  }
  if (before == nullptr && after == nullptr)
    return Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
  const uint64_t first = before == nullptr        ? first_ticks_
                         : before->last_ticks != 0 ? before->last_ticks
                                                   : before->last_end;
  const uint64_t last =
      after != nullptr && after->first_ticks != 0 ? after->first_ticks
                                                  : last_ticks_;
  if (first == 0 || last < first) return Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
  losses_.push_back({1, first, last, INGERO_LOSS_DAMAGED_BLOCK});
}

// Counters that the recorder changes in place are under no check.
void CudaStream::DropAbsurdCounts() {
  const auto drop = [&](uint64_t count, const std::string& what) {
    damage_.Add(path(), fmt::format("its header counts {} {}, more than there "
                                    "can be: not taken",
                                    count, what));
    Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
  };
  ingero_stream_header& h = stream_.header;
  if (h.calls_skipped > kMostCalls) {
    drop(h.calls_skipped, "calls left out by choice");
    h.calls_skipped = 0;
  }
  for (uint32_t i = 0; i < INGERO_LOSS_MAX; ++i) {
    const LossInfo* info = FindLoss(i);
    if (h.lost[i] > kMostCalls) {
      drop(h.lost[i], info != nullptr ? std::string("x ") + info->id
                                      : "losses of an unknown kind");
      h.lost[i] = 0;
    } else if (h.lost[i] != 0 && info == nullptr) {
      Count(INGERO_LOSS_UNKNOWN_KIND, 1);
    }
  }
}

void CudaStream::Seen(uint64_t ticks) {
  if (ticks == 0) return;
  if (first_ticks_ == 0 || ticks < first_ticks_) first_ticks_ = ticks;
  last_ticks_ = std::max(last_ticks_, ticks);
}

Result<std::unique_ptr<CudaStream>> CudaStream::Open(const std::string& path) {
  INGERO_ASSIGN_OR_RETURN(OpenStream stream, OpenStreamFile(path));
  if (stream.coded()) return Status::Error(path + ": not a CUDA stream");
  std::unique_ptr<CudaStream> cuda(new CudaStream(std::move(stream)));
  INGERO_RETURN_IF_ERROR(cuda->Index());
  return cuda;
}

Status CudaStream::ReadRecords(const Block& block, std::string* records) const {
  if (block.copy != nullptr) {
    *records = *block.copy;
  } else {
    INGERO_RETURN_IF_ERROR(stream_.file.ReadAt(
        block.index * stream_.header.block_bytes + sizeof(ingero_block_header),
        block.record_bytes, records));
  }
  records->resize(std::min<size_t>(records->size(), block.record_bytes));
  return {};
}

Status CudaStream::Index() {
  const uint64_t block_bytes = stream_.header.block_bytes;
  const uint64_t room = block_bytes - sizeof(ingero_block_header);
  const bool running = stream_.header.exited == 0;
  DropAbsurdCounts();
  std::set<std::pair<uint32_t, uint32_t>> written;  // (slot, sequence) of DATA
  std::vector<std::pair<uint32_t, uint32_t>> damaged;
  std::vector<Block> live;
  std::string head;
  const auto read_header = [&](uint64_t index,
                               ingero_block_header* h) -> Result<bool> {
    INGERO_ASSIGN_OR_RETURN(
        const size_t got,
        stream_.file.ReadAt(index * block_bytes, h, sizeof(*h)));
    return got == sizeof(*h);
  };
  // Pass 1 copies the LIVE blocks of a running process; pass 2 indexes. A
  // block that became LIVE in between is taken in pass 2.
  for (const bool copying : {true, false}) {
    if (copying && !running) continue;
    if (!copying) {
      INGERO_ASSIGN_OR_RETURN(stream_.bytes, stream_.file.Size());
    }
    const uint64_t blocks = (stream_.bytes + block_bytes - 1) / block_bytes;
    // Blocks are made in the file before they are used: what the header counts
    // and the file has not was cut off.
    if (!copying && stream_.header.blocks_reserved > blocks) {
      const uint64_t cut = std::min<uint64_t>(
          stream_.header.blocks_reserved - blocks, kMostBlocksMissed);
      Count(INGERO_LOSS_DAMAGED_BLOCK, cut);
      damage_.Add(path(), stream_.bytes, cut * block_bytes);
    }
    for (uint64_t i = 1; i < blocks; ++i) {
      ingero_block_header h;
      INGERO_ASSIGN_OR_RETURN(const bool whole, read_header(i, &h));
      if (!whole) {
        if (copying) continue;
        Count(INGERO_LOSS_TORN_TAIL, 1);
        cut_ = true;
        continue;
      }
      if (h.magic == 0) {
        // Reserved and never written: all zeros, or its header was damaged.
        if (!copying && (h.cursor != 0 || h.type != 0)) {
          Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
          damage_.Add(path(), i * block_bytes, block_bytes);
        }
        continue;
      }
      Block b;
      b.index = i;
      b.slot = h.slot;
      b.tid = h.tid;
      b.sequence = static_cast<uint32_t>(h.cursor >> 32);
      b.live = h.type == INGERO_BLOCK_LIVE;
      b.record_bytes = static_cast<uint32_t>(h.cursor);
      bool sound =
          h.magic == INGERO_MAGIC_BLOCK &&
          (h.type == INGERO_BLOCK_LIVE || h.type == INGERO_BLOCK_DATA) &&
          b.record_bytes <= room && b.record_bytes % 8 == 0 &&
          (!b.live || b.slot == i);
      if (sound && !b.live && !copying) {
        INGERO_ASSIGN_OR_RETURN(sound, IsWhole(&h, i));
        b.checked = h.check == INGERO_CHECK_CRC32C;
      }
      if (!sound) {
        if (copying) continue;
        damaged.emplace_back(h.slot, b.sequence);
        damage_.Add(path(), i * block_bytes, sizeof(h) + std::min<uint64_t>(
                                                 b.record_bytes, room));
        continue;
      }
      std::memcpy(b.inflight.data(), h.inflight, sizeof(h.inflight));
      if (!b.live) {
        if (copying) continue;
        b.last_ticks = h.last_ticks;
        if (written.insert({b.slot, b.sequence}).second) {
          blocks_.push_back(std::move(b));
        } else {
          Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
          damage_.Add(path(), i * block_bytes, sizeof(h) + b.record_bytes);
        }
        continue;
      }
      const bool have = std::any_of(
          live.begin(), live.end(), [&](const Block& l) { return l.index == i; });
      if (have) continue;
      if (running) {
        // Appending only adds behind `cursor`; only a reset in between makes
        // the bytes another sequence's. Then the copy is read again.
        for (int attempt = 0; attempt < 16; ++attempt) {
          b.copy = std::make_shared<std::string>();
          INGERO_RETURN_IF_ERROR(stream_.file.ReadAt(
              i * block_bytes + sizeof(h), b.record_bytes, b.copy.get()));
          ingero_block_header again;
          INGERO_ASSIGN_OR_RETURN(const bool still, read_header(i, &again));
          if (!still || again.cursor >> 32 == b.sequence) break;
          b.sequence = static_cast<uint32_t>(again.cursor >> 32);
          b.record_bytes = static_cast<uint32_t>(
              std::min<uint64_t>(again.cursor & UINT32_MAX, room));
          b.tid = again.tid;
          std::memcpy(b.inflight.data(), again.inflight,
                      sizeof(again.inflight));
        }
      }
      live.push_back(std::move(b));
    }
  }
  for (Block& b : live) {
    if (written.count({b.slot, b.sequence}) != 0) {
      INGERO_ASSIGN_OR_RETURN(const bool twin, IsWritten(b));
      if (twin) {
        // Its calls are in the DATA twin; what is in flight is only here.
        b.record_bytes = 0;
        b.copy = nullptr;
      } else {
        Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
      }
    }
    blocks_.push_back(std::move(b));
  }
  std::sort(blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) {
    return std::tie(a.slot, a.sequence, a.live) <
           std::tie(b.slot, b.sequence, b.live);
  });

  uint64_t hash = Mix(Mix(stream_.header.stream_id, blocks_.size()),
                      stream_.header.calls_skipped);
  hash = Mix(hash, stream_.header.exited);
  for (uint64_t lost : stream_.header.lost) hash = Mix(hash, lost);
  std::string records;
  SlotClock clock;
  uint32_t slot = 0, sequence = 0, tid = 0;
  for (Block& b : blocks_) {
    if (b.slot != slot) clock = {};
    if (b.slot != slot || tid == 0) tid = b.tid;
    if (b.slot != slot || b.sequence != sequence + 1) clock.sampled = false;
    slot = b.slot;
    sequence = b.sequence;
    hash = Mix(hash, uint64_t{b.sequence} << 32 | b.record_bytes);
    hash = Mix(hash, b.index << 1 | (b.live ? 1 : 0));
    for (const ingero_inflight& f : b.inflight)
      hash = Mix(Mix(hash, f.start_ticks), f.func);
    const uint32_t claimed = b.record_bytes;
    INGERO_RETURN_IF_ERROR(ReadRecords(b, &records));
    if (records.size() < claimed) {
      Count(INGERO_LOSS_TORN_TAIL, 1);
      cut_ = true;
    }
    FindBadCalls(&b, records, &clock);
    b.last_end = clock.last_end;
    if (b.live) DropFalseInFlight(&b, clock);
    Scan(&b, records, &tid);
    if (b.record_bytes < claimed)
      clock.sampled = false;  // samples may be missing
    else if (claimed != 0 && !(b.live && running) && !b.checked)
      INGERO_RETURN_IF_ERROR(LookBehind(b, clock));
  }
  for (const auto& [s, q] : damaged) {
    RangeOfDamaged(s, q);
    hash = Mix(hash, uint64_t{s} << 32 | q);
  }
  DropOddKnots();
  fingerprint_ = hash;

  // The header counts all losses; records give some of them a time range.
  for (uint32_t i = 1; i < INGERO_LOSS_MAX; ++i) {
    uint64_t ranged = 0;
    for (const Loss& l : losses_)
      if (l.loss == i && l.first_ticks != 0) ranged += l.count;
    if (stream_.header.lost[i] > ranged && FindLoss(i) != nullptr)
      Count(static_cast<ingero_loss>(i), stream_.header.lost[i] - ranged);
  }
  DropDoubtfulOpen();
  return {};
}

// Does the DATA block of that sequence hold the same? It may hold more.
Result<bool> CudaStream::IsWritten(const Block& live) const {
  std::string mine, theirs;
  for (const Block& b : blocks_) {
    if (b.live || b.slot != live.slot || b.sequence != live.sequence) continue;
    INGERO_RETURN_IF_ERROR(ReadRecords(live, &mine));
    INGERO_RETURN_IF_ERROR(ReadRecords(b, &theirs));
    const size_t common = std::min(mine.size(), theirs.size());
    return mine.compare(0, common, theirs, 0, common) == 0;
  }
  return false;
}

void CudaStream::FindBadCalls(Block* block, std::string_view records,
                              SlotClock* clock) {
  struct Ended {
    uint64_t end = 0, anchor = 0;
    uint32_t at = 0;
    bool outer = false;
  };
  std::vector<Ended> calls;
  bool fell = false;
  for (size_t at = 0, size; at < records.size(); at += size) {
    const std::string_view rest = records.substr(at);
    size = RecordBytes(rest);
    if (size == 0) break;
    switch (Load<ingero_record>(rest).kind) {
      case INGERO_RECORD_CALL: {
        const WireCall call = DecodeCall(rest.substr(0, size), 0);
        const auto f = functions_.find(call.func);
        const uint64_t last =
            calls.empty() ? clock->last_end : calls.back().end;
        const bool wrong =
            call.start_ticks == 0 || call.end_ticks < call.start_ticks ||
            (f != functions_.end() && call.words_used > 0 &&
             f->second.words[call.words_used - 1] == INGERO_WORD_NONE) ||
            (clock->sampled &&
             call.end_ticks > clock->anchor + kSampleGapTicks);
        if (wrong) {
          block->bad.push_back(static_cast<uint32_t>(at));
          break;
        }
        fell |= call.end_ticks + kOrderSlackTicks < last;
        calls.push_back({call.end_ticks, clock->anchor,
                         static_cast<uint32_t>(at), call.depth == 0});
        break;
      }
      case INGERO_RECORD_KNOT:
        clock->anchor =
            std::max<uint64_t>(clock->anchor, Load<ingero_knot>(rest).ticks);
        clock->sampled = true;
        break;
      case INGERO_RECORD_SELF: {
        const auto s = Load<ingero_self_cost>(rest);
        clock->anchor = std::max<uint64_t>(clock->anchor,
                                           s.start_ticks + s.duration_ticks);
        break;
      }
      case INGERO_RECORD_LOSS:
        clock->anchor = std::max<uint64_t>(
            clock->anchor, Load<ingero_loss_range>(rest).last_ticks);
        break;
      default:
        break;
    }
  }
  const uint64_t limit = block->last_ticks;
  if (limit != 0 && !calls.empty())
    fell |= calls.back().end > limit + kOrderSlackTicks;
  if (fell) {
    // The ends, between what came before and the time of writing out.
    std::vector<uint64_t> ends = {clock->last_end};
    for (const Ended& c : calls) ends.push_back(c.end);
    ends.push_back(limit != 0 ? limit : UINT64_MAX);
    const std::vector<bool> in = InOrder(ends);
    std::vector<uint64_t> next(ends.size(), UINT64_MAX);
    for (size_t i = ends.size() - 1; i-- > 0;)
      next[i] = in[i + 1] ? ends[i + 1] : next[i + 1];
    uint64_t last = 0;
    std::vector<Ended> good;
    for (size_t i = 0; i + 1 < ends.size(); ++i) {
      if (in[i]) last = ends[i];
      if (i == 0) continue;
      if (!in[i] && (ends[i] + kOrderSlackTicks < last ||
                     (next[i] != UINT64_MAX &&
                      ends[i] > next[i] + kOrderSlackTicks)))
        block->bad.push_back(calls[i - 1].at);
      else
        good.push_back(calls[i - 1]);
    }
    calls = std::move(good);
    std::sort(block->bad.begin(), block->bad.end());
  }
  for (const Ended& c : calls) {
    clock->last_end = std::max(clock->last_end, c.end);
    if (c.outer) clock->last_outer = std::max(clock->last_outer, c.end);
  }
  if (limit != 0 && clock->sampled)
    clock->anchor = std::max(clock->anchor, limit);
  if (!block->bad.empty())
    Count(INGERO_LOSS_DAMAGED_BLOCK, block->bad.size());
}

// A damaged cursor hides records. Behind a block's there is nothing, but in a
// slot used before there are older ones.
Status CudaStream::LookBehind(const Block& block, const SlotClock& clock) {
  const uint64_t block_bytes = stream_.header.block_bytes;
  const uint64_t at = sizeof(ingero_block_header) + block.record_bytes;
  std::string behind;
  if (at >= block_bytes) return {};
  INGERO_RETURN_IF_ERROR(stream_.file.ReadAt(
      block.index * block_bytes + at, std::min<uint64_t>(block_bytes - at, 128),
      &behind));
  bool hidden =
      !block.live && behind.size() >= 8 && Load<uint64_t>(behind) != 0;
  for (size_t i = 0; block.live && i + sizeof(ingero_call) <= behind.size();
       i += 8) {
    const std::string_view rest = std::string_view(behind).substr(i);
    const size_t size = RecordBytes(rest);
    if (size == 0 || Load<ingero_record>(rest).kind != INGERO_RECORD_CALL)
      continue;
    const WireCall call = DecodeCall(rest.substr(0, size), 0);
    hidden |= call.end_ticks >= clock.last_end &&
              call.end_ticks < clock.last_end + kSampleGapTicks;
  }
  if (hidden)
    Count(block.live ? INGERO_LOSS_TORN_TAIL : INGERO_LOSS_DAMAGED_BLOCK, 1);
  return {};
}

void CudaStream::DropFalseInFlight(Block* block, const SlotClock& clock) {
  uint64_t outer = clock.last_outer;
  bool whole = true;
  for (ingero_inflight& f : block->inflight) {
    if (f.func == 0) {
      whole = false;
      continue;
    }
    if (!whole || f.func > UINT16_MAX || f.start_ticks == 0 ||
        f.start_ticks + kOrderSlackTicks < outer) {
      f.func = 0;
      whole = false;
      Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
      continue;
    }
    outer = f.start_ticks;
  }
}

// A sample whose neighbours agree with each other and not with it.
void CudaStream::DropOddKnots() {
  const size_t before = knots_.size();
  if (stream_.header.clock == INGERO_CLOCK_MONOTONIC) {
    const auto offset =
        static_cast<uint64_t>(stream_.header.monotonic_offset_ns);
    std::erase_if(knots_, [&](const Knot& k) {
      return k.ticks != static_cast<uint64_t>(k.mono_ns) + offset;
    });
  } else if (knots_.size() >= 3) {
    std::sort(knots_.begin(), knots_.end(), [](const Knot& a, const Knot& b) {
      return a.ticks < b.ticks;
    });
    const auto ns = [&](size_t a, size_t b) {
      return static_cast<double>(knots_[b].mono_ns) -
             static_cast<double>(knots_[a].mono_ns);
    };
    const auto ticks = [&](size_t a, size_t b) {
      return static_cast<double>(knots_[b].ticks - knots_[a].ticks);
    };
    std::vector<double> rates;
    for (size_t i = 1; i < knots_.size(); ++i)
      if (ticks(i - 1, i) > 0) rates.push_back(ns(i - 1, i) / ticks(i - 1, i));
    if (rates.empty()) return;
    std::nth_element(rates.begin(), rates.begin() + rates.size() / 2,
                     rates.end());
    const double rate = rates[rates.size() / 2];
    const auto agree = [&](size_t a, size_t b) {
      // 20 us: two samples may be that close together and preempted.
      return std::abs(ns(a, b) - rate * ticks(a, b)) <=
             0.1 * std::abs(rate) * ticks(a, b) + 20'000;
    };
    std::vector<Knot> kept;
    const size_t n = knots_.size();
    for (size_t i = 0; i < n; ++i) {
      const bool left = i > 0 && agree(i - 1, i);
      const bool right = i + 1 < n && agree(i, i + 1);
      const bool others = i == 0       ? agree(1, 2)
                          : i + 1 == n ? agree(n - 3, n - 2)
                                       : agree(i - 1, i + 1);
      if (left || right || !others) kept.push_back(knots_[i]);
    }
    knots_ = std::move(kept);
  }
  if (knots_.size() < before)
    Count(INGERO_LOSS_DAMAGED_BLOCK, before - knots_.size());
}

template <typename Record>
CudaStream::RangeKey CudaStream::KeyOf(std::string_view record,
                                       uint32_t slot_tid) {
  const auto n = Load<Record>(record);
  return {n.start_ticks, n.name, n.domain,
          n.r.flags == INGERO_NVTX_NESTED ? TidOf<Record>(record, slot_tid) : 0,
          n.r.flags};
}

void CudaStream::Scan(Block* block, std::string_view records, uint32_t* tid) {
  size_t at = 0;
  size_t next_bad = 0;
  const bool newer = stream_.header.minor > INGERO_WIRE_MINOR;
  if (block->tid != 0) threads_.try_emplace(block->tid);
  while (at < records.size()) {
    const std::string_view rest = records.substr(at);
    const size_t size = RecordBytes(rest);
    if (size == 0) {
      Count(block->live ? INGERO_LOSS_TORN_TAIL : INGERO_LOSS_DAMAGED_BLOCK, 1);
      break;
    }
    const std::string_view record = rest.substr(0, size);
    if (next_bad < block->bad.size() && block->bad[next_bad] == at) {
      ++next_bad;
      at += size;
      continue;
    }
    at += size;
    if (!newer && !IsSound(record)) {
      Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
      continue;
    }
    switch (Load<ingero_record>(record).kind) {
      case INGERO_RECORD_CALL: {
        const WireCall call = DecodeCall(record, 0);
        ++calls_;
        if (block->first_ticks == 0 || call.start_ticks < block->first_ticks)
          block->first_ticks = call.start_ticks;
        Seen(call.start_ticks);
        Seen(call.end_ticks);
        break;
      }
      case INGERO_RECORD_THREAD: {
        const auto t = Load<ingero_thread>(record);
        *tid = t.tid;
        ThreadName& name = threads_[t.tid];
        name.comm = FixedText(t.comm);
        name.first_ticks = t.start_ticks;
        Seen(t.start_ticks);
        break;
      }
      case INGERO_RECORD_KNOT: {
        const auto k = Load<ingero_knot>(record);
        knots_.push_back(
            {k.ticks,
             static_cast<int64_t>(
                 k.mono_ns -
                 static_cast<uint64_t>(stream_.header.monotonic_offset_ns)),
             k.window_ticks});
        Seen(k.ticks);
        break;
      }
      case INGERO_RECORD_NAME: {
        const auto n = Load<ingero_name>(record);
        WireFunction f;
        f.name = TextOf(record.substr(sizeof(n)));
        f.layer = n.layer;
        f.call_class = n.func_class;
        std::copy(std::begin(n.words), std::end(n.words), f.words.begin());
        functions_[n.func] = std::move(f);
        break;
      }
      case INGERO_RECORD_KERNEL: {
        const auto k = Load<ingero_kernel>(record);
        kernels_[k.kernel] = TextOf(record.substr(sizeof(k)));
        break;
      }
      case INGERO_RECORD_LOSS: {
        const auto l = Load<ingero_loss_range>(record);
        if (l.count > kMostCalls)
          Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
        else if (l.first_ticks == 0)
          Count(static_cast<ingero_loss>(l.loss), l.count);
        else
          losses_.push_back({l.count, l.first_ticks,
                             std::max(l.first_ticks, l.last_ticks), l.loss});
        break;
      }
      case INGERO_RECORD_SELF: {
        const auto s = Load<ingero_self_cost>(record);
        self_ticks_ += s.duration_ticks;
        Seen(s.start_ticks);
        break;
      }
      case INGERO_RECORD_PROCESS: {
        const auto p = Load<ingero_process>(record);
        const std::string_view text = record.substr(sizeof(p));
        const size_t nul = text.find('\0');
        exe_ = TextOf(text);
        cmdline_ = nul == text.npos ? "" : TextOf(text.substr(nul + 1));
        break;
      }
      case INGERO_RECORD_COVERAGE: {
        const auto c = Load<ingero_coverage>(record);
        Coverage row{c.way, c.detail, TextOf(record.substr(sizeof(c))),
                     c.count};
        const auto same = std::find_if(
            coverage_.begin(), coverage_.end(), [&](const Coverage& o) {
              return o.way == row.way && o.detail == row.detail &&
                     o.text == row.text;
            });
        // Counts are totals so far.
        if (same == coverage_.end())
          coverage_.push_back(std::move(row));
        else
          same->count = std::max(same->count, row.count);
        break;
      }
      case INGERO_RECORD_NVTX:
        ++ranges_;
        if (const auto at = open_.find(KeyOf<ingero_nvtx>(record, *tid));
            at != open_.end())
          open_.erase(at);
        break;
      case INGERO_RECORD_GPU_ACTIVITY:
        ++gpu_activities_;
        break;
      case INGERO_RECORD_NVTX_BEGIN:
        if (open_.size() < kMostOpen)
          open_.emplace(KeyOf<ingero_nvtx_begin>(record, *tid),
                        TidOf<ingero_nvtx_begin>(record, *tid));
        else
          Count(INGERO_LOSS_RANGES, 1);
        break;
      case INGERO_RECORD_NVTX_NAME: {
        const auto n = Load<ingero_nvtx_name>(record);
        nvtx_names_[n.id] = TextOf(record.substr(sizeof(n)));
        break;
      }
      default:
        if (!KindBytes(Load<ingero_record>(record).kind))
          Count(INGERO_LOSS_UNKNOWN_KIND, 1);
    }
  }
  block->record_bytes = static_cast<uint32_t>(at);
  for (const ingero_inflight& f : block->inflight)
    if (block->live && f.func != 0) Seen(f.start_ticks);
}

// ---- NVTX ranges ----------------------------------------------------------

const std::string& CudaStream::NvtxName(uint32_t id) const {
  static const std::string none;
  const auto it = nvtx_names_.find(id);
  return it == nvtx_names_.end() ? none : it->second;
}

// Where an end may have been lost after a begin, whether that range was open is
// not known.
void CudaStream::DropDoubtfulOpen() {
  uint64_t doubtful_until = cut_ ? UINT64_MAX : 0;
  for (const Loss& l : losses_)
    if (l.loss == INGERO_LOSS_WRITE_FAILED || l.loss == INGERO_LOSS_NO_SLOT ||
        l.loss == INGERO_LOSS_REENTRANT || l.loss == INGERO_LOSS_DAMAGED_BLOCK)
      doubtful_until = std::max(doubtful_until,
                                l.last_ticks == 0 ? UINT64_MAX : l.last_ticks);
  const size_t doubtful = std::erase_if(open_, [&](const auto& range) {
    return range.first.start_ticks <= doubtful_until;
  });
  if (doubtful > 0) Count(INGERO_LOSS_RANGES, doubtful);
}

Status CudaStream::EachRange(
    const std::function<Status(const WireRange&)>& visit) const {
  if (ranges_ == 0 && open_.empty()) return {};
  OpenRanges open = open_;
  uint64_t last = last_ticks_;
  std::string records;
  uint32_t slot = 0, tid = 0;
  bool first = true;
  for (const Block& block : blocks_) {
    // As for calls: a slot's thread is told once, then block after block.
    if (first || block.slot != slot || tid == 0) tid = block.tid;
    first = false;
    slot = block.slot;
    if (!ReadRecords(block, &records).ok()) continue;
    for (size_t at = 0, size; at < records.size(); at += size) {
      const std::string_view rest = std::string_view(records).substr(at);
      size = RecordBytes(rest);
      if (size == 0) break;
      const auto r = Load<ingero_record>(rest);
      if (r.kind == INGERO_RECORD_THREAD) tid = Load<ingero_thread>(rest).tid;
      if (r.kind != INGERO_RECORD_NVTX) continue;
      const auto n = Load<ingero_nvtx>(rest);
      // Its begin may lie in a slot that comes later.
      if (const auto began = open.empty()
                                 ? open.end()
                                 : open.find(KeyOf<ingero_nvtx>(rest, tid));
          began != open.end())
        open.erase(began);
      const WireRange range{n.start_ticks, n.start_ticks + n.duration_ticks,
                            TidOf<ingero_nvtx>(rest, tid), n.name, n.domain,
                            r.flags};
      last = std::max(last, range.end_ticks);
      INGERO_RETURN_IF_ERROR(visit(range));
    }
  }
  for (const auto& [key, began_by] : open)
    last = std::max(last, key.start_ticks);
  for (const auto& [key, began_by] : open)
    INGERO_RETURN_IF_ERROR(visit({key.start_ticks, last, began_by, key.name,
                                  key.domain, key.kind, true}));
  return {};
}

Status CudaStream::EachGpuActivity(
    const std::function<Status(const WireGpuActivity&)>& visit) const {
  if (gpu_activities_ == 0) return {};
  std::string records;
  for (const Block& block : blocks_) {
    if (!ReadRecords(block, &records).ok()) continue;
    for (size_t at = 0, size; at < records.size(); at += size) {
      const std::string_view rest = std::string_view(records).substr(at);
      size = RecordBytes(rest);
      if (size == 0) break;
      const std::string_view record = rest.substr(0, size);
      if (Load<ingero_record>(rest).kind != INGERO_RECORD_GPU_ACTIVITY ||
          !IsSound(record))
        continue;
      const auto a = Load<ingero_gpu_activity>(record);
      INGERO_RETURN_IF_ERROR(visit(
          {a.start_ticks, a.start_ticks + a.duration_ticks, a.call_ticks,
           a.stream, a.kernel, a.bytes, a.device, a.r.flags,
           static_cast<uint8_t>(a.direction)}));
    }
  }
  return {};
}

// ---- calls in order -------------------------------------------------------

struct CallReader::Slot {
  std::vector<const CudaStream::Block*> blocks;  // by sequence
  size_t next_block = 0;
  std::string records;
  size_t at = 0;
  const std::vector<uint32_t>* bad = nullptr;  // of the block being read
  size_t next_bad = 0;
  uint32_t tid = 0, sequence = 0;
  const CudaStream::Block* live = nullptr;  // its calls in flight are due
  std::vector<WireCall> pending;  // nested calls whose outer is not read yet
  std::vector<WireCall> ready;    // sorted; [next_ready..) to be returned
  size_t next_ready = 0;
  bool loaded = false;
  WireCall front;  // sort key: the next call, or a lower bound of it
};

struct CallReader::Later {
  bool operator()(const Slot* a, const Slot* b) const {
    return Before(b->front, a->front);
  }
};

CallReader::CallReader(const CudaStream& stream) : stream_(stream) {
  for (const CudaStream::Block& b : stream.blocks_) {
    if (slots_.empty() || slots_.back()->blocks.back()->slot != b.slot)
      slots_.push_back(std::make_unique<Slot>());
    slots_.back()->blocks.push_back(&b);
  }
  for (auto& slot : slots_) {
    // Not loaded before its first call is due: threads that lived one after
    // another need one block of memory, not one each.
    uint64_t first = 0;
    for (const CudaStream::Block* b : slot->blocks) {
      if (b->first_ticks != 0 && (first == 0 || b->first_ticks < first))
        first = b->first_ticks;
      for (const ingero_inflight& f : b->inflight)
        if (f.func != 0 && (first == 0 || f.start_ticks < first))
          first = f.start_ticks;
    }
    if (first == 0) continue;
    slot->front.start_ticks = first;
    heap_.push_back(slot.get());
  }
  std::make_heap(heap_.begin(), heap_.end(), Later());
}

CallReader::~CallReader() = default;

// Makes slot->ready non-empty, or returns false at its end.
bool CallReader::Fill(Slot* slot) {
  slot->ready.clear();
  slot->next_ready = 0;
  const auto release = [&] {
    std::sort(slot->pending.begin(), slot->pending.end(), Before);
    slot->ready.swap(slot->pending);
    slot->pending.clear();
  };
  while (true) {
    while (slot->at < slot->records.size()) {
      const std::string_view rest =
          std::string_view(slot->records).substr(slot->at);
      const size_t size = RecordBytes(rest);
      if (size == 0) {
        slot->at = slot->records.size();
        break;
      }
      if (slot->next_bad < slot->bad->size() &&
          (*slot->bad)[slot->next_bad] == slot->at) {
        ++slot->next_bad;
        slot->at += size;
        continue;
      }
      slot->at += size;
      const uint8_t kind = Load<ingero_record>(rest).kind;
      if (kind == INGERO_RECORD_THREAD) {
        const uint32_t tid = Load<ingero_thread>(rest).tid;
        const bool other = tid != slot->tid;
        slot->tid = tid;
        if (other && !slot->pending.empty()) {
          release();
          return true;
        }
      } else if (kind == INGERO_RECORD_CALL) {
        slot->pending.push_back(DecodeCall(rest.substr(0, size), slot->tid));
        if (slot->pending.back().depth == 0 ||
            slot->pending.size() >= kMaxPending) {
          release();
          return true;
        }
      }
    }
    if (slot->live != nullptr) {
      // The block's records are read: what is in flight began after every
      // finished outermost call, and before what is nested in it.
      for (uint8_t depth = 0; depth < slot->live->inflight.size(); ++depth) {
        const ingero_inflight& f = slot->live->inflight[depth];
        if (f.func == 0 || f.func > UINT16_MAX) continue;
        WireCall call;
        call.start_ticks = call.end_ticks = f.start_ticks;
        call.func = static_cast<uint16_t>(f.func);
        call.depth = depth;
        call.tid = slot->live->tid;
        call.no_end = true;
        slot->pending.push_back(call);
      }
      slot->live = nullptr;
    }
    if (slot->next_block == slot->blocks.size()) {
      if (slot->pending.empty()) return false;
      release();
      return true;
    }
    const CudaStream::Block& b = *slot->blocks[slot->next_block++];
    slot->at = 0;
    slot->bad = &b.bad;
    slot->next_bad = 0;
    if (!stream_.ReadRecords(b, &slot->records).ok()) slot->records.clear();
    // A slot's records go on from block to block; after a gap (ring buffer,
    // damage) the block's own word counts.
    if (slot->tid == 0 || b.sequence != slot->sequence + 1) slot->tid = b.tid;
    slot->sequence = b.sequence;
    if (b.live) slot->live = &b;
  }
}

bool CallReader::Next(WireCall* call) {
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), Later());
    Slot* slot = heap_.back();
    const bool was_loaded = slot->loaded;
    if (slot->next_ready >= slot->ready.size() && !Fill(slot)) {
      heap_.pop_back();
      continue;
    }
    if (!was_loaded) {
      slot->loaded = true;
      slot->front = slot->ready[slot->next_ready];
      std::push_heap(heap_.begin(), heap_.end(), Later());
      continue;
    }
    *call = slot->ready[slot->next_ready++];
    if (slot->next_ready < slot->ready.size() || Fill(slot)) {
      slot->front = slot->ready[slot->next_ready];
      std::push_heap(heap_.begin(), heap_.end(), Later());
    } else {
      heap_.pop_back();
    }
    return true;
  }
  return false;
}

}  // namespace ingero::merge
