// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stream_builder.h"

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/stream_frame.h"

namespace ingero::testing {
namespace {

uint64_t NextStreamId() {
  static uint64_t id = 1000;
  return ++id;
}

ingero_stream_header NewHeader(uint64_t magic, int64_t created_ns) {
  auto h = Zeroed<ingero_stream_header>();
  h.magic = magic;
  h.major = INGERO_WIRE_MAJOR;
  h.minor = INGERO_WIRE_MINOR;
  h.header_bytes = INGERO_HEADER_BYTES;
  h.clock = INGERO_CLOCK_MONOTONIC;
  h.stream_id = NextStreamId();
  FillBoot(&h);
  h.created_mono_ns = static_cast<uint64_t>(created_ns);
  h.created_real_ns = 1'796'000'000'000'000'000u +
                      static_cast<uint64_t>(created_ns);
  h.clock_ticks_per_s = 100;
  h.pid_namespace = 4026531836;
  CopyText(h.host, "testhost");
  CopyText(h.tool_version, "0.1.0");
  return h;
}

}  // namespace

void FillBoot(ingero_stream_header* header) {
  for (int i = 0; i < 16; ++i) header->boot_id[i] = static_cast<__u8>(0xa0 + i);
}

TempDir::TempDir() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "ingero-test-XXXXXX").string();
  path_ = mkdtemp(pattern.data());
}
TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

void WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << bytes;
}

CudaStreamBuilder::CudaStreamBuilder(uint32_t pid, int64_t created_ns,
                                     uint64_t start_ns)
    : header(NewHeader(INGERO_MAGIC_CUDA, created_ns)) {
  header.pid = pid;
  header.block_bytes = INGERO_BLOCK_BYTES;
  header.start_clock_ticks = start_ns / 10'000'000;
  header.exited = 1;
  CopyText(header.comm, "python3");
}

CudaStreamBuilder::Slot& CudaStreamBuilder::SlotOf(uint32_t tid) {
  Slot& slot = slots_[tid];
  if (slot.block == 0) {
    slot.block = next_block_++;
    slot.tid = tid;
    Thread(tid, header.comm);
  }
  return slot;
}

void CudaStreamBuilder::Append(uint32_t tid, std::string record) {
  Slot& slot = SlotOf(tid);
  if (slot.records.size() + record.size() > kMostRecordBytesOfBlock)
    WriteOut(tid);
  slot.records += record;
}

void CudaStreamBuilder::Raw(uint32_t tid, const std::string& record) {
  Append(tid, record);
}

void CudaStreamBuilder::Thread(uint32_t tid, const std::string& comm) {
  auto t = Zeroed<ingero_thread>();
  t.tid = tid;
  CopyText(t.comm, comm);
  Append(tid, FrameRecord(INGERO_RECORD_THREAD, 0, t));
}

void CudaStreamBuilder::Name(uint16_t func, const std::string& name, int layer,
                             int call_class, std::vector<uint8_t> words) {
  auto n = Zeroed<ingero_name>();
  n.func = func;
  n.layer = static_cast<__u8>(layer);
  n.func_class = static_cast<__u8>(call_class);
  for (size_t i = 0; i < words.size(); ++i) n.words[i] = words[i];
  Append(header.pid, FrameRecord(INGERO_RECORD_NAME, 0, n, name + '\0'));
}

void CudaStreamBuilder::Kernel(uint64_t kernel, const std::string& name) {
  auto k = Zeroed<ingero_kernel>();
  k.kernel = kernel;
  Append(header.pid, FrameRecord(INGERO_RECORD_KERNEL, 0, k, name + '\0'));
}

void CudaStreamBuilder::Call(uint32_t tid, uint16_t func,
                             const CallSpec& call) {
  auto c = Zeroed<ingero_call>();
  c.func = func;
  c.result = call.result;
  c.start_ticks = call.start;
  c.duration_lo = static_cast<__u32>(call.duration);
  c.duration_hi = static_cast<__u16>(call.duration >> 32);
  c.depth = call.depth;
  std::string words;
  for (uint64_t w : call.words) words += BytesOf(w);
  Append(tid, FrameRecord(INGERO_RECORD_CALL, call.flags, c, words));
}

void CudaStreamBuilder::Knot(uint32_t tid, uint64_t ticks, uint64_t mono_ns,
                             uint32_t window) {
  auto k = Zeroed<ingero_knot>();
  k.ticks = ticks;
  k.mono_ns = mono_ns;
  k.window_ticks = window;
  Append(tid, FrameRecord(INGERO_RECORD_KNOT, 0, k));
}

void CudaStreamBuilder::Loss(uint32_t tid, uint32_t loss, uint64_t count,
                             uint64_t first, uint64_t last) {
  auto l = Zeroed<ingero_loss_range>();
  l.loss = loss;
  l.count = count;
  l.first_ticks = first;
  l.last_ticks = last;
  Append(tid, FrameRecord(INGERO_RECORD_LOSS, 0, l));
}

void CudaStreamBuilder::Coverage(uint16_t way, const std::string& text,
                                 uint64_t count, uint16_t detail) {
  auto c = Zeroed<ingero_coverage>();
  c.way = way;
  c.detail = detail;
  c.count = count;
  Append(header.pid, FrameRecord(INGERO_RECORD_COVERAGE, 0, c, text + '\0'));
}

void CudaStreamBuilder::Process(const std::string& exe,
                                const std::string& cmdline) {
  auto p = Zeroed<ingero_process>();
  const std::string text = exe + '\0' + cmdline + '\0';
  p.text_bytes = static_cast<__u32>(text.size());
  Append(header.pid, FrameRecord(INGERO_RECORD_PROCESS, 0, p, text));
}

