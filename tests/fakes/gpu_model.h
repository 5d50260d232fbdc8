// SPDX-License-Identifier: Apache-2.0
// A GPU made of time arithmetic: every operation gets its completion time on
// CLOCK_MONOTONIC when it is submitted, and waiting is waiting for that time.
// No engine thread runs beside the program, so nothing disturbs the scheduling
// that tests want to observe. The one exception is host functions: they run on
// a driver thread, as in real CUDA, started with the first of them.
//
// Data are not moved and kernels compute nothing; only time passes.
#ifndef INGERO_TESTS_FAKES_GPU_MODEL_H_
#define INGERO_TESTS_FAKES_GPU_MODEL_H_

#include <cstddef>
#include <cstdint>

namespace fake {

// X(key, default): costs to the caller are CPU time. Defaults are what
// GPU_FACTS measured; "assumed" marks what was not measured.
#define FAKE_SETTINGS(X)                                                   \
  X(devices, 1)                                                            \
  X(context_ms, 250)                                                       \
  X(launch_us, 5)                                                          \
  X(first_launch_us, 200)     /* first in a module */                      \
  X(new_kernel_us, 15)        /* first of a further kernel */              \
  X(module_us, 0)             /* loading a module: launches and            \
                                 allocations of others wait; assumed */    \
  X(kernel_us, 20)            /* GPU time of a kernel */                   \
  X(copy_us, 5)               /* submitting a copy or memset */            \
  X(h2d_pageable_gbps, 6.6)   /* caller copies */                          \
  X(d2h_pageable_gbps, 11)                                                 \
  X(h2d_pinned_gbps, 53)      /* the engine copies */                      \
  X(d2h_pinned_gbps, 53)      /* assumed */                                \
  X(d2d_gbps, 1500)           /* assumed */                                \
  X(memset_gbps, 2500)        /* assumed */                                \
  X(staging_kib, 4096)        /* pageable copies up to this do not wait for \
                                 the stream; assumed, 1 MiB measured */    \
  X(malloc_us, 280)                                                        \
  X(malloc_us_per_gib, 280)                                                \
  X(free_us, 100)             /* after the hidden sync; assumed */         \
  X(malloc_async_us, 40)                                                   \
  X(malloc_host_us_per_mib, 550) /* page pinning */                        \
  X(queue, 1021)              /* pending operations of a stream */         \
  X(device_gib, 139)                                                       \
  X(stream_create_us, 10)     /* assumed */                                \
  X(event_us, 0.5)            /* assumed */                                \
  X(query_us, 0.3)                                                         \
  X(graph_instantiate_us, 50) /* assumed */                                \
  X(fork_ok, 0) /* 1: CUDA works in a forked child; 0: error 3, as in real \
                   CUDA, once the parent has used it */

struct Config {
#define X(key, value) double key = value;
  FAKE_SETTINGS(X)
#undef X
  int sync = -1;  // sync=spin|yield|block: overrides the program's flags
};
const Config& config();

uint64_t NowNs();
// Burns CPU time: stretches in which the thread was not running do not count.
void BurnNs(uint64_t ns);
inline void BurnUs(double us) {
  BurnNs(us <= 0 ? 0 : static_cast<uint64_t>(us * 1000));
}
uint64_t TransferNs(size_t bytes, double gbps);
// The driver's lock, held while a module is loaded: what launches and allocates
// on another thread sleeps until then.
void LoadModule();
void WaitForModules();

enum class Wait { kSpin, kYield, kSleep };

// All below: error codes are CUresult. Handles are indices + 1 into tables in
// memory that fork wipes; kLegacy = the device's default stream.
struct Stream;
struct Event;

bool Init();               // false: forked after use, CUDA unusable
bool Usable();             // initialised and not forked away
void SetScheduleFlags(int device, unsigned flags);
unsigned ScheduleFlags(int device);
Wait DeviceWait(int device);

Stream* DefaultStream(int device);
Stream* PerThreadStream(int device);
Stream* NewStream(int device, unsigned flags);
bool IsStream(Stream* stream);
unsigned StreamFlags(Stream* stream);
int StreamDevice(Stream* stream);
void DestroyStream(Stream* stream);  // its work goes on

// Submits work of `ns` GPU time; waits (spins) while the queue is full.
void SubmitWork(Stream* stream, uint64_t ns);
void SubmitHostFunc(Stream* stream, void (*fn)(void*), void* data);
bool StreamDone(Stream* stream);
struct StreamTimes {
  uint64_t end_ns;   // of its newest operation; 0 = none, or not known yet
  uint64_t idle_ns;  // between its operations so far
};
StreamTimes TimesOf(Stream* stream);
void WaitStream(Stream* stream, Wait wait);
void WaitDevice(int device, Wait wait);

Event* NewEvent(unsigned flags);
bool IsEvent(Event* event);
unsigned EventFlags(Event* event);
void DestroyEvent(Event* event);
void RecordEvent(Event* event, Stream* stream);
void StreamWaitEvent(Stream* stream, Event* event);
bool EventDone(Event* event);  // true also if never recorded
void WaitEvent(Event* event, Wait wait);
// 0 = never recorded or not finished.
uint64_t EventTimeNs(Event* event);

// Capture: operations are collected instead of executed.
struct CapturedGraph {
  uint64_t ns = 0;
  size_t nodes = 0;
};
bool BeginCapture(Stream* stream);
bool Capturing(Stream* stream);
bool EndCapture(Stream* stream, CapturedGraph* graph);

enum class MemoryKind { kNone, kDevice, kPinned, kRegistered, kManaged };
bool AddRange(void* base, size_t bytes, MemoryKind kind);
size_t RemoveRange(void* base, MemoryKind* kind);  // 0: not found
MemoryKind KindOf(const void* p);
size_t DeviceBytesUsed();

}  // namespace fake

#endif  // INGERO_TESTS_FAKES_GPU_MODEL_H_
