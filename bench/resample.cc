// SPDX-License-Identifier: Apache-2.0
// Streams of any length from a recording: its seconds, drawn at random (each as
// likely as it has events, so busy ones more often) and put behind each other,
// for several copies of the machine beside each other. Calls and switches of
// a second stay together; between two seconds every CPU is idle for a moment.
//
//   build/bench/resample --events=100000000 [--lives=N] OUT_FOLDER [STORE]
//   build/bin/ingero merge --dir OUT_FOLDER -o OUT_FOLDER/big.store
//
// --lives: as many short processes (fork, exec, 50 us, exit) beside them, on
// CPUs of their own, as a host has that builds software.
// STORE: the kept H200 recording, unless named. Seeded: the same command
// writes the same events. Memory: the recording.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "base/tables.h"
#include "merge/trace_reader.h"
#include "wire/wire.h"

namespace ingero::bench {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBegin = 100 * kSecond;
constexpr uint32_t kCopies = 8;         // as many programs as such a host has GPUs
constexpr uint32_t kIdStep = 100'000;   // pids of one copy after those of another
constexpr int kBlocksASecond = 2;       // as ingero-kprobe flushes
constexpr size_t kFirstLife = 2'000'000, kMostLives = 900'000;  // pids
constexpr size_t kBlockRows = 4096;
constexpr uint64_t kDead = 0x10;  // EXIT_DEAD, as a switch shows it
constexpr uint64_t kNamespace = 4026531836;

struct Second {
  std::map<uint32_t, std::vector<std::vector<uint64_t>>> switches;  // by CPU
  std::map<uint32_t, std::vector<std::vector<uint64_t>>> calls;  // by process
  size_t events = 0;
};

struct Recording {
  std::unique_ptr<merge::TraceReader> reader;
  std::vector<Second> seconds;
  uint32_t cpus = 0;
  size_t events = 0;
};

// Column 0 becomes the offset in the second.
Recording Load(const std::string& store) {
  Recording r;
  auto reader = merge::OpenTrace(store);
  if (!reader.ok()) {
    fmt::print(stderr, "resample: {}\n", reader.status().message());
    std::exit(1);
  }
  r.reader = std::move(*reader);
  const merge::TraceReader& trace = *r.reader;
  const int64_t begin = trace.span().begin.value;
  r.seconds.resize(
      static_cast<size_t>(trace.span().length().value / kSecond));
  for (const TableSchema* schema :
       {&switch_table::kSchema, &call_table::kSchema}) {
    auto rows = trace.Cursor(*schema, trace.file().Table(schema->id),
                             trace.span());
    while (rows->Next()) {
      const auto second = static_cast<size_t>((rows->time() - begin) / kSecond);
      if (second >= r.seconds.size()) continue;
      Second& s = r.seconds[second];
      const bool call = schema == &call_table::kSchema;
      auto& list = call ? s.calls[rows->owner()] : s.switches[rows->owner()];
      list.emplace_back(rows->row().begin(), rows->row().end());
      list.back()[0] -=
          static_cast<uint64_t>(begin + static_cast<int64_t>(second) * kSecond);
      if (!call) r.cpus = std::max(r.cpus, rows->owner() + 1);
      ++s.events;
      ++r.events;
    }
  }
  return r;
}

ingero_stream_header Header(uint64_t magic, uint64_t id) {
  ingero_stream_header h;
  std::memset(&h, 0, sizeof(h));
  h.magic = magic;
  h.major = INGERO_WIRE_MAJOR;
  h.minor = 0;  // no checks: they are not what is measured
  h.header_bytes = INGERO_HEADER_BYTES;
  h.clock = INGERO_CLOCK_MONOTONIC;
  h.stream_id = id;
  h.created_mono_ns = kBegin;
  h.created_real_ns = 1'796'000'000u * uint64_t{kSecond};
  h.clock_ticks_per_s = 100;
  h.pid_namespace = kNamespace;
  h.exited = 1;
  std::strcpy(h.host, "resampled");
  std::strcpy(h.tool_version, INGERO_VERSION);
  return h;
}

template <typename T>
std::string Bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}
template <typename T>
std::string Record(uint8_t kind, T value, std::string more) {
  more = Bytes(value) + more;
  more.resize((more.size() + 7) / 8 * 8);
  ingero_record r;
  std::memcpy(&r, more.data(), sizeof(r));
  r.kind = kind;
  r.size8 = static_cast<uint16_t>(more.size() / 8);
  std::memcpy(more.data(), &r, sizeof(r));
  return more;
}
template <typename T>
T Zeroed() {
  T value;
  std::memset(&value, 0, sizeof(value));
  return value;
}