void CudaStreamBuilder::InFlight(uint32_t tid, uint8_t depth, uint16_t func,
                                 uint64_t start) {
  auto f = Zeroed<ingero_inflight>();
  f.func = func;
  f.start_ticks = start;
  SlotOf(tid).inflight[depth] = f;
}

void CudaStreamBuilder::WriteOut(uint32_t tid, bool keep_live) {
  Slot& slot = SlotOf(tid);
  data_[next_block_++] = FrameDataBlock(slot.block, slot.sequence, slot.tid,
                                        slot.records, checked);
  if (keep_live) return;
  slot.records.clear();
  ++slot.sequence;
}

void CudaStreamBuilder::Reuse(uint32_t old_tid, uint32_t tid,
                              const std::string& comm) {
  slots_[tid] = std::move(slots_[old_tid]);
  slots_.erase(old_tid);
  slots_[tid].tid = tid;
  Thread(tid, comm);
}

std::string CudaStreamBuilder::Bytes() const {
  std::string bytes(size_t{next_block_} * INGERO_BLOCK_BYTES, '\0');
  ingero_stream_header h = header;
  h.blocks_reserved = next_block_;
  if (checked) SealStreamHeader(&h);
  std::memcpy(bytes.data(), &h, sizeof(h));
  for (const auto& [index, block] : data_)
    bytes.replace(size_t{index} * INGERO_BLOCK_BYTES, block.size(), block);
  for (const auto& [tid, slot] : slots_) {
    auto b = Zeroed<ingero_block_header>();
    b.magic = INGERO_MAGIC_BLOCK;
    b.type = INGERO_BLOCK_LIVE;
    b.state = INGERO_SLOT_OWNED;
    b.slot = slot.block;
    b.tid = slot.tid;
    b.cursor = uint64_t{slot.sequence} << 32 | slot.records.size();
    for (const auto& [depth, f] : slot.inflight) b.inflight[depth] = f;
    const std::string block = BytesOf(b) + slot.records;
    bytes.replace(size_t{slot.block} * INGERO_BLOCK_BYTES, block.size(), block);
  }
  return bytes;
}

KernelStreamBuilder::KernelStreamBuilder(int64_t created_ns)
    : header(NewHeader(INGERO_MAGIC_KERNEL, created_ns)) {
  CopyText(header.comm, "ingero-kprobe");
  header.pid = 4000000;
  header.exited = 1;
}

Rows& KernelStreamBuilder::RowsOf(const TableSchema& schema, uint32_t owner) {
  Rows& rows = rows_[{schema.id, owner}];
  rows.schema = &schema;
  if (rows.size() >= 4096) {
    EncodeBlock(rows, owner, &blocks_);
    rows.Clear();
  }
  return rows;
}

void KernelStreamBuilder::Switch(uint32_t cpu, const SwitchSpec& s) {
  const uint64_t row[] = {s.t,          s.prev_tid,
                          s.prev_tgid,  s.next_tid,
                          s.next_tgid,  s.flags,
                          s.prev_state, static_cast<uint64_t>(s.prev_syscall + 1),
                          0,            0,
                          s.wake,       s.waker_tid,
                          s.waker_tgid, s.pages,
                          0,            0,
                          0,            s.kernel_us,
                          s.throttled_ns};
  static_assert(std::size(row) == switch_table::kCount);
  RowsOf(switch_table::kSchema, cpu).Append(row);
}

void KernelStreamBuilder::Task(const TaskSpec& t) {
  const uint64_t row[] = {t.t,
                          static_cast<uint64_t>(t.event),
                          t.tid,
                          t.tgid,
                          t.parent_tgid,
                          t.parent_tgid,
                          t.start_ns,
                          t.ns_tid != 0 ? t.ns_tid : t.tid,
                          t.ns_tgid != 0 ? t.ns_tgid : t.tgid,
                          t.pid_namespace,
                          t.cgroup_id,
                          static_cast<uint64_t>(t.code)};
  static_assert(std::size(row) == task_table::kCount);
  RowsOf(task_table::kSchema, 0).Append(row, t.text);
}

void KernelStreamBuilder::Sample(uint64_t t, Metric metric, uint64_t instance,
                                 uint64_t value, const std::string& text) {
  const uint64_t row[] = {t, static_cast<uint64_t>(metric), instance, value};
  RowsOf(sample_table::kSchema, 0).Append(row, text);
}

void KernelStreamBuilder::Knot(uint64_t mono_ns, uint64_t tsc,
                               uint64_t window) {
  const uint64_t row[] = {mono_ns, tsc, window, 0};
  RowsOf(knot_table::kSchema, 0).Append(row);
}

void KernelStreamBuilder::Loss(uint32_t cpu, uint64_t t, uint64_t end,
                               uint64_t loss, uint64_t count) {
  const uint64_t row[] = {t, end, loss, count};
  RowsOf(loss_table::kSchema, cpu).Append(row);
}

void KernelStreamBuilder::Flush() {
  for (auto& [key, rows] : rows_) {
    if (rows.size() == 0) continue;
    EncodeBlock(rows, key.second, &blocks_);
    rows.Clear();
  }
}

std::string KernelStreamBuilder::Bytes() {
  Flush();
  std::string bytes(INGERO_HEADER_BYTES, '\0');
  ingero_stream_header h = header;
  SealStreamHeader(&h);
  std::memcpy(bytes.data(), &h, sizeof(h));
  return bytes + blocks_;
}

}  // namespace ingero::testing
