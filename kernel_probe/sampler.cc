// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/sampler.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <string_view>

#include "base/file.h"
#include "kernel_probe/clock.h"
#include "kernel_probe/proc.h"

namespace ingero::kernel_probe {
namespace {

constexpr uint64_t kKnotNs = 100'000'000;
constexpr int kKnotsPerSample = 10;  // one sample a second
// Looking at cgroups takes at most 1 / this of the time, or is done once a
// second.
constexpr uint64_t kCgroupShare = 200;

std::string Read(const char* path) {
  auto text = ReadWholeFile(path);
  return text.ok() ? *text : std::string();
}

void Add(Rows* rows, uint64_t t_ns, Metric metric, uint64_t instance,
         std::optional<uint64_t> value, std::string_view text = {}) {
  if (!value) return;
  const uint64_t row[] = {t_ns, static_cast<uint64_t>(metric), instance,
                          *value};
  rows->Append(row, text);
}

}  // namespace

uint64_t MeasurePageCostNs() {
  // The median of batches so short that a preemption spoils only the one it
  // falls into. 8 MiB and about 1 ms in all.
  constexpr size_t kBatches = 64, kPages = 32;
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = kBatches * kPages * page;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  madvise(memory, size, MADV_NOHUGEPAGE);
  auto* at = static_cast<volatile char*>(memory);
  std::array<uint64_t, kBatches> ns;
  for (uint64_t& batch : ns) {
    const uint64_t begin = NowNs();
    for (size_t i = 0; i < kPages; ++i, at += page) *at = 1;
    batch = NowNs() - begin;
  }
  munmap(memory, size);
  std::nth_element(ns.begin(), ns.begin() + kBatches / 2, ns.end());
  return ns[kBatches / 2] / kPages;
}

Sampler::Sampler(StreamWriter* writer, std::span<ingero_cpu_state> cpu_states)
    : writer_(writer), cpu_states_(cpu_states) {}

void Sampler::Start(const RecordingFacts& facts, std::unique_ptr<Nvml> nvml,
                    std::optional<XidLog> xids) {
  facts_ = facts;
  nvml_ = std::move(nvml);
  xids_ = std::move(xids);
  controller_ = FindCpuController(Read("/proc/self/mountinfo"));
  thread_ = std::thread([this] { Run(); });
  if (nvml_) gpu_thread_ = std::thread([this] { RunGpu(); });
}

void Sampler::Finish() {
  {
    const std::lock_guard lock(mutex_);
    finish_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (gpu_thread_.joinable()) gpu_thread_.join();
}

std::vector<std::pair<uint64_t, uint64_t>> Sampler::gpu_percent() {
  const std::lock_guard lock(mutex_);
  return {gpu_percent_.begin(), gpu_percent_.end()};
}

bool Sampler::SleepUntil(uint64_t t_ns) {
  std::unique_lock lock(mutex_);
  const uint64_t now = NowNs();
  if (t_ns > now)
    wake_.wait_for(lock, std::chrono::nanoseconds(t_ns - now),
                   [this] { return finish_; });
  return !finish_;
}

void Sampler::Run() {
  // At once, so that a reader of a young stream finds a knot.
  Rows knots = writer_->Spare(knot_table::kSchema);
  knots.Append(TakeKnot());
  (void)writer_->Push(&knots, 0, /*always=*/true);
  Rows samples = writer_->Spare(sample_table::kSchema);
  if (facts_.page_cost_ns != 0)
    Add(&samples, NowNs(), Metric::kPageCostNs, 0, facts_.page_cost_ns);
  uint64_t next = NowNs();
  for (bool more = true; more;) {
    SampleSystem(&samples);
    (void)writer_->Push(&samples, 0, /*always=*/true);
    samples = writer_->Spare(sample_table::kSchema);
    knots = writer_->Spare(knot_table::kSchema);
    for (int i = 0; i < kKnotsPerSample && more; ++i) {
      next += kKnotNs;
      more = SleepUntil(next);
      knots.Append(TakeKnot());
      SampleXids(&samples);
      if (i + 1 < kKnotsPerSample) SampleCgroups(false, &samples);
    }
    (void)writer_->Push(&knots, 0, /*always=*/true);
  }
  SampleSystem(&samples);
  (void)writer_->Push(&samples, 0, /*always=*/true);
}

void Sampler::RunGpu() {
  uint64_t next = NowNs();
  for (bool more = true; more;) {
    Rows rows = writer_->Spare(sample_table::kSchema);
    for (int i = 0; i < kKnotsPerSample && more; ++i) {
      for (const GpuValue& v : nvml_->Sample(/*slow=*/i == 0)) {
        Add(&rows, NowNs(), v.metric, v.instance, v.value, v.text);
        if (v.metric != Metric::kGpuUtilization) continue;
        const std::lock_guard lock(mutex_);
        gpu_percent_[v.instance] = v.value;
      }
      // After a call that blocked, do not catch up.
      next = std::max(next + kKnotNs, NowNs());
      more = SleepUntil(next);
    }
    (void)writer_->Push(&rows, 0, /*always=*/true);
  }
}

void Sampler::SampleSystem(Rows* rows) {
  const uint64_t t = NowNs();
  const SystemStat stat =
      ParseStat(Read("/proc/stat"),
                static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
  Add(rows, t, Metric::kCpuOnline, 0, stat.cpus.size());
  for (const CpuTimes& cpu : stat.cpus) {
    Add(rows, t, Metric::kCpuBusyNs, cpu.cpu, cpu.busy_ns);
    Add(rows, t, Metric::kCpuIdleNs, cpu.cpu, cpu.idle_ns);
    Add(rows, t, Metric::kCpuStealNs, cpu.cpu, cpu.steal_ns);
    Add(rows, t, Metric::kCpuIrqNs, cpu.cpu, cpu.irq_ns);
    Add(rows, t, Metric::kCpuSoftirqNs, cpu.cpu, cpu.softirq_ns);
  }
  Add(rows, t, Metric::kContextSwitches, 0, stat.context_switches);
  Add(rows, t, Metric::kLoad1, 0, ParseLoad1(Read("/proc/loadavg")));

  Add(rows, t, Metric::kPsiCpuSomeUs, 0,
      ParsePressure(Read("/proc/pressure/cpu")).some_us);
  const Pressure io = ParsePressure(Read("/proc/pressure/io"));
  Add(rows, t, Metric::kPsiIoSomeUs, 0, io.some_us);
  Add(rows, t, Metric::kPsiIoFullUs, 0, io.full_us);
  const Pressure memory = ParsePressure(Read("/proc/pressure/memory"));
  Add(rows, t, Metric::kPsiMemorySomeUs, 0, memory.some_us);
  Add(rows, t, Metric::kPsiMemoryFullUs, 0, memory.full_us);

  const Memory m = ParseMemory(Read("/proc/meminfo"));
  Add(rows, t, Metric::kMemTotalBytes, 0, m.total_bytes);
  Add(rows, t, Metric::kMemAvailableBytes, 0, m.available_bytes);
  Add(rows, t, Metric::kSwapUsedBytes, 0, m.swap_used_bytes);

  Add(rows, t, Metric::kThrottleClock, 0, facts_.throttle_clock);
  Add(rows, t, Metric::kMemoryStalls, 0, facts_.memory_stalls);
  if (!facts_.scope.empty()) Add(rows, t, Metric::kScope, 0, 1, facts_.scope);
  for (size_t i = 0; i < facts_.skipped.size(); ++i)
    Add(rows, t, Metric::kProbeSkipped, i, 1, facts_.skipped[i]);
  SampleCgroups(true, rows);

  timespec own;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  Add(rows, t, Metric::kOwnCpuNs, 0,
      static_cast<uint64_t>(own.tv_sec) * 1'000'000'000 +
          static_cast<uint64_t>(own.tv_nsec));
  for (size_t cpu = 0; cpu < cpu_states_.size(); ++cpu) {
    const ingero_cpu_state& c = cpu_states_[cpu];
    Add(rows, t, Metric::kSwitchesSeen, cpu,
        __atomic_load_n(&c.switches_seen, __ATOMIC_RELAXED));
    if (!facts_.scope.empty())
      Add(rows, t, Metric::kSwitchesLeftOut, cpu,
          __atomic_load_n(&c.switches_left_out, __ATOMIC_RELAXED));
    if (facts_.raw_pages)
      Add(rows, t, Metric::kAllocationsSeen, cpu,
          __atomic_load_n(&c.pages_seen, __ATOMIC_RELAXED));
  }
}

void Sampler::SampleXids(Rows* rows) {
  if (!xids_) return;
  for (const Xid& x : xids_->Read())
    Add(rows, NowNs(), Metric::kGpuXid, 0, x.number, x.line);
}

void Sampler::SampleCgroups(bool all, Rows* rows) {
  const uint64_t t = NowNs();
  if (!controller_ || (!all && t < next_cgroups_ns_)) return;
  const std::vector<QuotaGroup> groups = FindQuotaGroups(*controller_);
  for (const QuotaGroup& g : groups) {
    std::optional<CpuStat> s;
    if (g.quota && !(s = ParseCpuStat(Read(g.stat_file.c_str())))) continue;
    const uint64_t periods = s ? s->periods : 0;
    const auto [last, is_new] = periods_.try_emplace(g.id, periods);
    if (!all && !is_new && last->second == periods) continue;
    last->second = periods;
    Add(rows, t, Metric::kCgroupQuotaAbove, g.id, g.above, g.path);
    if (!s) continue;
    Add(rows, t, Metric::kCgroupQuotaNs, g.id, g.quota->quota_ns);
    Add(rows, t, Metric::kCgroupPeriodNs, g.id, g.quota->period_ns);
    Add(rows, t, Metric::kCgroupPeriods, g.id, s->periods, g.path);
    Add(rows, t, Metric::kCgroupThrottled, g.id, s->throttled);
    Add(rows, t, Metric::kCgroupThrottledNs, g.id, s->throttled_ns);
  }
  if (periods_.size() > 2 * groups.size() + 1024) periods_.clear();  // gone
  next_cgroups_ns_ = t + (NowNs() - t) * kCgroupShare;
}

}  // namespace ingero::kernel_probe
