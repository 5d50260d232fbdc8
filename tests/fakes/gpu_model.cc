// SPDX-License-Identifier: Apache-2.0
#include "gpu_model.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace fake {

// ---- settings and time --------------------------------------------------

namespace {

[[noreturn]] void Die(const std::string& what) {
  fprintf(stderr, "fake_cuda: %s\n", what.c_str());
  _exit(2);
}

Config ReadConfig() {
  Config c;
  const char* env = getenv("FAKE_CUDA");
  std::string text = env != nullptr ? env : "";
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(',', at), text.size());
    std::string item = text.substr(at, end - at);
    at = end + 1;
    size_t equals = item.find('=');
    if (equals == std::string::npos) {
      Die("FAKE_CUDA: \"" + item + "\" is not key=value");
    }
    std::string key = item.substr(0, equals);
    std::string value = item.substr(equals + 1);
    if (key == "sync") {
      if (value != "spin" && value != "yield" && value != "block") {
        Die("FAKE_CUDA: sync=" + value + ": use spin, yield or block");
      }
      c.sync = value == "spin" ? 0 : value == "yield" ? 1 : 2;
      continue;
    }
    char* rest = nullptr;
    double number = strtod(value.c_str(), &rest);
    if (value.empty() || *rest != '\0' || number < 0) {
      Die("FAKE_CUDA: " + key + "=" + value + " is not a number");
    }
#define X(name, unused) \
  if (key == #name) {   \
    c.name = number;    \
    continue;           \
  }
    FAKE_SETTINGS(X)
#undef X
    Die("FAKE_CUDA: no setting is called \"" + key + "\"");
  }
  return c;
}

void Pause() { __builtin_ia32_pause(); }

}  // namespace

const Config& config() {
  static const Config c = ReadConfig();
  return c;
}

uint64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u +
         static_cast<uint64_t>(t.tv_nsec);
}

void BurnNs(uint64_t ns) {
  // A step between two clock reads this long means that the thread was off
  // the CPU; what it was meant to compute is still to be computed.
  constexpr uint64_t kOffCpuNs = 10000;
  uint64_t last = NowNs();
  for (uint64_t done = 0; done < ns;) {
    uint64_t now = NowNs();
    uint64_t step = now - last;
    last = now;
    done += step < kOffCpuNs ? step : 100;
  }
}

namespace {
pthread_mutex_t g_module_lock = PTHREAD_MUTEX_INITIALIZER;
}  // namespace

void LoadModule() {
  pthread_mutex_lock(&g_module_lock);
  BurnUs(config().module_us);
  pthread_mutex_unlock(&g_module_lock);
}

void WaitForModules() {
  if (config().module_us > 0) {
    pthread_mutex_lock(&g_module_lock);
    pthread_mutex_unlock(&g_module_lock);
  }
}

uint64_t TransferNs(size_t bytes, double gbps) {
  return gbps <= 0 ? 0 : static_cast<uint64_t>(bytes / gbps);
}

// ---- state --------------------------------------------------------------

namespace {

constexpr int kMaxDevices = 8;
constexpr uint32_t kMaxOps = 1024;
constexpr int kMaxStreams = 1024;
constexpr int kMaxEvents = 65536;
constexpr int kMaxRanges = 65536;

enum class OpType : uint32_t { kWork, kHostFunc, kRecord, kWaitTicket };

struct Op {
  OpType type;
  bool resolved;     // end_ns is known
  uint64_t floor_ns;  // not before: submission, implicit barriers
  uint64_t ns;
  uint64_t end_ns;
  void* ptr;  // Event*, Stream* to wait for, or host function
  void* data;
  uint64_t ticket;  // kWaitTicket: operation of that stream
};

}  // namespace

struct Stream {
  bool used;
  bool orphan;  // destroyed with work pending
  bool blocking;  // takes part in the legacy default stream's barriers
  bool capturing;
  int device;
  unsigned flags;
  uint64_t first_seq;  // of ops[first_seq % kMaxOps], the oldest pending
  uint64_t next_seq;
  uint64_t first_unresolved;
  uint64_t last_end_ns;  // of the newest retired operation
  uint64_t idle_ns;      // between its operations
  CapturedGraph graph;
  Op ops[kMaxOps];

  Op& At(uint64_t seq) { return ops[seq % kMaxOps]; }
};

