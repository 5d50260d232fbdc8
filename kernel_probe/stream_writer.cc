// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/stream_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/stream_header.h"
#include "base/tables.h"
#include "kernel_probe/clock.h"

namespace ingero::kernel_probe {
namespace {

// A buffer that grew beyond this is not kept, and no more than so many: what a
// burst took is given back after it.
constexpr size_t kMaxSpareValues = 1 << 18, kMaxSpares = 32;

// Rows of losses that wait for room on the disk, two a second and CPU at most.
constexpr size_t kMaxLossBlocks = 1024;

uint64_t BytesOf(const Rows& rows) {
  uint64_t bytes = rows.values.size() * sizeof(uint64_t);
  for (const std::string& t : rows.texts) bytes += sizeof(t) + t.size();
  return bytes;
}

}  // namespace

ingero_stream_header MakeStreamHeader() {
  return ingero::MakeStreamHeader(INGERO_MAGIC_KERNEL, "ingero-kprobe");
}

StreamWriter::StreamWriter(Fd file, uint64_t queue_bytes)
    : file_(std::move(file)), queue_bytes_(queue_bytes) {}

StreamWriter::~StreamWriter() {
  if (thread_.joinable()) (void)Finish();
}

Status StreamWriter::WriteHeader(const ingero_stream_header& header) {
  std::string bytes(INGERO_HEADER_BYTES, '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  INGERO_RETURN_IF_ERROR(WriteAll(file_.get(), bytes).In("stream file"));
  bytes_written_ = bytes.size();
  return {};
}

void StreamWriter::Start() {
  thread_ = std::thread([this] { Run(); });
}

Rows StreamWriter::Spare(const TableSchema& schema) {
  Rows rows;
  spares_.try_dequeue(rows);
  rows.Clear();
  rows.schema = &schema;
  return rows;
}

bool StreamWriter::Push(Rows* rows, uint32_t owner, bool always) {
  const uint64_t bytes = BytesOf(*rows);
  if (!always && queued_bytes_.load() + bytes > queue_bytes_) return false;
  queued_bytes_ += bytes;
  queue_.enqueue(Block{std::move(*rows), owner, false});
  return true;
}

Status StreamWriter::Finish() {
  queue_.enqueue(Block{{}, 0, true});
  thread_.join();
  // Written or not, it goes with this process.
  struct stat st;
  if (fstat(file_.get(), &st) == 0 && st.st_nlink == 0)
    return Status::Error(
        "was deleted while it was recorded to: this recording is lost");
  return last_write_;
}

void StreamWriter::Run() {
  bool stop = false;
  for (;;) {
    Block block;
    // The queue keeps each pusher's order, not the order among them: what
    // others pushed before the stop may come after it.
    if (!stop)
      queue_.wait_dequeue(block);
    else if (!queue_.try_dequeue(block))
      break;
    if (block.stop) {
      stop = true;
      continue;
    }
    queued_bytes_ -= BytesOf(block.rows);
    if (block.rows.size() > 0) Write(block);
    if (block.rows.values.capacity() <= kMaxSpareValues &&
        spares_.size_approx() < kMaxSpares)
      spares_.enqueue(std::move(block.rows));
  }
  if (failed_unreported_ > 0 || !losses_.empty()) Write(Block());
  WriteLossesToHeader();
}

void StreamWriter::Write(const Block& block) {
  coded_.clear();
  if (failed_unreported_ > 0) {
    Rows losses;
    losses.schema = &loss_table::kSchema;
    std::array<uint64_t, loss_table::kCount> row{};
    row[loss_table::kT] = failed_first_ns_;
    row[loss_table::kEndT] = failed_last_ns_;
    row[loss_table::kLoss] = INGERO_LOSS_WRITE_FAILED;
    row[loss_table::kCountLost] = failed_unreported_;
    losses.Append(row);
    EncodeBlock(losses, 0, &coded_);
  }
  for (const Block& losses : losses_)
    EncodeBlock(losses.rows, losses.owner, &coded_);
  if (block.rows.size() > 0) EncodeBlock(block.rows, block.owner, &coded_);
  last_write_ = WriteAll(file_.get(), coded_);
  if (last_write_.ok()) {
    bytes_written_ += coded_.size();
    failed_unreported_ = 0;
    losses_.clear();
  } else {
    // Cut off the half block. A pipe (in tests) cannot be cut; then the reader
    // sees a torn tail.
    const auto end = static_cast<off_t>(bytes_written_.load());
    if (ftruncate(file_.get(), end) == 0) lseek(file_.get(), end, SEEK_SET);
    OnFailure(block);
  }
}

void StreamWriter::OnFailure(const Block& block) {
  if (block.rows.size() == 0) return;
  if (block.rows.schema == &loss_table::kSchema) {
    if (losses_.size() < kMaxLossBlocks) {
      losses_.push_back({block.rows, block.owner, false});
      return;
    }
    for (size_t r = 0; r < block.rows.size(); ++r)
      untold_[static_cast<uint32_t>(block.rows.at(r, loss_table::kLoss))] +=
          block.rows.at(r, loss_table::kCountLost);
    return;
  }
  const uint64_t now = NowNs();
  if (failed_unreported_ == 0) failed_first_ns_ = now;
  for (size_t r = 0; r < block.rows.size(); ++r)
    failed_first_ns_ = std::min(failed_first_ns_, block.rows.at(r, 0));
  failed_last_ns_ = now;
  failed_unreported_ += block.rows.size();
  rows_failed_of_[block.rows.schema->id] += block.rows.size();
  rows_failed_ += block.rows.size();
}

void StreamWriter::WriteLossesToHeader() {
  untold_[INGERO_LOSS_WRITE_FAILED] += failed_unreported_;
  for (const Block& losses : losses_)
    for (size_t r = 0; r < losses.rows.size(); ++r)
      untold_[static_cast<uint32_t>(losses.rows.at(r, loss_table::kLoss))] +=
          losses.rows.at(r, loss_table::kCountLost);
  for (const auto& [loss, count] : untold_)
    if (count > 0)
      (void)WriteAllAt(file_.get(),
                       {reinterpret_cast<const char*>(&count), sizeof(count)},
                       offsetof(ingero_stream_header, lost) +
                           loss * sizeof(count));
}

}  // namespace ingero::kernel_probe
