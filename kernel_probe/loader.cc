// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/loader.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "bpf/objects.h"

namespace ingero::kernel_probe {

enum class Phase { kTasks, kIterate, kScheduler };

struct Program {
  const unsigned char* object;
  const unsigned char* object_end;
  const char* name;
  const char* variable = nullptr;  // of the kernel, that it needs
};

struct Loader::Probe {
  const char* tracepoint;  // as people know it
  // Alternatives, the first that loads is used.
  std::vector<Program> programs;
  Phase phase;
  bool required;
  const char* without;  // what is missing where it is skipped
  bool common = true;   // no machine is long without it
  bool tree_only = false;
};

namespace {

constexpr uint64_t kMinTaskRingBytes = 256u << 10;

constexpr const char* kNoHolders =
    "who holds the CPUs that the tree waits for";
constexpr const char* kNoReclaim = "threads that had to free memory first";
constexpr const char* kNoMemcg = "threads at their cgroup's memory limit";
constexpr const char* kNoCompaction = "threads that had to move pages first";

// libbpf tells its reasons through a global print function only. Kept: what
// the kernel's verifier or libbpf said first about the load in progress.
bool g_verbose = false;
std::string g_log;

int Print(libbpf_print_level level, const char* format, va_list args) {
  char line[4096];
  std::vsnprintf(line, sizeof(line), format, args);
  if (g_verbose) std::fputs(line, stderr);
  if (level == LIBBPF_WARN) g_log += line;
  return 0;
}

// The most telling line of g_log, or the errno's text.
std::string Reason(int error) {
  size_t at = g_log.find("BEGIN PROG LOAD LOG --\n");
  if (at != std::string::npos) {
    // The verifier's verdict is the last line before the summary.
    std::string log = g_log.substr(at + 23);
    log.resize(std::min(log.find("processed "), log.size()));
    while (!log.empty() && log.back() == '\n') log.pop_back();
    const size_t line = log.rfind('\n');
    log = log.substr(line == std::string::npos ? 0 : line + 1);
    if (!log.empty()) return log;
  }
  return strerror(error);
}

// Parameters of a raw tracepoint without the leading context, or -1 where
// this kernel has no such tracepoint. *first_is_pointer: its first one.
int TracepointParameters(const btf* btf, const std::string& name,
                         bool* first_is_pointer) {
  const int id = btf__find_by_name_kind(btf, ("btf_trace_" + name).c_str(),
                                        BTF_KIND_TYPEDEF);
  if (id < 0) return -1;
  const btf_type* t = btf__type_by_id(btf, btf__type_by_id(btf, id)->type);
  if (!btf_is_ptr(t)) return -1;
  t = btf__type_by_id(btf, t->type);
  if (!btf_is_func_proto(t)) return -1;
  const int parameters = btf_vlen(t) - 1;
  if (first_is_pointer != nullptr && parameters > 0)
    *first_is_pointer =
        btf_is_ptr(btf__type_by_id(btf, btf_params(t)[1].type));
  return parameters;
}

bool HasMember(const btf* btf, const char* structure, const char* member) {
  const int id = btf__find_by_name_kind(btf, structure, BTF_KIND_STRUCT);
  if (id < 0) return false;
  const btf_type* t = btf__type_by_id(btf, static_cast<uint32_t>(id));
  for (int i = 0; i < btf_vlen(t); ++i)
    if (std::strcmp(btf__name_by_offset(btf, btf_members(t)[i].name_off),
                    member) == 0)
      return true;
  return false;
}

uint32_t ThrottleClock(const btf* btf) {
  if (!HasMember(btf, "sched_entity", "cfs_rq")) return INGERO_THROTTLE_NONE;
  if (HasMember(btf, "cfs_rq", "throttled_clock_self_time"))
    return INGERO_THROTTLE_SELF;
  if (HasMember(btf, "cfs_rq", "throttled_clock_pelt_time"))
    return INGERO_THROTTLE_PELT;
  if (HasMember(btf, "cfs_rq", "throttled_clock_task_time"))
    return INGERO_THROTTLE_TASK;
  return INGERO_THROTTLE_NONE;
}

bpf_object* Open(const unsigned char* begin, const unsigned char* end,
                 const char* name) {
  LIBBPF_OPTS(bpf_object_open_opts, options);
  options.object_name = name;
  return bpf_object__open_mem(begin, static_cast<size_t>(end - begin),
                              &options);
}

}  // namespace

std::vector<Loader::Probe> Loader::OwnProbes() {
#define OBJECT(name) ingero_bpf_##name, ingero_bpf_##name##_end
  return {
      {"task_newtask", {{OBJECT(process), "on_task_newtask"}}, Phase::kTasks,
       false, "births, and all about threads born from now on"},
      {"sched_process_exec", {{OBJECT(process), "on_sched_process_exec"}},
       Phase::kTasks, false, "program starts"},
      {"sched_process_exit", {{OBJECT(process), "on_sched_process_exit"}},
       Phase::kTasks, false, "ends of threads and processes"},
      {"task_rename", {{OBJECT(process), "on_task_rename"}}, Phase::kTasks,
       false, "names that threads give themselves"},
      {"cgroup_attach_task", {{OBJECT(process), "on_cgroup_attach_task"}},
       Phase::kTasks, false, "moves of running programs to another cgroup",
       false},
      {"mark_victim", {{OBJECT(process), "on_mark_victim"}}, Phase::kTasks,
       false, "out-of-memory kills", false},
      {"existing tasks", {{OBJECT(process), "dump_tasks"}}, Phase::kIterate,
       false, "names, parents and wakers of tasks that run already"},
      {"mm_page_alloc", {{OBJECT(memory), "on_mm_page_alloc"}},
       Phase::kScheduler, false, "page allocations"},
      {"mm_vmscan_direct_reclaim_begin",
       {{OBJECT(memory), "on_direct_reclaim_begin"}},
       Phase::kScheduler, false, kNoReclaim, false},
      {"mm_vmscan_direct_reclaim_end",
       {{OBJECT(memory), "on_direct_reclaim_end"}},
       Phase::kScheduler, false, kNoReclaim, false},
      {"mm_vmscan_memcg_reclaim_begin",
       {{OBJECT(memory), "on_memcg_reclaim_begin"}},
       Phase::kScheduler, false, kNoMemcg, false},
      {"mm_vmscan_memcg_reclaim_end",
       {{OBJECT(memory), "on_memcg_reclaim_end"}},
       Phase::kScheduler, false, kNoMemcg, false},
      {"mm_compaction_begin", {{OBJECT(memory), "on_compaction_begin"}},
       Phase::kScheduler, false, kNoCompaction, false},
      {"mm_compaction_end", {{OBJECT(memory), "on_compaction_end"}},
       Phase::kScheduler, false, kNoCompaction, false},
      {"sched_waking",
       {{OBJECT(waking_count), "on_sched_waking_count", "__preempt_count"},
        {OBJECT(waking_hot), "on_sched_waking_hot", "pcpu_hot"},
        {OBJECT(sched), "on_sched_waking_stack"}},
       Phase::kScheduler, false, "who woke whom, and waiting for a CPU"},
      {"sched_wakeup_new", {{OBJECT(sched), "on_sched_wakeup_new"}},
       Phase::kScheduler, false, "waiting for a CPU before the first run"},
      {"sched_wakeup", {{OBJECT(sched), "on_sched_wakeup"}}, Phase::kScheduler,
       false, kNoHolders, true, true},
      {"sched_migrate_task", {{OBJECT(sched), "on_sched_migrate_task"}},
       Phase::kScheduler, false, kNoHolders, false, true},
      {"sched_switch", {{OBJECT(sched), "on_sched_switch"}}, Phase::kScheduler,
       true, "everything"},
  };
#undef OBJECT
}

Result<std::unique_ptr<Loader>> Loader::Load(const LoaderOptions& options) {
  g_verbose = options.verbose;
  libbpf_set_print(Print);
  std::unique_ptr<Loader> loader(new Loader);
  loader->probes_ = OwnProbes();
  for (const ExtraProbe& extra : options.extra)
    loader->probes_.push_back(
        {extra.tracepoint, {{extra.object, extra.object_end, extra.program}},
         Phase::kScheduler, false, extra.without, false});
  loader->report_ = options.report;
  loader->cpus_ = libbpf_num_possible_cpus();
  if (loader->cpus_ <= 0)
    return Status::Errno("counting CPUs", -loader->cpus_);

  btf* kernel = btf__load_vmlinux_btf();
  if (kernel == nullptr)
    return Status::Errno("reading the kernel's type information", errno);
  bool victim_is_task = false;
  loader->config_.switch_has_state =
      TracepointParameters(kernel, "sched_switch", nullptr) >= 4;
  TracepointParameters(kernel, "mark_victim", &victim_is_task);
  loader->config_.victim_is_task = victim_is_task;
  loader->config_.throttle_clock = ThrottleClock(kernel);
  loader->config_.raw_pages = options.raw_pages;
  INGERO_CHECK(options.tree.size() <= INGERO_MAX_TREE_ROOTS);
  loader->config_.tree_roots = static_cast<uint32_t>(options.tree.size());
  for (size_t i = 0; i < options.tree.size(); ++i) {
    ingero_tree_root& root = loader->config_.tree_root[i];
    root.pid = options.tree[i].inner_pid;
    root.pid_namespace = options.tree[i].pid_namespace;
    const std::string& comm = options.tree[i].comm;
    std::memcpy(root.comm, comm.data(),
                std::min(comm.size(), sizeof(root.comm) - 1));
  }
  const auto nohz_full = ReadWholeFile("/sys/devices/system/cpu/nohz_full");
  loader->config_.late_stime =
      nohz_full.ok() && nohz_full->find_first_of("0123456789") !=
                            std::string::npos;
  if (loader->config_.throttle_clock == INGERO_THROTTLE_NONE &&
      loader->report_)
    loader->report_(
        "CPU quota: this kernel does not say how long each wait for a CPU was "
        "due to it (missing: a quota told apart from other load)");

  loader->skipped_.resize(loader->probes_.size());
  Status status = loader->MakeMaps(options);
  for (size_t i = 0; status.ok() && i < loader->probes_.size(); ++i) {
    const Probe& probe = loader->probes_[i];
    if (probe.tree_only && options.tree.empty()) continue;
    Status loaded;
    if (probe.phase != Phase::kIterate &&
        TracepointParameters(kernel, probe.tracepoint, nullptr) < 0)
      loaded = Status::Error("this kernel has no such tracepoint");
    else
      loaded = loader->LoadProbe(kernel, i);
    if (loaded.ok()) continue;
    // Without it nobody who runs already is of a tree.
    if (probe.required ||
        (probe.phase == Phase::kIterate && !options.tree.empty()))
      status = std::move(loaded).In(std::string("probe ") + probe.tracepoint);
    else
      loader->Skip(i, loaded.message());
  }
  btf__free(kernel);
  if (!status.ok()) return status;
  return loader;
}

void Loader::Skip(size_t probe, const std::string& why) {
  skipped_[probe] = why;
  if (report_)
    report_(std::string("probe ") + probes_[probe].tracepoint +
            ": skipped, because " + why + " (missing: " +
            probes_[probe].without + ")");
}

Status Loader::MakeMaps(const LoaderOptions& options) {
  maps_ = Open(ingero_bpf_sched, ingero_bpf_sched_end, "ingero");
  if (maps_ == nullptr) return Status::Errno("opening BPF objects", errno);
  bpf_program* program;
  bpf_object__for_each_program(program, maps_)
      bpf_program__set_autoload(program, false);
  bpf_map* states = bpf_object__find_map_by_name(maps_, "cpu_states");
  bpf_map* slots = bpf_object__find_map_by_name(maps_, "switch_slots");
  bpf_map* rings = bpf_object__find_map_by_name(maps_, "page_rings");
  bpf_map* tasks = bpf_object__find_map_by_name(maps_, "task_ring");
  const auto cpus = static_cast<uint32_t>(cpus_);
  const uint64_t all_slots =
      cpus * (options.ring_bytes / sizeof(ingero_ring_switch));
  if (all_slots > UINT32_MAX)
    return Status::Error("--buffer " + FormatBytes(options.ring_bytes) +
                         " for each of " + std::to_string(cpus) +
                         " CPUs is too much; use a smaller one");
  config_.ring_slots = static_cast<uint32_t>(all_slots / cpus);
  bpf_map__set_max_entries(states, cpus);
  bpf_map__set_max_entries(slots, static_cast<uint32_t>(all_slots));
  bpf_map__set_max_entries(rings, cpus);
  bpf_map__set_max_entries(tasks, static_cast<uint32_t>(std::max(
                                      options.ring_bytes, kMinTaskRingBytes)));
  g_log.clear();
  if (const int error = bpf_object__load(maps_); error != 0) {
    if (error == -EPERM)
      return Status::Error(
          "the kernel refused to make BPF maps although the capabilities are "
          "there; in a container, allow bpf(2) in its seccomp profile or run "
          "ingero-kprobe on the host");
    if (error == -ENOMEM)
      return Status::Error("no memory for the BPF maps; use a smaller --buffer "
                           "or raise the memory limit");
    return Status::Error("making BPF maps: " + Reason(-error));
  }
  for (uint32_t cpu = 0; options.raw_pages && cpu < cpus; ++cpu) {
    const int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "page_ring", 0, 0,
                                  static_cast<uint32_t>(options.ring_bytes),
                                  nullptr);
    if (fd < 0)
      return Status::Errno("making the ring buffer of CPU " +
                               std::to_string(cpu) + " (smaller --buffer?)",
                           errno);
    page_ring_fds_.push_back(fd);
    if (bpf_map_update_elem(bpf_map__fd(rings), &cpu, &fd, 0) != 0)
      return Status::Errno("placing the ring buffer of a CPU", errno);
  }
  task_ring_fd_ = bpf_map__fd(tasks);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  cpu_states_bytes_ =
      (cpus * sizeof(ingero_cpu_state) + page - 1) / page * page;
  void* mapped = mmap(nullptr, cpu_states_bytes_, PROT_READ | PROT_WRITE,
                      MAP_SHARED, bpf_map__fd(states), 0);
  if (mapped == MAP_FAILED) return Status::Errno("mapping counters", errno);
  cpu_states_ = static_cast<ingero_cpu_state*>(mapped);
  switch_slots_bytes_ = cpus * options.ring_bytes;
  mapped = mmap(nullptr, switch_slots_bytes_, PROT_READ, MAP_SHARED,
                bpf_map__fd(slots), 0);
  if (mapped == MAP_FAILED) return Status::Errno("mapping the buffer", errno);
  switch_slots_ = static_cast<const ingero_ring_switch*>(mapped);
  return {};
}