struct Event {
  bool used;
  bool recorded;
  unsigned flags;
  Stream* stream;
  uint64_t seq;
  uint64_t time_ns;
};

namespace {

struct Range {
  uintptr_t base;
  size_t bytes;
  MemoryKind kind;
};

// Everything that fork must reset, all zero at first.
struct State {
  pthread_mutex_t mutex;  // zero = PTHREAD_MUTEX_INITIALIZER
  bool initialised;
  bool callback_thread;
  pthread_cond_t callback_wake;  // set up with the thread
  unsigned schedule_flags[kMaxDevices];
  Stream* default_stream[kMaxDevices];
  size_t device_bytes;
  int range_count;
  int stream_count;
  int event_count;
  int event_hint;
  Range ranges[kMaxRanges];
  Event events[kMaxEvents];
  Stream streams[kMaxStreams];
};

State* g_state;
bool g_used;  // survives fork: tells a forked child from a fresh process

__attribute__((constructor(102))) void MapState() {
  void* p = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    Die("cannot map the device state");
  }
  madvise(p, sizeof(State), MADV_WIPEONFORK);
  g_state = static_cast<State*>(p);
}

class Lock {
 public:
  Lock() { pthread_mutex_lock(&g_state->mutex); }
  ~Lock() { pthread_mutex_unlock(&g_state->mutex); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

uint64_t BaseNs(Stream* s, uint64_t seq) {
  return seq == s->first_seq ? s->last_end_ns : s->At(seq - 1).end_ns;
}

// True if the operation's end became known.
bool ResolveOne(Stream* s, uint64_t seq) {
  Op& op = s->At(seq);
  uint64_t start = std::max(BaseNs(s, seq), op.floor_ns);
  switch (op.type) {
    case OpType::kHostFunc:
      return false;  // its thread does
    case OpType::kWork:
      op.end_ns = start + op.ns;
      break;
    case OpType::kRecord: {
      op.end_ns = start;
      auto* event = static_cast<Event*>(op.ptr);
      if (event->stream == s && event->seq == seq) {
        event->time_ns = op.end_ns;
      }
      break;
    }
    case OpType::kWaitTicket: {
      auto* other = static_cast<Stream*>(op.ptr);
      op.end_ns = start;
      if (op.ticket >= other->first_seq) {
        Op& awaited = other->At(op.ticket);
        if (!awaited.resolved) {
          return false;
        }
        op.end_ns = std::max(start, awaited.end_ns);
      }
      break;
    }
  }
  const uint64_t base = BaseNs(s, seq);
  if (base != 0 && start > base) {
    s->idle_ns += start - base;
  }
  op.resolved = true;
  return true;
}

void Resolve(Stream* s) {
  s->first_unresolved = std::max(s->first_unresolved, s->first_seq);
  while (s->first_unresolved < s->next_seq &&
         (s->At(s->first_unresolved).resolved ||
          ResolveOne(s, s->first_unresolved))) {
    s->first_unresolved++;
  }
}

// After a host function ended: whatever waited for it, across streams.
void ResolveAll() {
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < g_state->stream_count; i++) {
      Stream* s = &g_state->streams[i];
      uint64_t before = s->first_unresolved;
      Resolve(s);
      changed |= s->first_unresolved != before;
    }
  }
}

void Retire(Stream* s, uint64_t now) {
  while (s->first_seq < s->next_seq && s->At(s->first_seq).resolved &&
         s->At(s->first_seq).end_ns <= now) {
    s->last_end_ns = s->At(s->first_seq).end_ns;
    s->first_seq++;
  }
  if (s->orphan && s->first_seq == s->next_seq) {
    s->orphan = s->used = false;
  }
}

void SpinUntil(uint64_t t, Wait wait) {
  while (NowNs() < t) {
    if (wait == Wait::kYield) {
      sched_yield();
    } else {
      Pause();
    }
  }
}

void SleepUntil(uint64_t t) {
  timespec ts{static_cast<time_t>(t / 1000000000u),
              static_cast<long>(t % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, nullptr) ==
         EINTR) {
  }
}

