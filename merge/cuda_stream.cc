// SPDX-License-Identifier: Apache-2.0
#include "merge/cuda_stream.h"

#include <algorithm>
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

// Smallest size of a kind that this version decodes; 0 = skipped knowingly;
// nullopt = a newer kind.
std::optional<size_t> KindBytes(uint8_t kind) {
  switch (kind) {
#define X(id, value, type) \
  case INGERO_RECORD_##id: \
    return sizeof(type);
    INGERO_RECORDS(X)
#undef X
    case INGERO_RECORD_GPU_ACTIVITY:
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
  return size;
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

void CudaStream::Count(ingero_loss loss, uint64_t count) {
  for (Loss& l : losses_) {
    if (l.loss == loss && l.first_ticks == 0) {
      l.count += count;
      return;
    }
  }
  losses_.push_back({count, 0, 0, loss});
}

void CudaStream::Seen(uint64_t ticks) {
  if (ticks == 0) return;
  if (first_ticks_ == 0 || ticks < first_ticks_) first_ticks_ = ticks;
  last_ticks_ = std::max(last_ticks_, ticks);
}

Result<std::unique_ptr<CudaStream>> CudaStream::Open(const std::string& path) {
  INGERO_ASSIGN_OR_RETURN(OpenStream stream, OpenStreamFile(path));
  if (stream.kernel()) return Status::Error(path + ": not a CUDA stream");
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
  std::set<std::pair<uint32_t, uint32_t>> written;  // (slot, sequence) of DATA
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
    for (uint64_t i = 1; i < blocks; ++i) {
      ingero_block_header h;
      INGERO_ASSIGN_OR_RETURN(const bool whole, read_header(i, &h));
      if (!whole) {
        if (!copying) Count(INGERO_LOSS_TORN_TAIL, 1);
        continue;
      }
      if (h.magic == 0) {
        // Reserved and never written: all zeros, or its header was damaged.
        if (!copying && (h.cursor != 0 || h.type != 0))
          Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
        continue;
      }
      Block b;
      b.index = i;
      b.slot = h.slot;
      b.tid = h.tid;
      b.sequence = static_cast<uint32_t>(h.cursor >> 32);
      b.live = h.type == INGERO_BLOCK_LIVE;
      b.record_bytes = static_cast<uint32_t>(h.cursor);
      if (h.magic != INGERO_MAGIC_BLOCK ||
          (h.type != INGERO_BLOCK_LIVE && h.type != INGERO_BLOCK_DATA) ||
          b.record_bytes > room || b.record_bytes % 8 != 0 ||
          (b.live && b.slot != i)) {
        if (!copying) Count(INGERO_LOSS_DAMAGED_BLOCK, 1);
        continue;
      }
      std::memcpy(b.inflight.data(), h.inflight, sizeof(h.inflight));
      if (!b.live) {
        if (copying) continue;
        if (written.insert({b.slot, b.sequence}).second)
          blocks_.push_back(std::move(b));
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
      // Its calls are in the DATA twin; what is in flight is only here.
      b.record_bytes = 0;
      b.copy = nullptr;
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
  for (Block& b : blocks_) {
    hash = Mix(hash, uint64_t{b.sequence} << 32 | b.record_bytes);
    hash = Mix(hash, b.index << 1 | (b.live ? 1 : 0));
    for (const ingero_inflight& f : b.inflight)
      hash = Mix(Mix(hash, f.start_ticks), f.func);
    const uint32_t claimed = b.record_bytes;
    INGERO_RETURN_IF_ERROR(ReadRecords(b, &records));
    if (records.size() < claimed) Count(INGERO_LOSS_TORN_TAIL, 1);
    Scan(&b, records);
  }
  fingerprint_ = hash;

  // The header counts all losses; records give some of them a time range.
  for (uint32_t i = 1; i < INGERO_LOSS_MAX; ++i) {
    uint64_t ranged = 0;
    for (const Loss& l : losses_)
      if (l.loss == i && l.first_ticks != 0) ranged += l.count;
    if (stream_.header.lost[i] > ranged && FindLoss(i) != nullptr)
      Count(static_cast<ingero_loss>(i), stream_.header.lost[i] - ranged);
  }
  return {};
}

void CudaStream::Scan(Block* block, std::string_view records) {
  size_t at = 0;
  if (block->tid != 0) threads_.try_emplace(block->tid);
  while (at < records.size()) {
    const std::string_view rest = records.substr(at);
    const size_t size = RecordBytes(rest);
    if (size == 0) {
      Count(block->live ? INGERO_LOSS_TORN_TAIL : INGERO_LOSS_DAMAGED_BLOCK, 1);
      break;
    }
    const std::string_view record = rest.substr(0, size);
    at += size;
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
        if (l.first_ticks == 0)
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
        Coverage row{c.way, TextOf(record.substr(sizeof(c))), c.count};
        const auto same = std::find_if(
            coverage_.begin(), coverage_.end(), [&](const Coverage& o) {
              return o.way == row.way && o.text == row.text;
            });
        if (same == coverage_.end())
          coverage_.push_back(std::move(row));
        else
          same->count += row.count;
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

// ---- calls in order -------------------------------------------------------

struct CallReader::Slot {
  std::vector<const CudaStream::Block*> blocks;  // by sequence
  size_t next_block = 0;
  std::string records;
  size_t at = 0;
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
