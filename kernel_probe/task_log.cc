// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/task_log.h"

#include <cstring>
#include <string>
#include <unordered_set>

#include "base/tables.h"
#include "kernel_probe/clock.h"
#include "kernel_probe/proc.h"

namespace ingero::kernel_probe {
namespace {

constexpr size_t kBlockRows = 2048;
constexpr uint64_t kFlushNs = 500'000'000;
// In 100 ms at most 16 looks, and none after 10 ms of them.
constexpr uint64_t kLookNs = 100'000'000, kLooksTakeNs = 10'000'000;
constexpr size_t kLooks = 16;
constexpr uint64_t kLastLooksNs = 1'000'000'000;

// Whose exe and command line are worth reading: a fork has its parent's.
bool HasText(const ingero_ring_task& e) {
  return e.tid == e.tgid && (e.event == INGERO_TASK_EVENT_EXISTING ||
                             e.event == INGERO_TASK_EVENT_EXEC);
}

}  // namespace

std::vector<ingero_ring_task> WithoutBorn(
    std::vector<ingero_ring_task> existing,
    const std::vector<ingero_ring_task>& events) {
  std::unordered_set<uint32_t> born;
  for (const ingero_ring_task& e : events)
    if (e.event == INGERO_TASK_EVENT_FORK) born.insert(e.tid);
  std::erase_if(existing, [&](const ingero_ring_task& e) {
    return born.contains(e.tid);
  });
  return existing;
}

void TaskLog::Start() {
  thread_ = std::thread([this] { Run(); });
}

bool TaskLog::Add(const ingero_ring_task& event) {
  if (queue_.size_approx() >= kMaxQueued) return false;
  return queue_.enqueue(event);
}

void TaskLog::Finish() {
  finish_ = true;
  queue_.enqueue(ingero_ring_task{});  // wakes the thread; kind 0 is skipped
  thread_.join();
}

void TaskLog::Run() {
  rows_ = writer_->Spare(task_table::kSchema);
  samples_ = writer_->Spare(sample_table::kSchema);
  uint64_t flushed_ns = NowNs(), looked_ns = flushed_ns;
  ingero_ring_task events[64];
  for (;;) {
    const bool last = finish_;
    const size_t n =
        last ? queue_.try_dequeue_bulk(events, std::size(events))
             : queue_.wait_dequeue_bulk_timed(
                   events, std::size(events),
                   std::chrono::nanoseconds(kFlushNs));
    for (size_t i = 0; i < n; ++i) Append(events[i]);
    const uint64_t now = NowNs();
    if (now - looked_ns >= kLookNs) {
      for (size_t i = 0; i < kLooks && NowNs() - now < kLooksTakeNs; ++i)
        cuda_.Look(now, 1, &samples_);
      looked_ns = now;
    }
    if (rows_.size() >= kBlockRows || now - flushed_ns >= kFlushNs) {
      Flush();
      FlushSamples();
      flushed_ns = now;
    }
    // Nothing is added once finish_ is set.
    if (last && n == 0) break;
  }
  Flush();
  cuda_.LookAtAll(NowNs() + kLastLooksNs, &samples_);
  FlushSamples();
}

void TaskLog::Append(const ingero_ring_task& e) {
  if (e.kind != INGERO_RING_TASK) return;
  cuda_.OnTask(e, NowNs());
  std::string text(e.comm, strnlen(e.comm, sizeof(e.comm)));
  if (HasText(e)) {
    const std::string more = ExeAndCommand(e.tgid, e.start_ns);
    if (!more.empty()) (text += '\0') += more;
  }
  // In the order of task_table::Col.
  const uint64_t row[] = {e.t_ns,
                          e.event,
                          e.tid,
                          e.tgid,
                          e.parent_tid,
                          e.parent_tgid,
                          e.start_ns,
                          e.ns_tid,
                          e.ns_tgid,
                          e.pid_namespace,
                          e.cgroup_id,
                          static_cast<uint64_t>(e.code)};
  static_assert(std::size(row) == task_table::kCount);
  rows_.Append(row, text);
}

void TaskLog::Flush() {
  if (rows_.size() == 0) return;
  written_ += rows_.size();
  // Few and precious: they go in over the bound, which the queue's own keeps
  // from growing without end.
  (void)writer_->Push(&rows_, 0, /*always=*/true);
  rows_ = writer_->Spare(task_table::kSchema);
}

void TaskLog::FlushSamples() {
  if (samples_.size() == 0) return;
  (void)writer_->Push(&samples_, 0, /*always=*/true);
  samples_ = writer_->Spare(sample_table::kSchema);
}

}  // namespace ingero::kernel_probe