// Waits until operation `seq` of the stream is over.
void WaitSeq(Stream* s, uint64_t seq, Wait wait) {
  for (;;) {
    uint64_t end = 0;  // 0: behind a host function, not known
    {
      Lock lock;
      Retire(s, NowNs());
      if (seq < s->first_seq) {
        return;
      }
      if (s->At(seq).resolved) {
        end = s->At(seq).end_ns;
      }
    }
    uint64_t until = end != 0 ? end : NowNs() + 20000;
    if (wait == Wait::kSleep) {
      SleepUntil(until);
    } else {
      SpinUntil(until, wait);
    }
  }
}

void* CallbackThread(void*) {
  State* g = g_state;
  pthread_mutex_lock(&g->mutex);
  for (;;) {
    Stream* stream = nullptr;
    uint64_t ready = UINT64_MAX;
    for (int i = 0; i < g->stream_count; i++) {
      Stream* s = &g->streams[i];
      if (s->first_unresolved < s->next_seq &&
          s->At(s->first_unresolved).type == OpType::kHostFunc) {
        uint64_t t = std::max(BaseNs(s, s->first_unresolved),
                              s->At(s->first_unresolved).floor_ns);
        if (t < ready) {
          ready = t;
          stream = s;
        }
      }
    }
    if (stream == nullptr) {
      pthread_cond_wait(&g->callback_wake, &g->mutex);
      continue;
    }
    if (ready > NowNs()) {
      timespec ts{static_cast<time_t>(ready / 1000000000u),
                  static_cast<long>(ready % 1000000000u)};
      pthread_cond_timedwait(&g->callback_wake, &g->mutex, &ts);
      continue;
    }
    uint64_t seq = stream->first_unresolved;
    Op op = stream->At(seq);
    pthread_mutex_unlock(&g->mutex);
    reinterpret_cast<void (*)(void*)>(op.ptr)(op.data);
    pthread_mutex_lock(&g->mutex);
    stream->At(seq).end_ns = std::max(NowNs(), ready);
    stream->At(seq).resolved = true;
    ResolveAll();
  }
  return nullptr;
}

void StartCallbackThread() {
  State* g = g_state;
  if (g->callback_thread) {
    return;
  }
  g->callback_thread = true;
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&g->callback_wake, &attributes);
  pthread_t thread;
  if (pthread_create(&thread, nullptr, CallbackThread, nullptr) != 0) {
    Die("cannot start the host function thread");
  }
  pthread_setname_np(thread, "cuda-callback");
  pthread_detach(thread);
}

// Appends, waiting (spinning, whatever the flags) while `queue` operations
// are pending. Returns with the operation in place.
uint64_t Append(Stream* s, Op op) {
  const auto limit = std::min<uint64_t>(
      static_cast<uint64_t>(config().queue), kMaxOps - 2);
  for (;;) {
    uint64_t oldest;
    {
      Lock lock;
      uint64_t now = NowNs();
      Retire(s, now);
      if (s->next_seq - s->first_seq < limit) {
        op.floor_ns = now;
        // Legacy default stream: a barrier in both directions.
        Stream* legacy = g_state->default_stream[s->device];
        auto after = [&](Stream* other) {
          Retire(other, now);
          if (other->next_seq == other->first_seq) {
            return;
          }
          Op& last = other->At(other->next_seq - 1);
          if (last.resolved) {
            op.floor_ns = std::max(op.floor_ns, last.end_ns);
          } else if (s->next_seq - s->first_seq < kMaxOps - 1) {
            Op wait{};
            wait.type = OpType::kWaitTicket;
            wait.floor_ns = now;
            wait.ptr = other;
            wait.ticket = other->next_seq - 1;
            s->At(s->next_seq++) = wait;
          }
        };
        if (s == legacy) {
          for (int i = 0; i < g_state->stream_count; i++) {
            Stream* other = &g_state->streams[i];
            if (other != s && other->used && other->blocking &&
                other->device == s->device) {
              after(other);
            }
          }
        } else if (s->blocking && legacy != nullptr) {
          after(legacy);
        }
        uint64_t seq = s->next_seq++;
        s->At(seq) = op;
        if (op.type == OpType::kRecord) {
          auto* event = static_cast<Event*>(op.ptr);
          event->recorded = true;
          event->stream = s;
          event->seq = seq;
          event->time_ns = 0;
        }
        Resolve(s);
        if (op.type == OpType::kHostFunc) {
          StartCallbackThread();
          pthread_cond_signal(&g_state->callback_wake);
        }
        return seq;
      }
      oldest = s->first_seq;
    }
    WaitSeq(s, oldest, Wait::kSpin);
  }
}

