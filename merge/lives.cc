// SPDX-License-Identifier: Apache-2.0
#include "merge/lives.h"

#include <algorithm>

#include "merge/stream.h"

namespace ingero::merge {

using analysis::kNone;
using analysis::Process;
using analysis::ProcessIndex;
using analysis::Thread;
using analysis::ThreadIndex;

namespace {

constexpr uint32_t kKthreadd = 2;

Ns TimeOf(uint64_t v) { return Ns(static_cast<int64_t>(v)); }

}  // namespace

std::vector<uint32_t>& IdTable::at(uint32_t id) {
  uint32_t* position;
  if (id < kDirect) {
    if (id >= direct_.size())
      direct_.resize(std::max<size_t>(id + 1, direct_.size() * 3 / 2));
    position = &direct_[id];
  } else {
    position = &hashed_[id];
  }
  if (*position == 0) {
    lists_.emplace_back();
    *position = static_cast<uint32_t>(lists_.size());
  }
  return lists_[*position - 1];
}

const std::vector<uint32_t>* IdTable::find(uint32_t id) const {
  uint32_t position = 0;
  if (id < kDirect) {
    if (id < direct_.size()) position = direct_[id];
  } else if (const auto it = hashed_.find(id); it != hashed_.end()) {
    position = it->second;
  }
  return position == 0 ? nullptr : &lists_[position - 1];
}

ProcessIndex Lives::NewProcess(uint32_t pid, Ns t, bool host_ids) {
  const auto index = static_cast<ProcessIndex>(processes_.size());
  Process p;
  p.pid = p.ns_pid = pid;
  p.first_seen = p.last_seen = t;
  processes_.push_back(std::move(p));
  process_more_.push_back({});
  process_more_.back().host_ids = host_ids;
  (host_ids ? by_pid_.at(pid) : without_host_ids_).push_back(index);
  return index;
}

ThreadIndex Lives::NewThread(uint32_t tid, ProcessIndex process, Ns t) {
  const auto index = static_cast<ThreadIndex>(threads_.size());
  threads_.push_back({tid, process, processes_[process].name});
  more_.push_back({t, tid});
  process_more_[process].threads.push_back(index);
  if (process_more_[process].host_ids) by_tid_.at(tid).push_back(index);
  return index;
}

ProcessIndex Lives::CurrentProcess(uint32_t pid) {
  const auto* list = by_pid_.find(pid);
  return list == nullptr || list->empty() ? kNone : list->back();
}

ThreadIndex Lives::CurrentThread(uint32_t tid) {
  const auto* list = by_tid_.find(tid);
  return list == nullptr || list->empty() ? kNone : list->back();
}

ThreadIndex Lives::Current(uint32_t tid, uint32_t tgid, Ns t) {
  const ThreadIndex known = CurrentThread(tid);
  // Another process under the same tid: its fork record was lost.
  if (known != kNone && processes_[threads_[known].process].pid == tgid)
    return known;
  ProcessIndex process = CurrentProcess(tgid);
  if (process == kNone) process = NewProcess(tgid, t, true);
  return NewThread(tid, process, t);
}

void Lives::MarkKernel(ThreadIndex thread) {
  processes_[threads_[thread].process].is_kernel = true;
}

void Lives::OnTask(std::span<const uint64_t> row, std::string_view text) {
  using namespace task_table;
  const Ns t = TimeOf(row[kT]);
  const auto tid = static_cast<uint32_t>(row[kTid]);
  const auto tgid = static_cast<uint32_t>(row[kTgid]);
  const auto event = static_cast<ingero_task_event>(row[kEvent]);
  const bool leader = tid == tgid;
  const size_t comm_end = text.find('\0');
  const std::string_view comm = text.substr(0, comm_end);
  if (tid == 0) return;

  ThreadIndex thread = CurrentThread(tid);
  const bool announces = event == INGERO_TASK_EVENT_FORK ||
                         event == INGERO_TASK_EVENT_EXISTING;
  if (announces) {
    ProcessIndex process = CurrentProcess(tgid);
    const bool same_process =
        process != kNone && processes_[process].start == TimeOf(row[kStartNs]);
    // A process that a switch or a thread announced before its own record.
    const bool fill = process != kNone && processes_[process].start == Ns(0);
    if (!same_process && !fill) process = NewProcess(tgid, t, true);
    Process& p = processes_[process];
    p.start = TimeOf(row[kStartNs]);
    if (leader || !same_process) p.cgroup_id = row[kCgroupId];
    if (row[kNsTgid] != 0) p.ns_pid = static_cast<uint32_t>(row[kNsTgid]);
    process_more_[process].pid_namespace = row[kPidNamespace];
    if (leader || process_more_[process].parent_pid == 0)
      process_more_[process].parent_pid =
          static_cast<uint32_t>(row[kParentTgid]);
    if (tgid == kKthreadd || row[kParentTgid] == kKthreadd) p.is_kernel = true;
    if (row[kCode] == 1) process_more_[process].in_scope = true;
    // A second companion lists again what the first one knew; a fork is a new
    // life unless a switch told of the thread at this very moment.
    const bool known =
        thread != kNone && threads_[thread].process == process &&
        (event == INGERO_TASK_EVENT_EXISTING || more_[thread].begin >= t);
    if (!known) thread = NewThread(tid, process, t);
    more_[thread].ns_tid =
        row[kNsTid] != 0 ? static_cast<uint32_t>(row[kNsTid]) : tid;
  } else {
    thread = Current(tid, tgid, t);
  }
  Process& p = processes_[threads_[thread].process];
  p.last_seen = std::max(p.last_seen, t);
  // A thread may be in a cgroup of its own; the process is where its leader is.
  if (row[kCgroupId] != 0 && (leader || p.cgroup_id == 0))
    p.cgroup_id = row[kCgroupId];

  switch (event) {
    case INGERO_TASK_EVENT_FORK:
    case INGERO_TASK_EVENT_EXISTING:
    case INGERO_TASK_EVENT_EXEC:
    case INGERO_TASK_EVENT_RENAME:
      if (!comm.empty()) {
        threads_[thread].name = comm;
        if (leader) p.name = comm;
        if (p.name.empty()) p.name = comm;
      }
      if (event == INGERO_TASK_EVENT_EXEC) {
        // A non-leader that execs takes the leader's place: the leader's end
        // was not the process's.
        p.exited.reset();
        p.exit_code.reset();
      }
      if (comm_end != text.npos && event != INGERO_TASK_EVENT_RENAME) {
        const size_t exe = comm_end + 1, exe_end = text.find('\0', exe);
        p.exe = text.substr(exe, exe_end - exe);
        p.cmdline = exe_end == text.npos ? "" : text.substr(exe_end + 1);
        while (!p.cmdline.empty() && p.cmdline.back() == '\0')
          p.cmdline.pop_back();
      }
      break;
    case INGERO_TASK_EVENT_EXIT:
      if (leader) {
        p.exited = t;
        p.exit_code = static_cast<int64_t>(row[kCode]);
      } else if (p.exited) {
        p.exited = t;  // the leader ended first
      }
      break;
    case INGERO_TASK_EVENT_OOM_KILL:
    case INGERO_TASK_EVENT_PAGES:
    case INGERO_TASK_EVENT_CGROUP:
    case INGERO_TASK_EVENT_RECLAIM:
    case INGERO_TASK_EVENT_COMPACTION:
      break;
  }
}

ProcessIndex Lives::ForStream(const ingero_stream_header& header,
                              Interval span, bool* joined) {
  const int64_t tick_ns =
      1'000'000'000 / std::max<int64_t>(1, header.clock_ticks_per_s);
  const auto same_start = [&](const Process& p) {
    return p.start.value / tick_ns ==
           static_cast<int64_t>(header.start_clock_ticks);
  };
  const auto overlaps = [&](const Process& p) {
    return p.first_seen <= span.end &&
           span.begin <= p.exited.value_or(p.last_seen);
  };
  // From the surest to what is left when a namespace or a time namespace
  // hides one part of the key.
  ProcessIndex found = kNone;
  for (int attempt = 0; attempt < 4 && found == kNone; ++attempt) {
    for (ProcessIndex i = 0; i < processes_.size(); ++i) {
      const Process& p = processes_[i];
      const ProcessMore& more = process_more_[i];
      bool match = false;
      const bool in_namespace = more.pid_namespace == header.pid_namespace &&
                                header.pid_namespace != 0 &&
                                p.ns_pid == header.pid;
      switch (attempt) {
        case 0:
          match = in_namespace && same_start(p);
          break;
        case 1:
          match = more.pid_namespace == 0 && p.pid == header.pid &&
                  same_start(p);
          break;
        case 2:  // time namespace: start_clock_ticks are shifted
          match = in_namespace && header.monotonic_offset_ns != 0 &&
                  overlaps(p);
          break;
        case 3:  // its fork record was lost: no start, no namespace
          match = more.host_ids && p.start == Ns(0) && p.pid == header.pid &&
                  overlaps(p);
          break;
      }
      if (match) found = i;
    }
  }
  *joined = found != kNone && process_more_[found].host_ids;
  if (found == kNone) {
    found = NewProcess(header.pid, span.begin, false);
    Process& p = processes_[found];
    p.start = Ns(static_cast<int64_t>(header.start_clock_ticks) * tick_ns);
    p.name = FixedText(header.comm);
    process_more_[found].pid_namespace = header.pid_namespace;
    process_more_[found].parent_pid = header.parent_pid;
  }
  Process& p = processes_[found];
  p.has_cuda = true;
  p.cpus_allowed = static_cast<uint32_t>(header.cpus_allowed);
  if (p.name.empty()) p.name = FixedText(header.comm);
  if (p.start == Ns(0))
    p.start = Ns(static_cast<int64_t>(header.start_clock_ticks) * tick_ns);
  p.first_seen = std::min(p.first_seen, span.begin);
  p.last_seen = std::max(p.last_seen, span.end);
  return found;
}

ThreadIndex Lives::ForStreamThread(ProcessIndex process, uint32_t ns_tid,
                                   Ns t) {
  const auto key = [&](uint32_t tid) { return uint64_t{process} << 32 | tid; };
  ProcessMore& more = process_more_[process];
  for (; more.in_stream_map < more.threads.size(); ++more.in_stream_map) {
    const ThreadIndex i = more.threads[more.in_stream_map];
    by_stream_tid_[key(more_[i].ns_tid)].push_back(i);
  }
  std::vector<ThreadIndex>& list = by_stream_tid_[key(ns_tid)];
  for (auto i = list.rbegin(); i != list.rend(); ++i)
    if (more_[*i].begin <= t) return *i;
  if (!list.empty()) return list.front();
  const ThreadIndex thread = NewThread(ns_tid, process, t);
  return thread;
}

ProcessIndex Lives::At(uint32_t pid, Ns t) const {
  const auto* list = by_pid_.find(pid);
  ProcessIndex at = kNone;
  for (size_t k = 0; list != nullptr && k < list->size(); ++k)
    if (at == kNone || processes_[(*list)[k]].first_seen <= t) at = (*list)[k];
  return at;
}

ProcessIndex Lives::ForPid(uint64_t pid_namespace, uint32_t pid, Ns t) const {
  ProcessIndex at = kNone;
  for (ProcessIndex i = 0; i < processes_.size(); ++i) {
    const Process& p = processes_[i];
    const ProcessMore& more = process_more_[i];
    const bool is = more.pid_namespace == 0
                        ? more.host_ids && p.pid == pid  // its record was lost
                        : more.pid_namespace == pid_namespace &&
                              p.ns_pid == pid;
    // Known from its CUDA calls alone, it lived before the first.
    if (!is || (p.exited && *p.exited < t)) continue;
    if (at == kNone ||
        (p.first_seen <= t && p.first_seen >= processes_[at].first_seen))
      at = i;
  }
  return at;
}

void Lives::Finish() {
  // A parent is the newest process of that pid that began before the child.
  for (ProcessIndex i = 0; i < processes_.size(); ++i) {
    Process& p = processes_[i];
    const ProcessMore& more = process_more_[i];
    if (p.name == "ingero-kprobe" || p.name == "ingero") p.is_ingero = true;
    if (more.parent_pid != 0) {
      const auto* by_pid =
          more.host_ids ? by_pid_.find(more.parent_pid) : &without_host_ids_;
      for (size_t k = 0; by_pid != nullptr && k < by_pid->size(); ++k) {
        const ProcessIndex j = (*by_pid)[k];
        if (j == i || more.host_ids != process_more_[j].host_ids ||
            processes_[j].pid != more.parent_pid ||
            (!more.host_ids && process_more_[j].pid_namespace !=
                                   more.pid_namespace) ||
            processes_[j].start > p.start)
          continue;
        if (p.parent == kNone ||
            processes_[j].start >= processes_[p.parent].start)
          p.parent = j;
      }
    }
    for (ThreadIndex thread : more.threads)
      if (threads_[thread].tid == p.pid) p.main_thread = thread;
  }
}

}  // namespace ingero::merge
