// SPDX-License-Identifier: Apache-2.0
#include "report_fixtures.h"

#include <string>

namespace ingero::cli {
namespace {

using namespace analysis;  // NOLINT: every name here is of the report

constexpr Ns kBegin{1'000'000'000'000};  // span begin on CLOCK_MONOTONIC
Ns Ms(int64_t ms) { return Ns(ms * 1'000'000); }
Ns Us(int64_t us) { return Ns(us * 1'000); }
Interval Window(int64_t from_ms, int64_t to_ms) {
  return {kBegin + Ms(from_ms), kBegin + Ms(to_ms)};
}

Process MakeProcess(uint32_t pid, std::string name, std::string cmdline,
                    ProcessIndex parent = kNone) {
  Process p;
  p.pid = p.ns_pid = pid;
  p.start = kBegin - Ms(5000) + Ns(pid);
  p.first_seen = kBegin;
  p.last_seen = kBegin + Ms(43'300);
  p.name = std::move(name);
  p.cmdline = std::move(cmdline);
  p.exe = "/usr/bin/python3.11";
  p.parent = parent;
  return p;
}

Operation MakeOperation(FuncIndex func, ProcessIndex process, uint64_t count,
                        Ns p50, Ns max, double wall_share) {
  Operation o;
  o.func = func;
  o.process = process;
  o.count = count;
  o.p50 = p50;
  o.p95 = p50 * 3;
  o.p99 = p50 * 9;
  o.max = max;
  o.total = p50 * static_cast<int64_t>(count) * 2;
  o.average = p50 * 2;
  o.wall_share = wall_share;
  return o;
}

ProcessActivity MakeActivity(ProcessIndex process, std::string role, Ns running,
                             Ns runnable) {
  ProcessActivity a;
  a.process = process;
  a.role = std::move(role);
  a.preempted = 1'204 + process;
  a.slept = 8'815;
  a.yielded = 3;
  a.running = running;
  a.runnable = runnable;
  a.sleeping = Ms(20'000);
  a.io = Ms(120);
  a.average_off_cpu = Us(2'310);
  a.worst_off_cpu = Ms(311);
  a.pages = 402'117;
  a.min_faults = 390'001;
  a.maj_faults = 12;
  return a;
}

TraceFacts Facts() {
  TraceFacts f;
  f.host = "gpu-17";
  f.boot_id = "0c3f5a7e-2b1d-4e60-9a8f-1d2c3b4a5f60";
  f.tool_version = "0.1.0";
  f.store_path = "/traces/20261129-220035-1a2b.store";
  f.wall_clock_at_span_begin_ns = 1'795'989'635'000'000'000;
  f.cpus = 4;
  f.clock_error = Ns(412);
  f.events = 1'690'112;
  f.tracing_cost = Ms(86);
  f.switches = 878'108;
  f.companion_cost = Us(175'622);
  f.streams = {"CUDA calls of python3/2254: 812,004 calls",
               "Kernel scheduling of gpu-17: 878,108 switches"};
  return f;
}

// The published case: a DataLoader with more workers than CPUs.
Report Oversubscribed() {
  Report r;
  r.span = r.window = Window(0, 43'300);
  r.facts = Facts();
  r.facts.coverage = {
      {kNone,
       "CUDA calls of 1 process and scheduling of all CPUs cover the whole "
       "time."}};
  r.processes = {
      MakeProcess(2254, "python3", "python3 benchmark.py --workers 4"),
      MakeProcess(2255, "pt_data_worker", "python3 benchmark.py --workers 4",
                  0),
      MakeProcess(2256, "pt_data_worker", "python3 benchmark.py --workers 4",
                  0),
      MakeProcess(1, "systemd", "/sbin/init"),
      MakeProcess(900, "ingero-kprobe", "ingero-kprobe"),
      MakeProcess(77, "kworker/0:1", "")};
  r.processes[0].has_cuda = true;
  r.processes[4].is_ingero = true;
  r.processes[1].exited = kBegin + Ms(43'000);
  r.processes[1].exit_code = 0;
  r.functions = {
      {"cudaLaunchKernel", Layer::kRuntime, CallClass::kLaunch},
      {"cudaStreamSynchronize", Layer::kRuntime, CallClass::kSyncStream},
      {"cuLaunchKernel_ptsz", Layer::kDriver, CallClass::kLaunch},
      {"cudaMemcpyAsync", Layer::kRuntime, CallClass::kCopyAsync}};
  Feeding f;
  f.process = 0;
  f.span = Ms(43'100);
  f.idle_at_least = Ms(38'200);
  f.idle_at_most = Ms(39'000);
  f.known_busy = Ms(4'100);
  f.cold_start = Ms(460);
  f.host_copy = Ms(210);
  r.feeding = {f};
  r.operations = {MakeOperation(1, 0, 4'200, Us(25), Ms(42), 0.05),
                  MakeOperation(0, 0, 123'456, Us(6), Us(900), 0.031),
                  MakeOperation(2, 0, 123'456, Us(4), Us(800), 0),
                  MakeOperation(3, 0, 8'400, Us(16), Ms(2), 0.004)};
  r.operations[1].first_uses = 214;
  r.operations[1].first_use_time = Ms(61);
  r.operations[3].first_uses = 2;
  r.operations[3].first_use_time = Ms(350);
  r.operations[3].errors = 1;
  r.operations[3].bytes = 3'440'640'000;
  r.activities = {MakeActivity(0, "main", Ms(9'800), Ms(3'400)),
                  MakeActivity(1, "worker", Ms(30'100), Ms(11'900)),
                  MakeActivity(2, "worker", Ms(31'100), Ms(10'900)),
                  MakeActivity(3, "other", Ms(12), Ms(1)),
                  MakeActivity(4, "ingero", Ms(410), Ms(20))};
  r.activities.emplace_back().process = 5;  // did nothing
  r.activities.back().role = "other";
  r.activities[0].calls = 259'512;
  r.verdict =
      "GPU starved 38.2 s of 43.3 s. The main thread waited 31.0 s for "
      "pt_data_worker/2255, which was runnable but without a CPU 61 % of that "
      "time (CPUs held by pt_data_worker/2256).";

  Finding found;
  found.id = "loader-oversubscribed/2254";
  found.cause = "loader-oversubscribed";
  found.severity = Severity::kHigh;
  found.claim =
      "The main thread waited 31.0 s for loader workers that had no CPU: 4 "
      "workers and the main thread share 4 CPUs.";
  found.pid = 2254;
  found.lost = Ms(31'000);
  found.lost_at_most = Ms(31'600);
  found.base = Ms(43'100);
  found.windows = {Window(120, 22'000), Window(22'400, 43'000)};
  found.timeline = {
      {TimelineLine::Layer::kSystem, Ms(120),
       "All 4 CPUs are busy; pt_data_worker/2255 waits 14 ms for one."},
      {TimelineLine::Layer::kHost, Ms(134),
       "python3/2254 sleeps in poll until pt_data_worker/2255 wakes it."},
      {TimelineLine::Layer::kCuda, Ms(160),
       "cudaMemcpyAsync ends 38 ms without work for the GPU."}};
  found.culprits = {
      {2256, r.processes[2].start, "pt_data_worker/2256", 0.61, Ms(18'910)},
      {2255, r.processes[1].start, "pt_data_worker/2255", 0.39, Ms(12'090)}};
  Evidence e;
  e.text = "The main thread slept 31.0 s of the 38.2 s without work.";
  e.name = "asleep_ns";
  e.value = 31e9;
  e.unit = "ns";
  e.window = r.window;
  e.query =
      "ingero dump /traces/run1.store --table path --from 0.120s --to 22.000s "
      "--db '/a  b/it'\\''s.store'";
  Evidence ratio;
  ratio.text = "Workers were runnable without a CPU 61 % of that time.";
  ratio.name = "runnable_share";
  ratio.value = 0.61;
  ratio.unit = "ratio";
  ratio.window = r.window;
  found.evidence = {e, ratio};
  found.recommendations = {
      {"Use num_workers=3 or give the job more CPUs.", Ms(18'910)},
      {"Keep workers alive between epochs (persistent_workers=True).", Ns(0)}};
  found.symptoms = {"cudaStreamSynchronize p99 225 us against p50 25 us"};
  found.native_samples = 290;
  found.native = {{"/usr/lib/libjpeg.so.8", "jpeg_fill_bit_buffer", 0, 116,
                   0.4, ""},
                  {"/usr/lib/libtorch_cpu.so", "", 0, 58, 0.2, ""}};
  found.code_samples = 310;
  found.code = {{"/home/me/project/train.py", "train_step", 214, 192, 0.62, ""},
                {"/home/me/project/data.py", "Photos.__getitem__", 41, 65, 0.21,
                 "functional.py:89 in rotate"},
                {"<string>", "made", 0, 31, 0.1, ""}};
  r.facts.code_hz = 50;
  r.facts.code_samples = 2'155;
  r.facts.code_cost = Ms(22);
  found.confidence = Confidence::kHigh;
  found.coverage = "complete";

  Finding copies;
  copies.id = "pageable-copy/2254";
  copies.cause = "pageable-copy";
  copies.severity = Severity::kInfo;
  copies.claim = "8,400 copies from pageable memory held the host for 210 ms.";
  copies.pid = 2254;
  copies.lost = copies.lost_at_most = Ms(210);
  copies.base = Ms(43'100);
  copies.coverage = "complete";
  found.outside_windows = Ms(1'580);
  r.findings = {found, copies};
  analysis::Account a;
  a.process = 0;
  a.starved = Ms(38'200);
  a.causes = {{"loader-oversubscribed", Ms(31'000)},
              {"pageable-copy", Ms(210)}};
  a.below = Ms(6'890);
  a.unexplained = Ms(100);
  a.unseen = Ms(40);
  a.waited_for_ingero = Ms(12);
  a.held_by_ingero = {{4, Ms(12)}};
  r.accounts = {a};
  analysis::StepSummary steps;
  steps.process = 0;
  steps.func = 1;
  steps.submissions = 42;
  steps.count = 1'204;
  steps.range = Window(200, 43'000);
  steps.p50 = Ms(31);
  steps.p95 = Ms(40);
  steps.max = Ms(1'300);
  steps.starved = Ms(38'000);
  steps.not_known = Ms(600);
  steps.busy = Ms(4'200);
  steps.slow = 2;
  steps.slow_beyond = Ms(1'900);
  steps.slow_extra = {{"loader-oversubscribed", Ms(1'700)}};
  steps.slowest = {{700, Window(20'000, 21'300),
                    {{"loader-oversubscribed", Ms(1'200)}}},
                   {12, Window(600, 1'260), {{"gpu-busy", Ms(500)}}}};
  steps.text = "1,204 steps (from one cudaStreamSynchronize to the next, 42 "
               "submissions): p50 31 ms, p95 40 ms, max 1.3 s.";
  r.steps = {steps};
  r.threads = {{2254, 0, "python3"}, {2256, 2, "pt_data_worker"}};
  Chain chain;
  chain.process = 0;
  chain.func = 1;
  chain.severity = Severity::kHigh;
  chain.cause = found.cause;
  chain.p50 = Us(25);
  chain.p99 = Ms(42);
  chain.ratio = 1'680;
  chain.split_known = true;
  chain.calls = 43;
  chain.time = Ms(1'900);
  chain.runnable = Ms(1'400);
  chain.sleeping = Ms(400);
  chain.running = Ms(100);
  chain.holder = 1;
  chain.text =
      "cudaStreamSynchronize p99=42 ms (1,680x p50=25 us) in python3/2254: 43 "
      "that slow are known to have left the CPU; their time: 74 % ready without "
      "a CPU (most held by pt_data_worker/2256), 21 % asleep, 5.3 % running. What the program's "
      "GPU lost most by: loader-oversubscribed, 31.0 s.";
  r.chains = {chain, chain};
  r.chains[1].func = 0;
  r.chains[1].split_known = false;
  r.chains[1].cause.clear();
  r.chains[1].severity = Severity::kInfo;
  r.not_evaluated = {{"gpu-throttled", "no GPU samples were recorded"},
                     {"gpu-shared", "no GPU samples were recorded"},
                     {"cgroup-quota", "no quota is set"}};
  return r;
}

// The GPU never waited: an answer too.
Report GpuBound() {
  Report r;
  r.span = Window(0, 43'300);
  r.window = Window(13'300, 43'300);
  r.facts = Facts();
  r.processes = {MakeProcess(41, "python3", "python3 train.py")};
  r.processes[0].has_cuda = true;
  r.processes[0].ns_pid = 7;
  r.functions = {
      {"cudaDeviceSynchronize", Layer::kRuntime, CallClass::kSyncDevice}};
  Feeding f;
  f.process = 0;
  f.span = Ms(30'000);
  f.idle_at_least = Ms(20);
  f.idle_at_most = Ms(110);
  f.known_busy = Ms(29'890);
  r.feeding = {f};
  r.operations = {MakeOperation(0, 0, 600, Ms(24), Ms(51), 0.97)};
  r.verdict =
      "GPU-bound, not starved: the host waited for the GPU 29.9 s of 30.0 s.";
  Finding found;
  found.id = "gpu-bound/41";
  found.cause = "gpu-bound";
  found.claim = "The GPU was busy for all but 110 ms; the host only waits.";
  found.pid = 41;
  found.confidence = Confidence::kHigh;
  found.coverage = "complete";
  r.findings = {found};
  return r;
}

// No companion, and calls were lost.
Report CudaOnlyWithLosses() {
  Report r = GpuBound();
  r.window = r.span;
  r.complete = false;
  r.facts.wall_clock_at_span_begin_ns = 0;
  r.facts.cpus = 0;
  r.facts.clock_error = Ns(0);
  r.facts.host.clear();
  r.facts.streams = {"CUDA calls of python3/41: 600 calls"};
  r.facts.missing = {
      "No kernel stream: who held the CPUs cannot be judged; run sudo "
      "ingero-kprobe beside the program."};
  Loss lost;
  lost.range = Window(1'200, 1'260);
  lost.id = "write-failed";
  lost.text =
      "a full buffer could not be written out; free disk space or set "
      "INGERO_DIR elsewhere";
  lost.count = 1'204;
  lost.process = 0;
  r.losses = {lost, lost};
  r.losses[1].range = Window(3'000, 3'400);
  r.losses[1].count = 6;
  Loss notice = lost;
  notice.id = "torn-tail";
  notice.text =
      "a stream's end is missing (its writer was killed, or the file was cut)";
  notice.severity = 1;
  notice.count = 1;
  r.losses.push_back(notice);
  r.findings.clear();
  r.verdict = "Unexplained by host data: scheduling was not recorded.";
  r.not_evaluated = {{"loader-oversubscribed", "no kernel stream"},
                     {"cpu-other-process", "no kernel stream"}};
  return r;
}

// Only the companion ran.
Report KernelOnly() {
  Report r;
  r.span = r.window = Window(0, 1'500);
  r.facts = Facts();
  r.facts.missing = {"No CUDA stream: GPU feeding cannot be judged."};
  r.processes = {MakeProcess(10, "bash", "-bash")};
  r.activities = {MakeActivity(0, "other", Ms(200), Ms(1))};
  r.verdict = "No CUDA calls were recorded, so nothing can be said of a GPU.";
  return r;
}

// Everything that a traced program can name itself.
Report Hostile() {
  Report r = Oversubscribed();
  const std::string escape =
      "\x1b]0;owned\x07\x1b[2J\x9b"
      "31mred\r\nbelow";
  const std::string bidi =
      "ab\xe2\x80\xae"
      "cod.exe\xe2\x80\x8b\xef\xbb\xbf";
  const std::string broken = "\xff\xfe\xc0\xaf\xed\xa0\x80 \xf0\x9f\x92";
  const std::string wide = "\xe8\xa8\x93\xe7\xb7\xb4\xe3\x83\x87\xe3\x83\xbc";
  const std::string endless(5'000, 'k');
  r.processes[0].cmdline = escape + " " + endless;
  r.processes[1].name = bidi;
  r.processes[2].name = wide + endless;
  r.processes[3].name = broken;
  r.functions[0].name = "_Z" + endless + "v";
  r.functions[3].name = escape;
  r.facts.host = escape;
  r.verdict += " " + bidi + endless;
  r.findings[0].claim += " " + escape;
  r.findings[0].culprits[0].name = endless;
  r.findings[0].culprits[1].name = bidi;
  r.findings[0].timeline[0].text = endless + escape;
  r.findings[0].symptoms = {endless};
  r.findings[0].native[0].file = "/x/" + escape;
  r.findings[0].native[0].function = endless;
  r.findings[0].native[1].file = bidi;
  r.findings[0].native[1].function = broken;
  r.findings[0].code[0].file = "/x/" + escape;
  r.findings[0].code[0].function = endless;
  r.findings[0].code[1].file = broken;
  r.findings[0].code[1].function = bidi;
  r.threads[1].name = escape;
  r.chains[0].text = endless + " " + bidi + escape;
  r.findings[0].evidence[0].query = escape;
  return r;
}

Report Nothing() { return Report(); }

constexpr Story kStories[] = {
    {"loader-oversubscribed", Oversubscribed},
    {"gpu-bound", GpuBound},
    {"cuda-only-with-losses", CudaOnlyWithLosses},
    {"kernel-only", KernelOnly},
    {"hostile-names", Hostile},
    {"nothing", Nothing},
};

}  // namespace

std::span<const Story> Stories() { return kStories; }

}  // namespace ingero::cli