// True: the operation went into the graph being captured.
bool Captured(Stream* s, uint64_t ns) {
  if (!s->capturing) {
    return false;
  }
  s->graph.ns += ns;
  s->graph.nodes++;
  return true;
}

Stream* NewStreamLocked(int device, unsigned flags) {
  State* g = g_state;
  uint64_t now = NowNs();
  for (int i = 0; i < kMaxStreams; i++) {
    Stream* s = &g->streams[i];
    if (s->used && s->orphan) {
      Retire(s, now);
    }
    if (!s->used) {
      s->used = true;
      s->orphan = s->capturing = false;
      s->device = device;
      s->flags = flags;
      s->blocking = (flags & 1) == 0;
      g->stream_count = std::max(g->stream_count, i + 1);
      return s;
    }
  }
  return nullptr;
}

struct ThreadStreams {
  Stream* stream[kMaxDevices] = {};
  ~ThreadStreams() {
    for (Stream* s : stream) {
      if (s != nullptr && IsStream(s)) {
        DestroyStream(s);
      }
    }
  }
};
thread_local ThreadStreams t_streams;

}  // namespace

// ---- interface ----------------------------------------------------------

bool Init() {
  if (!g_state->initialised) {
    if (g_used && config().fork_ok == 0) {
      return false;
    }
    g_state->initialised = true;
    g_used = true;
  }
  return true;
}

bool Usable() {
  if (g_state->initialised) {
    return true;
  }
  return g_used && config().fork_ok != 0 && Init();
}

void SetScheduleFlags(int device, unsigned flags) {
  g_state->schedule_flags[device] = flags;
}
unsigned ScheduleFlags(int device) { return g_state->schedule_flags[device]; }

Wait DeviceWait(int device) {
  if (config().sync >= 0) {
    return static_cast<Wait>(config().sync);
  }
  unsigned flags = g_state->schedule_flags[device] & 7;
  return flags == 4 ? Wait::kSleep : flags == 2 ? Wait::kYield : Wait::kSpin;
}

Stream* DefaultStream(int device) {
  Lock lock;
  Stream*& s = g_state->default_stream[device];
  if (s == nullptr) {
    s = NewStreamLocked(device, 0);
  }
  return s;
}

Stream* PerThreadStream(int device) {
  Stream*& s = t_streams.stream[device];
  if (s == nullptr || !IsStream(s)) {  // wiped by fork
    s = NewStream(device, 0);
  }
  return s;
}

Stream* NewStream(int device, unsigned flags) {
  Lock lock;
  return NewStreamLocked(device, flags);
}

bool IsStream(Stream* s) {
  return s >= g_state->streams && s < g_state->streams + kMaxStreams &&
         s->used && !s->orphan;
}
unsigned StreamFlags(Stream* s) { return s->flags; }
int StreamDevice(Stream* s) { return s->device; }

void DestroyStream(Stream* s) {
  Lock lock;
  s->orphan = true;
  Retire(s, NowNs());
}

StreamTimes TimesOf(Stream* s) {
  Lock lock;
  Resolve(s);
  StreamTimes times{0, s->idle_ns};
  if (s->first_unresolved >= s->next_seq) {
    times.end_ns = BaseNs(s, s->next_seq);
  }
  return times;
}

void SubmitWork(Stream* s, uint64_t ns) {
  if (Captured(s, ns)) {
    return;
  }
  Op op{};
  op.type = OpType::kWork;
  op.ns = ns;
  Append(s, op);
}

void SubmitHostFunc(Stream* s, void (*fn)(void*), void* data) {
  if (Captured(s, 0)) {
    return;
  }
  Op op{};
  op.type = OpType::kHostFunc;
  op.ptr = reinterpret_cast<void*>(fn);
  op.data = data;
  Append(s, op);
}

bool StreamDone(Stream* s) {
  Lock lock;
  Retire(s, NowNs());
  return s->first_seq == s->next_seq;
}

void WaitStream(Stream* s, Wait wait) {
  uint64_t last;
  {
    Lock lock;
    Retire(s, NowNs());
    if (s->first_seq == s->next_seq) {
      return;
    }
    last = s->next_seq - 1;
  }
  WaitSeq(s, last, wait);
}