Status Loader::LoadProbe(const btf* kernel, size_t probe) {
  Status status;
  const std::vector<Program>& programs = probes_[probe].programs;
  for (size_t i = 0; i < programs.size(); ++i) {
    const char* variable = programs[i].variable;
    if (variable != nullptr &&
        btf__find_by_name_kind(kernel, variable, BTF_KIND_VAR) < 0) {
      status = Status::Error(std::string("this kernel has no ") + variable);
      continue;
    }
    auto loaded = TryProgram(probe, i);
    if (loaded.ok()) {
      loaded_.push_back(*loaded);
      return {};
    }
    status = loaded.status();
  }
  return status;
}

Result<Loader::Loaded> Loader::TryProgram(size_t probe, size_t which) {
  const Program& p = probes_[probe].programs[which];
  bpf_object* object = Open(p.object, p.object_end, p.name);
  if (object == nullptr) return Status::Errno("opening BPF object", errno);
  bpf_program *program, *wanted = nullptr;
  bpf_object__for_each_program(program, object) {
    const bool is_wanted = std::strcmp(bpf_program__name(program), p.name) == 0;
    bpf_program__set_autoload(program, is_wanted);
    if (is_wanted) wanted = program;
  }
  INGERO_CHECK(wanted != nullptr);
  bpf_map* map;
  bpf_object__for_each_map(map, object) {
    const char* map_name = bpf_map__name(map);
    if (bpf_map__is_internal(map)) {
      if (std::strcmp(map_name, ".rodata.config") == 0)
        INGERO_CHECK(bpf_map__set_initial_value(map, &config_,
                                                sizeof(config_)) == 0);
      continue;
    }
    bpf_map* shared = bpf_object__find_map_by_name(maps_, map_name);
    INGERO_CHECK(shared != nullptr);
    if (const int error = bpf_map__reuse_fd(map, bpf_map__fd(shared))) {
      bpf_object__close(object);
      return Status::Errno("sharing map " + std::string(map_name), -error);
    }
  }
  g_log.clear();
  if (const int error = bpf_object__load(object)) {
    Status status = Status::Error(Reason(-error));
    bpf_object__close(object);
    return status;
  }
  return Loaded{probe, object, wanted, nullptr, false};
}

