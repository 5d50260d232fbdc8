// SPDX-License-Identifier: Apache-2.0
// Processes and threads: one entry a life. A pid or tid that is used again is
// another life, so the key is always (number, moment), never the bare number.
//
// Built from the companion's task records in time order, completed from the
// switches and from CUDA streams. The newest life that began at or before a
// moment is the one that a number means then.
#ifndef INGERO_MERGE_LIVES_H_
#define INGERO_MERGE_LIVES_H_

#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/trace.h"
#include "base/tables.h"
#include "wire/wire.h"

namespace ingero::merge {

// tid or pid -> vector of indices, by begin. Direct for what Linux can hand
// out (4 Mi), hashed for what only damage can.
class IdTable {
 public:
  std::vector<uint32_t>& at(uint32_t id);
  const std::vector<uint32_t>* find(uint32_t id) const;

 private:
  static constexpr uint32_t kDirect = 1u << 22;
  std::vector<uint32_t> direct_;  // 1 + position in lists_
  std::unordered_map<uint32_t, uint32_t> hashed_;
  std::vector<std::vector<uint32_t>> lists_;
};

class Lives {
 public:
  using ProcessIndex = analysis::ProcessIndex;
  using ThreadIndex = analysis::ThreadIndex;

  // One row of task_table, in time order.
  void OnTask(std::span<const uint64_t> row, std::string_view text);
  // The thread that `tid` is now (after all rows up to t); made where it was
  // never announced.
  ThreadIndex Current(uint32_t tid, uint32_t tgid, Ns t);
  void MarkKernel(ThreadIndex thread);
  // Its switches are all recorded, although not everybody's are.
  void MarkInScope(ThreadIndex thread) {
    process_more_[threads_[thread].process].in_scope = true;
  }
  // Not everybody's were recorded. After the last row.
  void LimitScope() {
    for (size_t i = 0; i < processes_.size(); ++i)
      processes_[i].outside_scope = !process_more_[i].in_scope;
  }
  void Seen(ThreadIndex thread, Ns t) {
    analysis::Process& p = processes_[threads_[thread].process];
    if (t > p.last_seen) p.last_seen = t;
  }

  // The process of a CUDA stream: by (namespace, pid in it, start), else by
  // pid and start, else a new one. *joined: known to the companion.
  ProcessIndex ForStream(const ingero_stream_header& header, Interval span,
                         bool* joined);
  // A thread of that process as the process numbers it.
  ThreadIndex ForStreamThread(ProcessIndex process, uint32_t ns_tid, Ns t);

  // The process that host pid `pid` meant at t; kNone = none that is known.
  ProcessIndex At(uint32_t pid, Ns t) const;

  // The process that `pid` of this pid namespace meant at t; kNone = none that
  // is known. Looks at all of them.
  ProcessIndex ForPid(uint64_t pid_namespace, uint32_t pid, Ns t) const;

  // Parents, main threads, own processes. After the last row.
  void Finish();

  std::vector<analysis::Process>& processes() { return processes_; }
  std::vector<analysis::Thread>& threads() { return threads_; }
  Ns thread_begin(ThreadIndex i) const { return more_[i].begin; }
  // Whether pid and tids are those of the root namespace.
  bool host_ids(ProcessIndex i) const { return process_more_[i].host_ids; }

 private:
  struct ThreadMore {
    Ns begin;
    uint32_t ns_tid = 0;
  };
  struct ProcessMore {
    uint64_t pid_namespace = 0;
    uint32_t parent_pid = 0;
    bool host_ids = false;
    bool in_scope = false;
    std::vector<ThreadIndex> threads;
    size_t in_stream_map = 0;  // of threads, those in by_stream_tid_
  };
  ProcessIndex NewProcess(uint32_t pid, Ns t, bool host_ids);
  ThreadIndex NewThread(uint32_t tid, ProcessIndex process, Ns t);
  ProcessIndex CurrentProcess(uint32_t pid);  // kNone = none yet
  ThreadIndex CurrentThread(uint32_t tid);

  std::vector<analysis::Process> processes_;
  std::vector<ProcessMore> process_more_;
  std::vector<analysis::Thread> threads_;
  std::vector<ThreadMore> more_;
  IdTable by_pid_, by_tid_;  // host numbers
  std::vector<ProcessIndex> without_host_ids_;
  // (process, tid as the process sees it) -> lives, by begin
  std::unordered_map<uint64_t, std::vector<ThreadIndex>> by_stream_tid_;
};

}  // namespace ingero::merge

#endif  // INGERO_MERGE_LIVES_H_