void WaitDevice(int device, Wait wait) {
  int count;
  {
    Lock lock;
    count = g_state->stream_count;
  }
  for (int i = 0; i < count; i++) {
    Stream* s = &g_state->streams[i];
    if (s->used && s->device == device) {
      WaitStream(s, wait);
    }
  }
}

Event* NewEvent(unsigned flags) {
  Lock lock;
  State* g = g_state;
  for (int n = 0; n < kMaxEvents; n++) {
    int i = (g->event_hint + n) % kMaxEvents;
    Event* e = &g->events[i];
    if (!e->used) {
      *e = Event{};
      e->used = true;
      e->flags = flags;
      g->event_hint = i + 1;
      return e;
    }
  }
  return nullptr;
}

bool IsEvent(Event* e) {
  return e >= g_state->events && e < g_state->events + kMaxEvents && e->used;
}
unsigned EventFlags(Event* e) { return e->flags; }

void DestroyEvent(Event* e) {
  Lock lock;
  e->used = false;
}

void RecordEvent(Event* e, Stream* s) {
  if (Captured(s, 0)) {
    return;
  }
  Op op{};
  op.type = OpType::kRecord;
  op.ptr = e;
  Append(s, op);
}

void StreamWaitEvent(Stream* s, Event* e) {
  if (Captured(s, 0)) {
    return;
  }
  Stream* other;
  uint64_t seq;
  {
    Lock lock;
    if (!e->recorded || e->stream == s) {
      return;
    }
    other = e->stream;
    seq = e->seq;
    Retire(other, NowNs());
    if (seq < other->first_seq) {
      return;
    }
  }
  Op op{};
  op.type = OpType::kWaitTicket;
  op.ptr = other;
  op.ticket = seq;
  Append(s, op);
}

bool EventDone(Event* e) {
  Lock lock;
  if (!e->recorded) {
    return true;
  }
  Retire(e->stream, NowNs());
  return e->seq < e->stream->first_seq;
}

void WaitEvent(Event* e, Wait wait) {
  Stream* s;
  uint64_t seq;
  {
    Lock lock;
    if (!e->recorded) {
      return;
    }
    s = e->stream;
    seq = e->seq;
  }
  WaitSeq(s, seq, wait);
}

uint64_t EventTimeNs(Event* e) {
  Lock lock;
  return e->recorded ? e->time_ns : 0;
}

bool BeginCapture(Stream* s) {
  Lock lock;
  if (s->capturing) {
    return false;
  }
  s->capturing = true;
  s->graph = CapturedGraph{};
  return true;
}

bool Capturing(Stream* s) { return s->capturing; }

bool EndCapture(Stream* s, CapturedGraph* graph) {
  Lock lock;
  if (!s->capturing) {
    return false;
  }
  s->capturing = false;
  *graph = s->graph;
  return true;
}

bool AddRange(void* base, size_t bytes, MemoryKind kind) {
  Lock lock;
  State* g = g_state;
  int i = 0;
  while (i < g->range_count && g->ranges[i].bytes != 0) {
    i++;
  }
  if (i == kMaxRanges) {
    return false;
  }
  g->range_count = std::max(g->range_count, i + 1);
  g->ranges[i] = {reinterpret_cast<uintptr_t>(base), bytes, kind};
  if (kind == MemoryKind::kDevice) {
    g->device_bytes += bytes;
  }
  return true;
}

size_t RemoveRange(void* base, MemoryKind* kind) {
  Lock lock;
  State* g = g_state;
  for (int i = 0; i < g->range_count; i++) {
    Range& r = g->ranges[i];
    if (r.bytes != 0 && r.base == reinterpret_cast<uintptr_t>(base)) {
      size_t bytes = r.bytes;
      *kind = r.kind;
      if (r.kind == MemoryKind::kDevice) {
        g->device_bytes -= bytes;
      }
      r.bytes = 0;
      return bytes;
    }
  }
  return 0;
}

MemoryKind KindOf(const void* p) {
  Lock lock;
  State* g = g_state;
  auto address = reinterpret_cast<uintptr_t>(p);
  for (int i = 0; i < g->range_count; i++) {
    const Range& r = g->ranges[i];
    if (address - r.base < r.bytes) {
      return r.kind;
    }
  }
  return MemoryKind::kNone;
}

size_t DeviceBytesUsed() {
  Lock lock;
  return g_state->device_bytes;
}

}  // namespace fake