// One process's CUDA stream.
class CudaWriter {
 public:
  CudaWriter(const Recording& r, uint32_t process, uint32_t copy,
             const std::string& folder)
      : recording_(r), add_(copy * kIdStep) {
    const analysis::Process& p = r.reader->processes()[process];
    auto h = Header(INGERO_MAGIC_CUDA, 1000 + process * kCopies + copy);
    h.block_bytes = INGERO_BLOCK_BYTES;
    h.pid = p.pid + add_;
    h.start_clock_ticks = static_cast<uint64_t>(p.start.value) / 10'000'000;
    std::strncpy(h.comm, p.name.c_str(), sizeof(h.comm) - 1);
    out_.open(fmt::format("{}/cuda-{}-1.ingero", folder, h.pid),
              std::ios::binary);
    std::string block = Bytes(h);
    block.resize(INGERO_BLOCK_BYTES);
    out_ << block;
    Slot& main = slots_[h.pid];
    for (uint16_t f = 0; f < r.reader->functions().size(); ++f) {
      auto n = Zeroed<ingero_name>();
      n.func = static_cast<__u16>(f + 1);
      n.layer = static_cast<__u8>(r.reader->functions()[f].layer);
      n.func_class = static_cast<__u8>(r.reader->functions()[f].call_class);
      std::memcpy(n.words, r.reader->WordsOf(f).words, sizeof(n.words));
      Add(&main, h.pid,
          Record(INGERO_RECORD_NAME, n,
                 r.reader->functions()[f].name + '\0'));
    }
  }
  void Add(const std::vector<std::vector<uint64_t>>& calls, int64_t begin) {
    // Written as they return: the inner before the outer one.
    std::vector<const std::vector<uint64_t>*> order;
    for (const auto& row : calls)
      if (row[0] + row[call_table::kDuration] < kSecond) order.push_back(&row);
    std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) {
      return (*a)[0] + (*a)[call_table::kDuration] <
             (*b)[0] + (*b)[call_table::kDuration];
    });
    for (const auto* row : order) {
      using namespace call_table;
      auto c = Zeroed<ingero_call>();
      c.r.flags = static_cast<__u8>((*row)[kFlags] & ~INGERO_CALL_FIRST_USE);
      c.func = static_cast<__u16>((*row)[kFunc] + 1);
      c.result = static_cast<__u16>((*row)[kResult]);
      c.start_ticks = static_cast<uint64_t>(begin) + (*row)[0];
      c.duration_lo = static_cast<__u32>((*row)[kDuration]);
      c.depth = static_cast<__u8>((*row)[kDepth]);
      std::string words;
      const uint8_t* kinds =
          recording_.reader->WordsOf((*row)[kFunc]).words;
      for (size_t w = 0; w < 4 && kinds[w] != INGERO_WORD_NONE; ++w)
        words += Bytes((*row)[kWord0 + w]);
      const auto tid = static_cast<uint32_t>((*row)[kTid]) + add_;
      Add(&slots_[tid], tid, Record(INGERO_RECORD_CALL, c, words));
    }
  }
  void Finish() {
    for (auto& [tid, slot] : slots_) Flush(&slot, tid);
  }

 private:
  struct Slot {
    uint32_t number = 0;
    uint64_t sequence = 0;
    std::string records;
  };
  void Add(Slot* slot, uint32_t tid, const std::string& record) {
    if (slot->number == 0) slot->number = next_slot_++;
    if (slot->records.size() + record.size() >
        INGERO_BLOCK_BYTES - sizeof(ingero_block_header))
      Flush(slot, tid);
    slot->records += record;
  }
  void Flush(Slot* slot, uint32_t tid) {
    auto b = Zeroed<ingero_block_header>();
    b.magic = INGERO_MAGIC_BLOCK;
    b.type = INGERO_BLOCK_DATA;
    b.slot = slot->number;
    b.tid = tid;
    b.cursor = slot->sequence++ << 32 | slot->records.size();
    std::string block = Bytes(b) + slot->records;
    block.resize(INGERO_BLOCK_BYTES);
    out_ << block;
    slot->records.clear();
  }

  const Recording& recording_;
  const uint32_t add_;
  std::ofstream out_;
  std::map<uint32_t, Slot> slots_;  // by tid
  uint32_t next_slot_ = 1;
};

