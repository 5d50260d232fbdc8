// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <unordered_map>

#include "base/text.h"
#include "import/import.h"
#include "import/stream_file.h"

namespace ingero::import {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
// Where imported times begin on what stands for CLOCK_MONOTONIC.
constexpr int64_t kFirstNs = 10 * kSecondNs;
// Later than this is a time since 1970 (2001), whatever the file says.
constexpr int64_t kSinceEpochNs = 1'000'000'000 * kSecondNs;
constexpr int64_t kLongestNs = 30 * 86'400 * kSecondNs;
// Whole microseconds are rounded, so that a call may end after the next begins.
constexpr int64_t kRoundingNs = 2'000;
constexpr int64_t kMostDurationNs = int64_t{1} << 47;  // of a record
constexpr uint64_t kTickNs = 10'000'000;  // of clock_ticks_per_s
constexpr uint64_t kNamespace = 4026531836;            // the first one's
constexpr size_t kMostName = 2048;
constexpr uint32_t kMostFunctions = 4096;

struct KnownFunction {
  const char* name;
  ingero_class call_class;
  ingero_layer layer;
};
// What the shim knows of functions: class by name.
constexpr KnownFunction kFunctions[] = {
#define DRIVER(sym, ret, n, kinds, cls, ...) \
  {#sym, INGERO_CLASS_##cls, INGERO_LAYER_DRIVER},
#define ROW(sym, ret, n, kinds, cls, ...) \
  {#sym, INGERO_CLASS_##cls, INGERO_LAYER_RUNTIME},
#define RUNTIME_11 ROW
#define RUNTIME_11_12 ROW
#define RUNTIME_11_12_13 ROW
#define RUNTIME_12 ROW
#define RUNTIME_12_13 ROW
#define RUNTIME_13 ROW
#include "preload/cuda_api.def"
#undef DRIVER
#undef ROW
#undef RUNTIME_11
#undef RUNTIME_11_12
#undef RUNTIME_11_12_13
#undef RUNTIME_12
#undef RUNTIME_12_13
#undef RUNTIME_13
};

ingero_class ClassOfGpu(ingero_gpu_kind kind) {
  switch (kind) {
    case INGERO_GPU_KERNEL: return INGERO_CLASS_LAUNCH;
    case INGERO_GPU_COPY: return INGERO_CLASS_COPY_ASYNC;
    case INGERO_GPU_MEMSET: return INGERO_CLASS_MEMSET_ASYNC;
  }
  return INGERO_CLASS_OTHER;
}

bool Submits(uint8_t call_class) {
  switch (call_class) {
    case INGERO_CLASS_LAUNCH:
    case INGERO_CLASS_GRAPH_LAUNCH:
    case INGERO_CLASS_COPY:
    case INGERO_CLASS_COPY_ASYNC:
    case INGERO_CLASS_MEMSET:
    case INGERO_CLASS_MEMSET_ASYNC:
    case INGERO_CLASS_PREFETCH: return true;
    default: return false;
  }
}

// "cudaLaunchKernel_v7000", as Nsight Systems has it: the version since when.
std::string_view WithoutVersion(std::string_view name) {
  const size_t at = name.rfind("_v");
  if (at == name.npos || name.size() - at < 6) return name;
  for (const char c : name.substr(at + 2))
    if (c < '0' || c > '9') return name;
  return name.substr(0, at);
}

// As a name can be written: one line, of bounded length, never empty.
std::string NameFor(const std::string& text) {
  const std::string name = SanitizeForTerminal(text, kMostName);
  return name.empty() ? "?" : name;
}

// What one call gave the GPU.
struct Given {
  int64_t end = INT64_MIN;
  const GpuWork* first = nullptr;
};

struct Function {
  uint16_t id = 0;
  uint8_t call_class = INGERO_CLASS_OTHER;
};

// Of one process, in the order in which its calls end.
struct Call {
  const HostCall* call;
  int64_t begin, end;
  uint8_t depth = 0;
};

// Nested calls within what contains them, and depths.
std::vector<Call> Ordered(const std::vector<const HostCall*>& calls) {
  std::vector<Call> out;
  for (const HostCall* c : calls) out.push_back({c, c->begin, c->end});
  std::stable_sort(out.begin(), out.end(), [](const Call& a, const Call& b) {
    if (a.call->tid != b.call->tid) return a.call->tid < b.call->tid;
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<size_t> open;
  for (size_t i = 0; i < out.size(); ++i) {
    Call& c = out[i];
    if (i > 0 && out[i - 1].call->tid != c.call->tid) open.clear();
    while (!open.empty()) {
      Call& outer = out[open.back()];
      if (outer.end > c.begin && outer.end < c.end &&
          outer.end - c.begin <= kRoundingNs)
        outer.end = c.begin;
      if (outer.end > c.begin) break;
      open.pop_back();
    }
    if (!open.empty()) c.end = std::min(c.end, out[open.back()].end);
    c.depth = static_cast<uint8_t>(std::min<size_t>(open.size(), 255));
    open.push_back(i);
  }
  std::stable_sort(out.begin(), out.end(), [](const Call& a, const Call& b) {
    // Inner ones return first.
    return a.end != b.end ? a.end < b.end : a.depth > b.depth;
  });
  return out;
}

class Writer {
 public:
  Writer(const Events& events, const std::string& folder,
         const Placement* placement)
      : events_(events), folder_(folder), placement_(placement) {
    for (const KnownFunction& f : kFunctions) known_.emplace(f.name, &f);
  }

  Result<Written> Run() {
    INGERO_RETURN_IF_ERROR(FindSpan());
    Match();
    std::map<uint32_t, std::vector<const HostCall*>> by_pid;
    for (const HostCall& c : events_.calls) by_pid[c.pid].push_back(&c);
    for (const auto& [pid, calls] : by_pid)
      INGERO_RETURN_IF_ERROR(WriteProcess(pid, calls));
    written_.processes = by_pid.size();
    return written_;
  }

 private:
  Status FindSpan() {
    int64_t begin = INT64_MAX, end = INT64_MIN;
    const auto seen = [&](const auto& e) {
      begin = std::min(begin, e.begin);
      end = std::max(end, e.end);
    };
    for (const HostCall& c : events_.calls) seen(c);
    for (const GpuWork& w : events_.gpu) seen(w);
    for (const HostRange& r : events_.ranges) seen(r);
    if (begin < -kSinceEpochNs * 4 || end > kSinceEpochNs * 8 ||
        end - begin > kLongestNs)
      return Wrong("its times cannot be true: from " + std::to_string(begin) +
                   " to " + std::to_string(end) + " ns");
    shift_ = placement_ == nullptr ? kFirstNs - begin
                                   : events_.real_ns_at_zero -
                                         placement_->real_minus_clock_ns;
    first_ns_ = begin + shift_;
    const int64_t real = events_.real_ns_at_zero + begin;
    // When it was imported says nothing of when it was recorded.
    real_ns_ = real > kSinceEpochNs ? real : 0;
    // One boot for all of a file, and another one for each file.
    boot_ = std::hash<std::string>()(events_.host + events_.source) ^
            static_cast<uint64_t>(begin) * 0x9e3779b97f4a7c15u ^
            static_cast<uint64_t>(end - begin);
    if (placement_ != nullptr) boot_ = placement_->boot;
    return {};
  }

  static uint64_t KeyOf(uint32_t pid, uint64_t correlation) {
    return uint64_t{pid} << 40 ^ correlation;
  }

  // GPU work to calls. Where the file does not say whose work is, and two
  // processes have a call with its number, it is nobody's.
  void Match() {
    const bool pids =
        std::any_of(events_.gpu.begin(), events_.gpu.end(),
                    [](const GpuWork& w) { return w.pid != 0; });
    std::unordered_map<uint64_t, std::optional<const HostCall*>> by_number;
    for (const HostCall& c : events_.calls) {
      if (c.correlation == 0) continue;
      const auto [at, added] =
          by_number.emplace(KeyOf(pids ? c.pid : 0, c.correlation), &c);
      if (added || !at->second) continue;
      // A driver's call within a runtime's may have its number: the outer one.
      const HostCall& first = **at->second;
      if (first.pid != c.pid)
        at->second = std::nullopt;
      else if (c.begin < first.begin || c.end > first.end)
        at->second = c.begin <= first.begin && c.end >= first.end
                         ? std::optional(&c)
                         : std::nullopt;
    }
    for (const GpuWork& w : events_.gpu) {
      const auto at =
          by_number.find(KeyOf(pids ? w.pid : 0, w.correlation));
      if (w.correlation == 0 || at == by_number.end() || !at->second) {
        ++written_.unmatched;
        if (w.pid != 0) works_[w.pid].emplace_back(&w, nullptr);
        continue;
      }
      const HostCall* const call = *at->second;
      Given& g = given_[call];
      if (g.first == nullptr) g.first = &w;
      g.end = std::max(g.end, w.end);
      works_[call->pid].emplace_back(&w, call);
    }
  }

  Status WriteProcess(uint32_t pid, const std::vector<const HostCall*>& calls) {
    const std::vector<Call> ordered = Ordered(calls);
    auto h = Zeroed<ingero_stream_header>();
    h.stream_id = (boot_ ^ pid) | 1;
    std::memcpy(h.boot_id, &boot_, sizeof(boot_));
    int64_t first = INT64_MAX;
    for (const Call& c : ordered) first = std::min(first, c.begin);
    h.created_mono_ns = U(first);
    if (real_ns_ != 0)
      h.created_real_ns =
          static_cast<uint64_t>(real_ns_ + first + shift_ - first_ns_);
    h.pid = pid;
    h.clock_ticks_per_s = 100;
    if (placement_ != nullptr)
      if (const auto born = placement_->born_ns.find(pid);
          born != placement_->born_ns.end())
        h.start_clock_ticks = static_cast<uint64_t>(born->second) / kTickNs;
    h.pid_namespace = kNamespace;
    const auto named = events_.processes.find(pid);
    const std::string name =
        named == events_.processes.end() ? "imported" : NameFor(named->second);
    CopyText(h.comm, name);
    CopyText(h.host, events_.host.empty() ? "imported" : events_.host);
    INGERO_ASSIGN_OR_RETURN(
        StreamFile file,
        StreamFile::Create(fmt::format("{}/cuda-{}-1.ingero", folder_, pid), h));
    owner_ = pid;
    functions_.clear();
    kernels_.clear();

    auto from = Zeroed<ingero_coverage>();
    from.way = INGERO_WAY_IMPORTED;
    const auto works = works_.find(pid);
    from.detail = works != works_.end();
    INGERO_RETURN_IF_ERROR(
        file.AddText(pid, INGERO_RECORD_COVERAGE, from, events_.source));
    auto process = Zeroed<ingero_process>();
    const std::string texts = name + '\0' + '\0';
    process.text_bytes = static_cast<__u32>(texts.size());
    INGERO_RETURN_IF_ERROR(
        file.Add(pid, INGERO_RECORD_PROCESS, 0, process, texts));
    for (const auto& [key, thread] : events_.threads) {
      if (key.first != pid) continue;
      auto t = Zeroed<ingero_thread>();
      t.tid = key.second;
      t.start_ticks = U(first);
      CopyText(t.comm, NameFor(thread));
      INGERO_RETURN_IF_ERROR(
          file.Add(key.second, INGERO_RECORD_THREAD, 0, t));
    }
    for (const Call& c : ordered) INGERO_RETURN_IF_ERROR(WriteCall(&file, c));
    if (works != works_.end())
      for (const auto& [work, call] : works->second)
        INGERO_RETURN_IF_ERROR(WriteWork(&file, pid, *work, call));
    INGERO_RETURN_IF_ERROR(WriteRanges(&file, pid));
    return file.Finish();
  }

  uint64_t U(int64_t t) const { return static_cast<uint64_t>(t + shift_); }
  static uint64_t Length(int64_t begin, int64_t end) {
    return static_cast<uint64_t>(
        std::clamp<int64_t>(end - begin, 0, kMostDurationNs));
  }

  Status WriteCall(StreamFile* file, const Call& c) {
    const auto found = given_.find(c.call);
    const Given* const given = found == given_.end() ? nullptr : &found->second;
    INGERO_ASSIGN_OR_RETURN(
        const Function f,
        FunctionOf(file, c.call->name,
                   given == nullptr ? INGERO_CLASS_OTHER
                                    : ClassOfGpu(given->first->kind)));
    auto record = Zeroed<ingero_call>();
    record.func = f.id;
    record.result = c.call->result;
    record.start_ticks = U(c.begin);
    const uint64_t duration = Length(c.begin, c.end);
    record.duration_lo = static_cast<__u32>(duration);
    record.duration_hi = static_cast<__u16>(duration >> 32);
    record.depth = c.depth;
    uint8_t flags = 0;
    std::string words;
    const auto word = [&](uint64_t v) {
      words.append(reinterpret_cast<const char*>(&v), sizeof(v));
    };
    if (Submits(f.call_class)) {
      const GpuWork* const w = given == nullptr ? nullptr : given->first;
      uint64_t what = 0;
      if (w != nullptr && f.call_class == INGERO_CLASS_LAUNCH) {
        INGERO_ASSIGN_OR_RETURN(what, KernelOf(file, c.call->pid, w->name));
      } else if (w != nullptr) {
        what = w->bytes;
        flags = static_cast<uint8_t>(
            w->host_memory | w->direction << INGERO_CALL_DIRECTION_SHIFT);
      }
      word(what);
      word(w == nullptr ? 0 : w->stream);
      word(w == nullptr
               ? 0
               : uint64_t{w->device} << INGERO_GPU_WORK_DEVICE_SHIFT |
                     std::max<uint64_t>(1, Length(c.begin, given->end)));
    }
    ++written_.calls;
    return file->Add(c.call->tid, INGERO_RECORD_CALL, flags, record, words);
  }

  Status WriteWork(StreamFile* file, uint32_t pid, const GpuWork& w,
                   const HostCall* call) {
    auto a = Zeroed<ingero_gpu_activity>();
    a.device = static_cast<__u16>(w.device);
    a.direction = static_cast<__u16>(w.direction);
    a.start_ticks = U(w.begin);
    a.duration_ticks = Length(w.begin, w.end);
    a.stream = w.stream;
    if (w.name != 0) {
      INGERO_ASSIGN_OR_RETURN(a.kernel, KernelOf(file, pid, w.name));
    }
    a.bytes = w.bytes;
    a.call_ticks = call == nullptr ? 0 : U(call->begin);
    ++written_.gpu_activities;
    return file->Add(pid, INGERO_RECORD_GPU_ACTIVITY,
                     static_cast<uint8_t>(w.kind), a);
  }

  Status WriteRanges(StreamFile* file, uint32_t pid) {
    std::unordered_map<uint32_t, uint32_t> names;
    const auto name = [&](uint32_t text) -> Result<uint32_t> {
      if (text == 0) return uint32_t{0};
      const auto [at, added] =
          names.emplace(text, static_cast<uint32_t>(names.size() + 1));
      if (added) {
        auto n = Zeroed<ingero_nvtx_name>();
        n.id = at->second;
        INGERO_RETURN_IF_ERROR(file->AddText(pid, INGERO_RECORD_NVTX_NAME, n,
                                             NameFor(events_.texts[text])));
      }
      return at->second;
    };
    std::vector<const HostRange*> ranges;
    for (const HostRange& r : events_.ranges)
      if (r.pid == pid && r.tid != 0) ranges.push_back(&r);
    std::stable_sort(ranges.begin(), ranges.end(),
                     [](const HostRange* a, const HostRange* b) {
                       return a->end < b->end;
                     });
    for (const HostRange* r : ranges) {
      auto n = Zeroed<ingero_nvtx>();
      INGERO_ASSIGN_OR_RETURN(n.name, name(r->name));
      INGERO_ASSIGN_OR_RETURN(n.domain, name(r->domain));
      n.start_ticks = U(r->begin);
      n.duration_ticks = Length(r->begin, r->end);
      INGERO_RETURN_IF_ERROR(
          file->Add(r->tid, INGERO_RECORD_NVTX, INGERO_NVTX_NESTED, n));
      ++written_.ranges;
    }
    return {};
  }

  // `guess`: of what a function did that the shim does not know.
  Result<Function> FunctionOf(StreamFile* file, uint32_t text,
                              ingero_class guess) {
    if (const auto at = functions_.find(text); at != functions_.end())
      return at->second;
    if (functions_.size() >= kMostFunctions)
      return Wrong("it has more than " + std::to_string(kMostFunctions) +
                   " names of CUDA functions, which cannot be true");
    const std::string name = NameFor(events_.texts[text]);
    const auto known = known_.find(WithoutVersion(name));
    Function f;
    f.id = static_cast<uint16_t>(functions_.size() + 1);
    f.call_class = static_cast<uint8_t>(
        known == known_.end() ? guess : known->second->call_class);
    auto n = Zeroed<ingero_name>();
    n.func = f.id;
    n.layer = static_cast<__u8>(
        known != known_.end()       ? known->second->layer
        : name.starts_with("cuda") ? INGERO_LAYER_RUNTIME
        : name.starts_with("cu")   ? INGERO_LAYER_DRIVER
                                   : INGERO_LAYER_RUNTIME);
    n.func_class = f.call_class;
    if (Submits(f.call_class)) {
      n.words[0] = f.call_class == INGERO_CLASS_LAUNCH ? INGERO_WORD_KERNEL
                                                       : INGERO_WORD_BYTES;
      n.words[1] = INGERO_WORD_STREAM;
      n.words[2] = INGERO_WORD_GPU_WORK;
    }
    INGERO_RETURN_IF_ERROR(
        file->AddText(owner_, INGERO_RECORD_NAME, n,
                      std::string(WithoutVersion(name))));
    functions_.emplace(text, f);
    return f;
  }

  Result<uint64_t> KernelOf(StreamFile* file, uint32_t pid, uint32_t text) {
    if (text == 0) return uint64_t{0};
    const auto [at, added] = kernels_.emplace(text, kernels_.size() + 1);
    if (added) {
      auto k = Zeroed<ingero_kernel>();
      k.kernel = at->second;
      INGERO_RETURN_IF_ERROR(file->AddText(pid, INGERO_RECORD_KERNEL, k,
                                           NameFor(events_.texts[text])));
    }
    return at->second;
  }

  // With the file, not with what is written of it.
  Status Wrong(const std::string& what) const {
    return Status::Error(what).In(events_.path);
  }

  const Events& events_;
  const std::string folder_;
  std::unordered_map<std::string_view, const KnownFunction*> known_;
  const Placement* const placement_;
  int64_t shift_ = 0;
  int64_t real_ns_ = 0;   // of the first event; 0 = not told
  int64_t first_ns_ = 0;  // the first event's time, as written
  uint64_t boot_ = 0;
  std::unordered_map<const HostCall*, Given> given_;
  std::map<uint32_t, std::vector<std::pair<const GpuWork*, const HostCall*>>>
      works_;  // by pid
  Written written_;
  // Of the process being written.
  std::unordered_map<uint32_t, Function> functions_;  // by text
  std::unordered_map<uint32_t, uint64_t> kernels_;    // by text
  uint32_t owner_ = 0;  // its pid
};

}  // namespace

Result<Written> WriteStreams(Events events, const std::string& folder,
                             const Placement* placement) {
  // Without a process or a thread nothing can be joined.
  std::erase_if(events.calls, [](const HostCall& c) {
    return c.pid == 0 || c.tid == 0 || c.end < c.begin;
  });
  if (events.calls.empty())
    return Status::Error("it has no CUDA call of a known process and thread")
        .In(events.path);
  return Writer(events, folder, placement).Run();
}

}  // namespace ingero::import
