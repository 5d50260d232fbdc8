// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/cuda_watch.h"

#include <algorithm>

#include "base/cuda_process.h"
#include "base/tables.h"
#include "kernel_probe/clock.h"

namespace ingero::kernel_probe {
namespace {

constexpr uint64_t kFirstLookNs = 1'000'000'000;

}  // namespace

void CudaWatch::OnTask(const ingero_ring_task& e, uint64_t now_ns) {
  if (e.tid != e.tgid) return;
  if (e.event == INGERO_TASK_EVENT_EXEC || e.event == INGERO_TASK_EVENT_EXIT)
    Forget(e.tgid);
  switch (e.event) {
    case INGERO_TASK_EVENT_FORK:
    case INGERO_TASK_EVENT_EXEC:
    case INGERO_TASK_EVENT_EXISTING: {
      const uint64_t life = ++lives_;
      watched_[e.tgid] = {now_ns, life};
      // What was there before may be old, and is due at once.
      const bool old = e.event == INGERO_TASK_EVENT_EXISTING;
      due_.push({old ? now_ns : now_ns + kFirstLookNs, e.tgid, life});
      break;
    }
    case INGERO_TASK_EVENT_EXIT:
      watched_.erase(e.tgid);
      break;
  }
}

void CudaWatch::Forget(uint32_t pid) {
  const auto it = found_.find(pid);
  if (it == found_.end()) return;
  --(it->second ? with_shim_ : without_shim_);
  found_.erase(it);
}

void CudaWatch::Look(uint64_t now_ns, size_t most, Rows* rows) {
  while (most > 0 && !due_.empty() && due_.top().t_ns <= now_ns) {
    const Due due = due_.top();
    due_.pop();
    const auto it = watched_.find(due.pid);
    if (it == watched_.end() || it->second.life != due.life) continue;
    --most;
    if (!LookAt(due.pid, now_ns, rows)) {
      watched_.erase(it);
      continue;
    }
    const uint64_t age =
        std::max(now_ns - it->second.begin_ns, kFirstLookNs);
    due_.push({now_ns + age, due.pid, due.life});
  }
}

void CudaWatch::LookAtAll(uint64_t deadline_ns, Rows* rows) {
  for (auto it = watched_.begin(); it != watched_.end();) {
    const uint64_t now = NowNs();
    if (now >= deadline_ns) return;
    if (LookAt(it->first, now, rows))
      ++it;
    else
      it = watched_.erase(it);
  }
}

bool CudaWatch::LookAt(uint32_t pid, uint64_t now_ns, Rows* rows) {
  const CudaMaps maps = ReadCudaMaps(pid);
  if (!maps.any) return false;
  if (maps.library.empty()) return true;
  const uint64_t row[] = {now_ns, static_cast<uint64_t>(Metric::kCudaProcess),
                          pid, CudaProcessBits(pid, maps)};
  static_assert(std::size(row) == sample_table::kCount);
  rows->Append(row, maps.library);
  Forget(pid);
  found_[pid] = maps.shim;
  ++(maps.shim ? with_shim_ : without_shim_);
  return false;
}

}  // namespace ingero::kernel_probe