class KernelWriter {
 public:
  KernelWriter(const Recording& r, const std::string& folder)
      : out_(folder + "/kernel-1-1.ingero", std::ios::binary) {
    std::string header = Bytes(Header(INGERO_MAGIC_KERNEL, 1));
    header.resize(INGERO_HEADER_BYTES);
    out_ << header;
    Rows tasks;
    tasks.schema = &task_table::kSchema;
    for (uint32_t copy = 0; copy < kCopies; ++copy)
      for (const analysis::Thread& t : r.reader->threads()) {
        const analysis::Process& p = r.reader->processes()[t.process];
        if (!told_.emplace(copy, t.tid).second) continue;  // another life
        using namespace task_table;
        uint64_t row[kCount] = {};
        row[kT] = kBegin;
        row[kEvent] = INGERO_TASK_EVENT_EXISTING;
        row[kTid] = row[kNsTid] = t.tid + copy * kIdStep;
        row[kTgid] = row[kNsTgid] = p.pid + copy * kIdStep;
        row[kStartNs] = static_cast<uint64_t>(p.start.value);
        row[kPidNamespace] = kNamespace;
        tasks.Append(row, t.name + '\0' + p.exe);
      }
    Put(&tasks, 0);
    Rows samples;
    samples.schema = &sample_table::kSchema;
    const uint64_t online[] = {kBegin,
                               static_cast<uint64_t>(Metric::kCpuOnline), 0,
                               r.cpus * kCopies};
    samples.Append(online);
    Put(&samples, 0);
  }
  void Add(const Second& second, uint32_t copy, uint32_t cpus, int64_t begin) {
    for (uint32_t cpu = 0; cpu < cpus; ++cpu) {
      const auto found = second.switches.find(cpu);
      if (found == second.switches.end()) continue;
      const auto& rows = found->second;
      std::vector<std::vector<uint64_t>> out;
      const auto edge = [&](uint64_t t, uint64_t prev, uint64_t prev_group,
                            uint64_t next, uint64_t next_group) {
        std::vector<uint64_t> row(switch_table::kCount, 0);
        row[0] = t;
        row[switch_table::kPrevTid] = prev;
        row[switch_table::kPrevTgid] = prev_group;
        row[switch_table::kPrevState] = prev != 0 ? 1 : 0;  // interruptible
        row[switch_table::kNextTid] = next;
        row[switch_table::kNextTgid] = next_group;
        out.push_back(std::move(row));
      };
      using namespace switch_table;
      if (rows.front()[kPrevTid] != 0)
        edge(0, 0, 0, rows.front()[kPrevTid], rows.front()[kPrevTgid]);
      out.insert(out.end(), rows.begin(), rows.end());
      if (rows.back()[kNextTid] != 0)
        edge(kSecond - 1, rows.back()[kNextTid], rows.back()[kNextTgid], 0, 0);
      Rows block;
      block.schema = &kSchema;
      int part = 0;
      for (std::vector<uint64_t>& row : out) {
        const auto part_of = static_cast<int>(
            row[0] * kBlocksASecond / static_cast<uint64_t>(kSecond));
        if (part_of != part) Put(&block, copy * cpus + cpu);
        part = part_of;
        // What was before the second is not there.
        const auto was =
            static_cast<int64_t>(row[kWakeT]) - original_begin(second);
        row[kWakeT] = row[kWakeT] != 0 && was >= 0 && was < kSecond
                          ? static_cast<uint64_t>(begin + was)
                          : 0;
        row[0] += static_cast<uint64_t>(begin);
        for (const size_t c : {kPrevTid, kPrevTgid, kNextTid, kNextTgid,
                               kWakerTid, kWakerTgid})
          if (row[c] != 0) row[c] += copy * kIdStep;
        block.Append(row);
      }
      Put(&block, copy * cpus + cpu);
      events += out.size();
    }
  }
  // `count` short lives in the second from `begin` on, on as many further CPUs
  // as the copies have.
  void AddLives(size_t count, uint32_t cpus, int64_t begin) {
    std::map<uint32_t, Rows> switches;
    Rows tasks;
    tasks.schema = &task_table::kSchema;
    for (size_t i = 0; i < count; ++i, ++lives_) {
      const int64_t t =
          begin + static_cast<int64_t>(i) * kSecond / static_cast<int64_t>(count);
      const uint32_t cpu =
          cpus * kCopies + static_cast<uint32_t>(lives_ % (cpus * kCopies));
      const auto pid = static_cast<uint32_t>(kFirstLife + lives_ % kMostLives);
      Rows& own = switches[cpu];
      own.schema = &switch_table::kSchema;
      const auto change = [&](int64_t at, uint32_t prev, uint32_t next,
                              uint32_t state) {
        using namespace switch_table;
        uint64_t row[kCount] = {};
        row[kT] = static_cast<uint64_t>(at);
        row[kPrevTid] = row[kPrevTgid] = prev;
        row[kPrevState] = state;
        row[kNextTid] = row[kNextTgid] = next;
        own.Append(row);
        ++events;
      };
      const auto event = [&](int64_t at, uint32_t what, std::string_view text) {
        using namespace task_table;
        uint64_t row[kCount] = {};
        row[kT] = static_cast<uint64_t>(at);
        row[kEvent] = what;
        row[kTid] = row[kTgid] = row[kNsTid] = row[kNsTgid] = pid;
        row[kStartNs] = static_cast<uint64_t>(t);
        row[kPidNamespace] = kNamespace;
        tasks.Append(row, text);
        ++events;
      };
      event(t, INGERO_TASK_EVENT_FORK, {"make\0/usr/bin/make", 18});
      change(t + 1000, 0, pid, 0);
      event(t + 10'000, INGERO_TASK_EVENT_EXEC,
            fmt::format("cc1plus{0}/usr/lib/gcc/cc1plus", '\0'));
      event(t + 50'000, INGERO_TASK_EVENT_EXIT, "");
      change(t + 51'000, pid, 0, kDead);
      if (tasks.size() == kBlockRows) Put(&tasks, 0);
    }
    Put(&tasks, 0);
    for (auto& [cpu, rows] : switches) Put(&rows, cpu);
  }
  void NameBegins(const std::map<const Second*, int64_t>* begins) {
    begins_ = begins;
  }

  size_t events = 0;

 private:
  int64_t original_begin(const Second& s) const { return begins_->at(&s); }
  void Put(Rows* rows, uint32_t owner) {
    if (rows->size() == 0) return;
    bytes_.clear();
    EncodeBlock(*rows, owner, &bytes_);
    out_ << bytes_;
    rows->Clear();
  }

  std::ofstream out_;
  std::string bytes_;
  std::set<std::pair<uint32_t, uint32_t>> told_;
  size_t lives_ = 0;
  const std::map<const Second*, int64_t>* begins_ = nullptr;
};

int Run(size_t events, size_t lives, const std::string& folder,
        const std::string& store) {
  Recording r = Load(store);
  std::filesystem::create_directories(folder);
  std::map<const Second*, int64_t> begins;
  std::vector<double> weights;
  for (size_t i = 0; i < r.seconds.size(); ++i) {
    begins[&r.seconds[i]] = r.reader->span().begin.value +
                            static_cast<int64_t>(i) * kSecond;
    weights.push_back(static_cast<double>(r.seconds[i].events));
  }
  std::discrete_distribution<size_t> any(weights.begin(), weights.end());
  KernelWriter kernel(r, folder);
  kernel.NameBegins(&begins);
  std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<CudaWriter>> cuda;
  std::mt19937_64 random(1);
  size_t calls = 0, lived = 0;
  int64_t begin = kBegin;
  for (; kernel.events + calls < events; begin += kSecond) {
    for (uint32_t copy = 0; copy < kCopies; ++copy) {
      const Second& s = r.seconds[any(random)];
      kernel.Add(s, copy, r.cpus, begin);
      for (const auto& [process, rows] : s.calls) {
        auto& writer = cuda[{copy, process}];
        if (writer == nullptr)
          writer = std::make_unique<CudaWriter>(r, process, copy, folder);
        writer->Add(rows, begin);
        calls += rows.size();
      }
    }
    const size_t due = std::min<size_t>(
        lives, static_cast<size_t>(static_cast<double>(lives) *
                                   static_cast<double>(kernel.events + calls) /
                                   static_cast<double>(events)));
    if (due > lived) kernel.AddLives(due - lived, r.cpus, begin);
    lived = due;
  }
  for (auto& [key, writer] : cuda) writer->Finish();
  fmt::print("{} events ({} calls, {} of the kernel) in {} s of {} programs\n",
             kernel.events + calls, calls, kernel.events,
             (begin - kBegin) / kSecond, kCopies);
  return 0;
}

}  // namespace
}  // namespace ingero::bench

int main(int argc, char** argv) {
  size_t events = 1'000'000, lives = 0;
  std::string folder, store = INGERO_KEPT_STORE;
  int at = 1;
  if (at < argc && std::strncmp(argv[at], "--events=", 9) == 0)
    events = std::strtoull(argv[at++] + 9, nullptr, 10);
  if (at < argc && std::strncmp(argv[at], "--lives=", 8) == 0)
    lives = std::strtoull(argv[at++] + 8, nullptr, 10);
  if (at < argc) folder = argv[at++];
  if (at < argc) store = argv[at++];
  if (folder.empty() || folder[0] == '-' || at < argc || events == 0) {
    std::fprintf(stderr, "usage: resample [--events=N] [--lives=N] FOLDER "
                         "[STORE]\n");
    return 2;
  }
  return ingero::bench::Run(events, lives, folder, store);
}
