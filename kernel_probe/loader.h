// SPDX-License-Identifier: Apache-2.0
// Loads and attaches the BPF programs, one by one: a probe that this kernel
// cannot take is skipped with its reason, and the rest go on. To add a kernel
// event: write the program in bpf/, add a row to kProbes in loader.cc.
//
// Each object file is opened once per program with only that one in it, and
// all of them share one set of maps, so nothing but its own row decides
// whether a probe loads (15-25 ms each).
//
// Threads:   one.
// Ownership: programs stay attached until Detach() or the destructor; nothing
//            is pinned, so a kill detaches all.
#ifndef INGERO_KERNEL_PROBE_LOADER_H_
#define INGERO_KERNEL_PROBE_LOADER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "bpf/probe_state.h"

struct bpf_link;
struct btf;
struct bpf_object;
struct bpf_program;

namespace ingero::kernel_probe {

// Whose switches are recorded, with all that descends from it.
struct TreeRoot {
  uint32_t pid = 0;  // 0: every process called `comm`, also later ones
  std::string comm = {};
  // Of `pid`: itself in its innermost namespace, and that one's inode, by
  // which the kernel's side knows it. See FindRoots().
  uint32_t inner_pid = 0, pid_namespace = 0;
};

// An optional probe beside the companion's own.
struct ExtraProbe {
  const unsigned char* object;
  const unsigned char* object_end;
  const char* program;
  const char* tracepoint;
  const char* without;  // what is missing where it is skipped
};

struct LoaderOptions {
  uint64_t ring_bytes = 0;  // per CPU, and kind with raw_pages; a power of
                            // two, at least a page
  bool raw_pages = false;   // each allocation of pages a record of its own
  std::vector<TreeRoot> tree;  // empty: everybody; at most
                               // INGERO_MAX_TREE_ROOTS
  bool verbose = false;     // print what libbpf says
  std::vector<ExtraProbe> extra;  // for tests: what this kernel cannot take
  // One line per probe: "probe sched_switch: attached".
  std::function<void(const std::string&)> report;
};

// What became of one probe.
struct ProbeState {
  const char* tracepoint;  // as people know it
  bool attached;
  std::string skipped;  // why it is not attached; "" = it is
  const char* without;  // what is missing then
  bool common;          // happens all the time on any machine
  uint64_t runs, run_ns;  // 0 unless the kernel keeps BPF statistics
};

class Loader {
 public:
  // Makes the maps and loads all programs; attaches none. Fails where a
  // required probe does not load.
  static Result<std::unique_ptr<Loader>> Load(const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;

  // Attaches what concerns tasks: from here on births are seen.
  Status AttachTaskProbes();
  // The tasks that exist, each with storage from here on, and whether it is of
  // a tree. Empty where the iterator could not be loaded.
  std::vector<ingero_ring_task> DumpTasks();
  // Attaches the rest. Fails where a required one cannot be.
  Status AttachScheduler();
  void Detach();

  int cpus() const { return cpus_; }
  // Slots for switches, ring_slots() of each CPU in a row, mapped; their heads
  // and tails are in cpu_states().
  const ingero_ring_switch* switch_slots() const { return switch_slots_; }
  uint32_t ring_slots() const { return config_.ring_slots; }
  // Of allocations, by CPU; none without raw_pages.
  const std::vector<int>& page_ring_fds() const { return page_ring_fds_; }
  int task_ring_fd() const { return task_ring_fd_; }
  // enum ingero_throttle_clock.
  uint32_t throttle_clock() const { return config_.throttle_clock; }
  // Bits by enum ingero_task_event: RECLAIM, COMPACTION, as far as their
  // probes are attached.
  uint32_t MemoryStalls() const;
  // Counters of all CPUs, mapped; the companion writes `reported` and `tail`
  // only.
  ingero_cpu_state* cpu_states() const { return cpu_states_; }
  // Runs of our programs that the kernel skipped so far.
  uint64_t MissedRuns() const;
  // Of every probe, in the order in which they are attached.
  std::vector<ProbeState> States() const;

 private:
  struct Probe;
  struct Loaded {
    size_t probe;
    bpf_object* object;
    bpf_program* program;
    bpf_link* link;
    bool attached;  // also after Detach()
  };
  Loader();
  static std::vector<Probe> OwnProbes();
  Status MakeMaps(const LoaderOptions& options);
  Status LoadProbe(const btf* kernel, size_t probe);
  Result<Loaded> TryProgram(size_t probe, size_t which);
  Status Attach(bool scheduler);

  void Skip(size_t probe, const std::string& why);

  std::function<void(const std::string&)> report_;
  int cpus_ = 0;
  ingero_probe_config config_{};
  bpf_object* maps_ = nullptr;  // owns the maps; no programs
  std::vector<Probe> probes_;  // in the order in which they are attached
  std::vector<Loaded> loaded_;
  std::vector<std::string> skipped_;  // by probe
  std::vector<int> page_ring_fds_;
  int task_ring_fd_ = -1;
  const ingero_ring_switch* switch_slots_ = nullptr;
  size_t switch_slots_bytes_ = 0;
  ingero_cpu_state* cpu_states_ = nullptr;
  size_t cpu_states_bytes_ = 0;
};

}  // namespace ingero::kernel_probe

#endif  // INGERO_KERNEL_PROBE_LOADER_H_