Status Loader::AttachTaskProbes() { return Attach(false); }
Status Loader::AttachScheduler() { return Attach(true); }

Status Loader::Attach(bool scheduler) {
  for (Loaded& l : loaded_) {
    const Probe& probe = probes_[l.probe];
    if ((probe.phase == Phase::kScheduler) != scheduler) continue;
    l.link = bpf_program__attach(l.program);
    const int error = errno;
    l.attached = l.link != nullptr;
    if (!l.attached && probe.required)
      return Status::Errno(
          std::string("probe ") + probe.tracepoint + ": cannot be attached",
          error);
    if (!l.attached)
      Skip(l.probe, strerror(error));
    else if (report_)
      report_(std::string("probe ") + probe.tracepoint + ": attached");
  }
  return {};
}

std::vector<ingero_ring_task> Loader::DumpTasks() {
  std::vector<ingero_ring_task> tasks;
  for (Loaded& l : loaded_) {
    if (probes_[l.probe].phase != Phase::kIterate || l.link == nullptr)
      continue;
    // A child that the first pass came too early for, of a parent that it came
    // too late for, is found by a second one: births inherit from then on.
    for (int pass = config_.tree_roots != 0 ? 0 : 1; pass < 2; ++pass) {
      const int fd = bpf_iter_create(bpf_link__fd(l.link));
      if (fd < 0) continue;
      // The kernel hands out whole bytes, not whole records.
      std::string bytes;
      char chunk[1 << 16];
      ssize_t n;
      while ((n = read(fd, chunk, sizeof(chunk))) > 0 ||
             (n < 0 && (errno == EINTR || errno == EAGAIN)))
        if (n > 0) bytes.append(chunk, static_cast<size_t>(n));
      close(fd);
      tasks.resize(bytes.size() / sizeof(ingero_ring_task));
      std::memcpy(tasks.data(), bytes.data(),
                  tasks.size() * sizeof(ingero_ring_task));
    }
  }
  return tasks;
}

uint32_t Loader::MemoryStalls() const {
  const auto attached = [&](std::string_view tracepoint) {
    return std::any_of(loaded_.begin(), loaded_.end(), [&](const Loaded& l) {
      return probes_[l.probe].tracepoint == tracepoint && l.link != nullptr;
    });
  };
  uint32_t stalls = 0;
  if (attached("mm_vmscan_direct_reclaim_begin") &&
      attached("mm_vmscan_direct_reclaim_end"))
    stalls |= 1u << INGERO_TASK_EVENT_RECLAIM;
  if (attached("mm_compaction_begin") && attached("mm_compaction_end"))
    stalls |= 1u << INGERO_TASK_EVENT_COMPACTION;
  return stalls;
}

uint64_t Loader::MissedRuns() const {
  uint64_t missed = 0;
  for (const Loaded& l : loaded_) {
    bpf_prog_info info{};
    uint32_t size = sizeof(info);
    if (bpf_obj_get_info_by_fd(bpf_program__fd(l.program), &info, &size) == 0)
      missed += info.recursion_misses;
  }
  return missed;
}

std::vector<ProbeState> Loader::States() const {
  std::vector<ProbeState> states;
  for (size_t i = 0; i < probes_.size(); ++i) {
    const Probe& probe = probes_[i];
    if (probe.tree_only && config_.tree_roots == 0) continue;
    states.push_back({probe.tracepoint, false, skipped_[i], probe.without,
                      probe.common, 0, 0});
  }
  for (const Loaded& l : loaded_) {
    ProbeState& state = *std::find_if(
        states.begin(), states.end(), [&](const ProbeState& s) {
          return s.tracepoint == probes_[l.probe].tracepoint;
        });
    state.attached = l.attached;
    bpf_prog_info info{};
    uint32_t size = sizeof(info);
    if (bpf_obj_get_info_by_fd(bpf_program__fd(l.program), &info, &size) != 0)
      continue;
    state.runs = info.run_cnt;
    state.run_ns = info.run_time_ns;
  }
  return states;
}

void Loader::Detach() {
  // In the order opposite to attaching: switches end first.
  for (auto l = loaded_.rbegin(); l != loaded_.rend(); ++l) {
    bpf_link__destroy(l->link);
    l->link = nullptr;
  }
}

Loader::Loader() = default;

Loader::~Loader() {
  Detach();
  for (const Loaded& l : loaded_) bpf_object__close(l.object);
  for (const int fd : page_ring_fds_) close(fd);
  if (switch_slots_ != nullptr)
    munmap(const_cast<ingero_ring_switch*>(switch_slots_),
           switch_slots_bytes_);
  if (cpu_states_ != nullptr) munmap(cpu_states_, cpu_states_bytes_);
  bpf_object__close(maps_);
}

}  // namespace ingero::kernel_probe
