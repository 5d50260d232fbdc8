// SPDX-License-Identifier: Apache-2.0
// Simulated libcuda.so.1: the driver's entry points over gpu_model.h.
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "arrivals.h"
#include "cuda_abi.h"
#include "gpu_model.h"

// ---- objects ------------------------------------------------------------

struct CUctx_st {
  int device;
  unsigned flags;
};
struct CUlib_st {
  std::atomic<bool> used{false};  // a kernel of it was launched
};
struct CUkern_st {
  CUlib_st* library;
  std::string name;
  bool takes_ns;
  std::atomic<bool> used{false};
};
struct CUgraph_st {
  fake::CapturedGraph captured;
};
struct CUgraphExec_st {
  fake::CapturedGraph captured;
};

namespace {

using fake::BurnUs;
using fake::config;
using fake::MemoryKind;
using fake::Stream;
using fake::Event;
using fake::TransferNs;
using fake::Wait;

constexpr int kDriverVersion = 13000;
constexpr int kMaxDevices = 8;

CUctx_st g_primary[kMaxDevices];
std::atomic<int> g_primary_active[kMaxDevices];
thread_local CUcontext t_context;
thread_local CUcontext t_context_stack[16];
thread_local int t_context_depth;

int DeviceCount() {
  return std::min(static_cast<int>(config().devices), kMaxDevices);
}

// Every entry point begins with one of these.
#define REQUIRE_INIT()                     \
  if (!fake::Usable()) {                   \
    return CUDA_ERROR_NOT_INITIALIZED;     \
  }
#define REQUIRE_CONTEXT()                  \
  REQUIRE_INIT()                           \
  if (t_context == nullptr) {              \
    return CUDA_ERROR_INVALID_CONTEXT;     \
  }
#define REQUIRE(condition, error) \
  if (!(condition)) {             \
    return error;                 \
  }

int Device() { return t_context != nullptr ? t_context->device : 0; }

// nullptr: not a stream.
Stream* ToStream(CUstream handle, bool per_thread) {
  if (handle == nullptr) {
    return per_thread ? fake::PerThreadStream(Device())
                      : fake::DefaultStream(Device());
  }
  if (handle == CU_STREAM_LEGACY) {
    return fake::DefaultStream(Device());
  }
  if (handle == CU_STREAM_PER_THREAD) {
    return fake::PerThreadStream(Device());
  }
  auto* s = reinterpret_cast<Stream*>(handle);
  return fake::IsStream(s) ? s : nullptr;
}

// Defines the legacy form and the one for per-thread default streams of a
// function. `s` is the stream.
#define STREAM_FUNCTION(name, suffix, stream, PARAMS, ...) \
  FAKE_EXPORT CUresult name PARAMS {                       \
    ARRIVE(name);                                          \
    REQUIRE_CONTEXT();                                     \
    Stream* s = ToStream(stream, false);                   \
    REQUIRE(s != nullptr, CUDA_ERROR_INVALID_HANDLE);      \
    __VA_ARGS__                                            \
  }                                                        \
  FAKE_EXPORT CUresult name##suffix PARAMS {               \
    ARRIVE(name##suffix);                                  \
    REQUIRE_CONTEXT();                                     \
    Stream* s = ToStream(stream, true);                    \
    REQUIRE(s != nullptr, CUDA_ERROR_INVALID_HANDLE);      \
    __VA_ARGS__                                            \
  }

void* Pointer(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

Wait WaitMode() { return fake::DeviceWait(Device()); }

}  // namespace

// ---- initialisation, devices, errors ------------------------------------

FAKE_EXPORT CUresult cuInit(unsigned flags) {
  ARRIVE(cuInit);
  REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(fake::Init(), CUDA_ERROR_NOT_INITIALIZED);
  return DeviceCount() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

FAKE_EXPORT CUresult cuDriverGetVersion(int* version) {
  ARRIVE(cuDriverGetVersion);
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetCount(int* count) {
  ARRIVE(cuDeviceGetCount);
  REQUIRE_INIT();
  *count = DeviceCount();
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  ARRIVE(cuDeviceGet);
  REQUIRE_INIT();
  REQUIRE(ordinal >= 0 && ordinal < DeviceCount(), CUDA_ERROR_INVALID_DEVICE);
  *device = ordinal;
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  ARRIVE(cuDeviceGetName);
  REQUIRE_INIT();
  REQUIRE(device >= 0 && device < DeviceCount(), CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(length > 0, CUDA_ERROR_INVALID_VALUE);
  snprintf(name, static_cast<size_t>(length), "ingero simulated GPU %d",
           device);
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  ARRIVE(cuDeviceTotalMem_v2);
  REQUIRE_INIT();
  *bytes = static_cast<size_t>(config().device_gib * (1u << 30));
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetAttribute(int* value, int attribute,
                                          CUdevice) {
  ARRIVE(cuDeviceGetAttribute);
  REQUIRE_INIT();
  switch (attribute) {
    case 1: *value = 1024; break;   // threads per block
    case 10: *value = 32; break;    // warp size
    case 16: *value = 132; break;   // multiprocessors
    case 39: *value = 2048; break;  // threads per multiprocessor
    case 75: *value = 9; break;     // compute capability
    case 76: *value = 0; break;
    case 41: *value = 1; break;     // unified addressing
    default: *value = 1;
  }
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDeviceGetUuid_v2(void* uuid, CUdevice device) {
  ARRIVE(cuDeviceGetUuid_v2);
  REQUIRE_INIT();
  memset(uuid, 0xfa, 16);
  static_cast<unsigned char*>(uuid)[15] = static_cast<unsigned char>(device);
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuGetErrorName(CUresult error, const char** text) {
  ARRIVE(cuGetErrorName);
  switch (error) {
#define E(x) case x: *text = #x; return CUDA_SUCCESS;
    E(CUDA_SUCCESS) E(CUDA_ERROR_INVALID_VALUE) E(CUDA_ERROR_OUT_OF_MEMORY)
    E(CUDA_ERROR_NOT_INITIALIZED) E(CUDA_ERROR_NO_DEVICE)
    E(CUDA_ERROR_INVALID_DEVICE) E(CUDA_ERROR_INVALID_CONTEXT)
    E(CUDA_ERROR_INVALID_HANDLE) E(CUDA_ERROR_NOT_FOUND)
    E(CUDA_ERROR_NOT_READY) E(CUDA_ERROR_NOT_SUPPORTED)
    E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
#undef E
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}

FAKE_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
  ARRIVE(cuGetErrorString);
  *text = error == CUDA_SUCCESS ? "no error" : "simulated error";
  return CUDA_SUCCESS;
}

// ---- contexts -----------------------------------------------------------

FAKE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context,
                                              CUdevice device) {
  ARRIVE(cuDevicePrimaryCtxRetain);
  REQUIRE_INIT();
  REQUIRE(device >= 0 && device < DeviceCount(), CUDA_ERROR_INVALID_DEVICE);
  g_primary[device].device = device;
  if (g_primary_active[device].fetch_add(1) == 0) {
    BurnUs(config().context_ms * 1000);
  }
  *context = &g_primary[device];
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ARRIVE(cuDevicePrimaryCtxRelease_v2);
  REQUIRE_INIT();
  REQUIRE(device >= 0 && device < DeviceCount(), CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(g_primary_active[device].load() > 0, CUDA_ERROR_INVALID_CONTEXT);
  g_primary_active[device].fetch_sub(1);
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  ARRIVE(cuDevicePrimaryCtxReset_v2);
  REQUIRE_INIT();
  REQUIRE(device >= 0 && device < DeviceCount(), CUDA_ERROR_INVALID_DEVICE);
  fake::WaitDevice(device, WaitMode());
  g_primary_active[device].store(0);
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device,
                                                   unsigned flags) {
  ARRIVE(cuDevicePrimaryCtxSetFlags_v2);
  REQUIRE_INIT();
  REQUIRE(device >= 0 && device < DeviceCount(), CUDA_ERROR_INVALID_DEVICE);
  fake::SetScheduleFlags(device, flags);
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device,
                                                unsigned* flags, int* active) {
  ARRIVE(cuDevicePrimaryCtxGetState);
  REQUIRE_INIT();
  REQUIRE(device >= 0 && device < DeviceCount(), CUDA_ERROR_INVALID_DEVICE);
  *flags = fake::ScheduleFlags(device);
  *active = g_primary_active[device].load() > 0;
  return CUDA_SUCCESS;
}

static CUresult CreateContext(CUcontext* context, unsigned flags,
                              CUdevice device) {
  REQUIRE_INIT();
  REQUIRE(device >= 0 && device < DeviceCount(), CUDA_ERROR_INVALID_DEVICE);
  BurnUs(config().context_ms * 1000);
  if (flags != 0) {
    fake::SetScheduleFlags(device, flags);
  }
  *context = new CUctx_st{device, flags};
  if (t_context_depth < 16) {
    t_context_stack[t_context_depth++] = t_context;
  }
  t_context = *context;
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxCreate_v2(CUcontext* context, unsigned flags,
                                    CUdevice device) {
  ARRIVE(cuCtxCreate_v2);
  return CreateContext(context, flags, device);
}
FAKE_EXPORT CUresult cuCtxCreate_v3(CUcontext* context, void*, int,
                                    unsigned flags, CUdevice device) {
  ARRIVE(cuCtxCreate_v3);
  return CreateContext(context, flags, device);
}
FAKE_EXPORT CUresult cuCtxCreate_v4(CUcontext* context, void*, unsigned flags,
                                    CUdevice device) {
  ARRIVE(cuCtxCreate_v4);
  return CreateContext(context, flags, device);
}

FAKE_EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
  ARRIVE(cuCtxDestroy_v2);
  REQUIRE_INIT();
  REQUIRE(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  fake::WaitDevice(context->device, fake::DeviceWait(context->device));
  if (t_context == context) {
    t_context =
        t_context_depth > 0 ? t_context_stack[--t_context_depth] : nullptr;
  }
  delete context;
  return CUDA_SUCCESS;
}

FAKE_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  ARRIVE(cuCtxGetCurrent);
  REQUIRE_INIT();
  *context = t_context;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  ARRIVE(cuCtxSetCurrent);
  REQUIRE_INIT();
  t_context = context;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ARRIVE(cuCtxPushCurrent_v2);
  REQUIRE_INIT();
  REQUIRE(context != nullptr && t_context_depth < 16,
          CUDA_ERROR_INVALID_CONTEXT);
  t_context_stack[t_context_depth++] = t_context;
  t_context = context;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  ARRIVE(cuCtxPopCurrent_v2);
  REQUIRE_CONTEXT();
  if (context != nullptr) {
    *context = t_context;
  }
  t_context =
      t_context_depth > 0 ? t_context_stack[--t_context_depth] : nullptr;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  ARRIVE(cuCtxGetDevice);
  REQUIRE_CONTEXT();
  *device = t_context->device;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxGetFlags(unsigned* flags) {
  ARRIVE(cuCtxGetFlags);
  REQUIRE_CONTEXT();
  *flags = fake::ScheduleFlags(Device());
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxSetFlags(unsigned flags) {
  ARRIVE(cuCtxSetFlags);
  REQUIRE_CONTEXT();
  fake::SetScheduleFlags(Device(), flags);
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxSynchronize() {
  ARRIVE(cuCtxSynchronize);
  REQUIRE_CONTEXT();
  fake::WaitDevice(Device(), WaitMode());
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ARRIVE(cuCtxGetStreamPriorityRange);
  REQUIRE_CONTEXT();
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

// ---- streams and events -------------------------------------------------

static CUresult CreateStream(CUstream* stream, unsigned flags) {
  REQUIRE_CONTEXT();
  BurnUs(config().stream_create_us);
  *stream = reinterpret_cast<CUstream>(fake::NewStream(Device(), flags));
  return *stream != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
FAKE_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  ARRIVE(cuStreamCreate);
  return CreateStream(stream, flags);
}
FAKE_EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream,
                                                unsigned flags, int) {
  ARRIVE(cuStreamCreateWithPriority);
  return CreateStream(stream, flags);
}
FAKE_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  ARRIVE(cuStreamDestroy_v2);
  REQUIRE_INIT();
  auto* s = reinterpret_cast<Stream*>(stream);
  REQUIRE(fake::IsStream(s), CUDA_ERROR_INVALID_HANDLE);
  fake::DestroyStream(s);
  return CUDA_SUCCESS;
}

FAKE_EXPORT int fake_cuda_stream_times(void* stream, uint64_t* end_ns,
                                       uint64_t* idle_ns) {
  REQUIRE_INIT();
  Stream* s = ToStream(static_cast<CUstream>(stream), false);
  REQUIRE(s != nullptr, CUDA_ERROR_INVALID_HANDLE);
  const fake::StreamTimes times = fake::TimesOf(s);
  *end_ns = times.end_ns;
  *idle_ns = times.idle_ns;
  return CUDA_SUCCESS;
}

STREAM_FUNCTION(cuStreamSynchronize, _ptsz, stream, (CUstream stream), {
  REQUIRE(!fake::Capturing(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  fake::WaitStream(s, WaitMode());
  return CUDA_SUCCESS;
})
STREAM_FUNCTION(cuStreamQuery, _ptsz, stream, (CUstream stream), {
  BurnUs(config().query_us);
  return fake::StreamDone(s) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
})
STREAM_FUNCTION(cuStreamGetFlags, _ptsz, stream,
                (CUstream stream, unsigned* flags), {
                  *flags = fake::StreamFlags(s);
                  return CUDA_SUCCESS;
                })
STREAM_FUNCTION(cuStreamGetPriority, _ptsz, stream,
                (CUstream stream, int* priority), {
                  (void)s;
                  *priority = 0;
                  return CUDA_SUCCESS;
                })
STREAM_FUNCTION(cuStreamGetCtx, _ptsz, stream,
                (CUstream stream, CUcontext* context), {
                  (void)s;
                  *context = t_context;
                  return CUDA_SUCCESS;
                })
STREAM_FUNCTION(cuStreamWaitEvent, _ptsz, stream,
                (CUstream stream, CUevent event, unsigned), {
                  auto* e = reinterpret_cast<Event*>(event);
                  REQUIRE(fake::IsEvent(e), CUDA_ERROR_INVALID_HANDLE);
                  BurnUs(config().event_us);
                  fake::StreamWaitEvent(s, e);
                  return CUDA_SUCCESS;
                })
STREAM_FUNCTION(cuLaunchHostFunc, _ptsz, stream,
                (CUstream stream, cuHostFn fn, void* data), {
                  REQUIRE(fn != nullptr, CUDA_ERROR_INVALID_VALUE);
                  BurnUs(config().launch_us);
                  fake::SubmitHostFunc(s, fn, data);
                  return CUDA_SUCCESS;
                })

namespace {
struct StreamCallback {
  void (*fn)(CUstream, CUresult, void*);
  CUstream stream;
  void* data;
};
void RunStreamCallback(void* p) {
  StreamCallback call = *static_cast<StreamCallback*>(p);
  delete static_cast<StreamCallback*>(p);
  call.fn(call.stream, CUDA_SUCCESS, call.data);
}
}  // namespace
STREAM_FUNCTION(cuStreamAddCallback, _ptsz, stream,
                (CUstream stream, cuStreamCallbackFn fn, void* data, unsigned),
                {
                  REQUIRE(fn != nullptr, CUDA_ERROR_INVALID_VALUE);
                  BurnUs(config().launch_us);
                  fake::SubmitHostFunc(s, RunStreamCallback,
                                       new StreamCallback{fn, stream, data});
                  return CUDA_SUCCESS;
                })
STREAM_FUNCTION(cuStreamIsCapturing, _ptsz, stream,
                (CUstream stream, int* status), {
                  *status = fake::Capturing(s) ? 1 : 0;
                  return CUDA_SUCCESS;
                })
STREAM_FUNCTION(cuStreamBeginCapture_v2, _ptsz, stream,
                (CUstream stream, int), {
                  REQUIRE(stream != nullptr && fake::BeginCapture(s),
                          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                  return CUDA_SUCCESS;
                })
STREAM_FUNCTION(cuStreamEndCapture, _ptsz, stream,
                (CUstream stream, CUgraph* graph), {
                  fake::CapturedGraph captured;
                  REQUIRE(fake::EndCapture(s, &captured),
                          CUDA_ERROR_INVALID_VALUE);
                  *graph = new CUgraph_st{captured};
                  return CUDA_SUCCESS;
                })

FAKE_EXPORT CUresult cuEventCreate(CUevent* event, unsigned flags) {
  ARRIVE(cuEventCreate);
  REQUIRE_CONTEXT();
  BurnUs(config().event_us);
  *event = reinterpret_cast<CUevent>(fake::NewEvent(flags));
  return *event != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
FAKE_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  ARRIVE(cuEventDestroy_v2);
  REQUIRE_INIT();
  auto* e = reinterpret_cast<Event*>(event);
  REQUIRE(fake::IsEvent(e), CUDA_ERROR_INVALID_HANDLE);
  fake::DestroyEvent(e);
  return CUDA_SUCCESS;
}
#define RECORD_EVENT                                         \
  {                                                          \
    auto* e = reinterpret_cast<Event*>(event);               \
    REQUIRE(fake::IsEvent(e), CUDA_ERROR_INVALID_HANDLE);    \
    BurnUs(config().event_us);                               \
    fake::RecordEvent(e, s);                                 \
    return CUDA_SUCCESS;                                     \
  }
STREAM_FUNCTION(cuEventRecord, _ptsz, stream,
                (CUevent event, CUstream stream), RECORD_EVENT)
STREAM_FUNCTION(cuEventRecordWithFlags, _ptsz, stream,
                (CUevent event, CUstream stream, unsigned), RECORD_EVENT)
FAKE_EXPORT CUresult cuEventQuery(CUevent event) {
  ARRIVE(cuEventQuery);
  REQUIRE_INIT();
  auto* e = reinterpret_cast<Event*>(event);
  REQUIRE(fake::IsEvent(e), CUDA_ERROR_INVALID_HANDLE);
  BurnUs(config().query_us);
  return fake::EventDone(e) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
FAKE_EXPORT CUresult cuEventSynchronize(CUevent event) {
  ARRIVE(cuEventSynchronize);
  REQUIRE_INIT();
  auto* e = reinterpret_cast<Event*>(event);
  REQUIRE(fake::IsEvent(e), CUDA_ERROR_INVALID_HANDLE);
  // Measured: a plain event spins even where the context has the blocking
  // flag; an event with the flag sleeps.
  Wait wait = (fake::EventFlags(e) & cudaEventBlockingSync) != 0
                  ? Wait::kSleep
              : WaitMode() == Wait::kSleep && config().sync < 0
                  ? Wait::kSpin
                  : WaitMode();
  fake::WaitEvent(e, wait);
  return CUDA_SUCCESS;
}
static CUresult ElapsedTime(float* ms, CUevent a, CUevent b) {
  REQUIRE_INIT();
  auto* ea = reinterpret_cast<Event*>(a);
  auto* eb = reinterpret_cast<Event*>(b);
  REQUIRE(fake::IsEvent(ea) && fake::IsEvent(eb), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(fake::EventDone(ea) && fake::EventDone(eb), CUDA_ERROR_NOT_READY);
  uint64_t ta = fake::EventTimeNs(ea), tb = fake::EventTimeNs(eb);
  REQUIRE(ta != 0 && tb != 0, CUDA_ERROR_INVALID_HANDLE);
  *ms = static_cast<float>(
      (static_cast<double>(tb) - static_cast<double>(ta)) / 1e6);
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuEventElapsedTime(float* ms, CUevent a, CUevent b) {
  ARRIVE(cuEventElapsedTime);
  return ElapsedTime(ms, a, b);
}
FAKE_EXPORT CUresult cuEventElapsedTime_v2(float* ms, CUevent a, CUevent b) {
  ARRIVE(cuEventElapsedTime_v2);
  return ElapsedTime(ms, a, b);
}

// ---- memory -------------------------------------------------------------

namespace {

size_t RoundUp(size_t bytes) {
  return (std::max<size_t>(bytes, 1) + 4095) & ~size_t{4095};
}

// Device addresses are reserved, never readable, as on the host of a real
// GPU. Host memory is real.
CUresult Map(void** p, size_t bytes, MemoryKind kind) {
  REQUIRE(p != nullptr, CUDA_ERROR_INVALID_VALUE);
  bool device = kind == MemoryKind::kDevice;
  if (device && fake::DeviceBytesUsed() + bytes >
                    config().device_gib * (1u << 30)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  flags |= device ? MAP_NORESERVE : 0;
  flags |= kind == MemoryKind::kPinned ? MAP_POPULATE : 0;
  void* m = mmap(nullptr, RoundUp(bytes),
                 device ? PROT_NONE : PROT_READ | PROT_WRITE, flags, -1, 0);
  REQUIRE(m != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  if (!fake::AddRange(m, RoundUp(bytes), kind)) {
    munmap(m, RoundUp(bytes));
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *p = m;
  return CUDA_SUCCESS;
}

CUresult Unmap(void* p) {
  if (p == nullptr) {
    return CUDA_SUCCESS;
  }
  MemoryKind kind;
  size_t bytes = fake::RemoveRange(p, &kind);
  REQUIRE(bytes != 0, CUDA_ERROR_INVALID_VALUE);
  if (kind != MemoryKind::kRegistered) {
    munmap(p, bytes);
  }
  return CUDA_SUCCESS;
}

CUresult AllocDevice(CUdeviceptr* p, size_t bytes) {
  REQUIRE(bytes != 0, CUDA_ERROR_INVALID_VALUE);
  fake::WaitForModules();
  BurnUs(config().malloc_us +
         config().malloc_us_per_gib * static_cast<double>(bytes) / (1u << 30));
  return Map(reinterpret_cast<void**>(p), bytes, MemoryKind::kDevice);
}

CUresult AllocHost(void** p, size_t bytes) {
  uint64_t begin = fake::NowNs();
  CUresult r = Map(p, bytes, MemoryKind::kPinned);
  auto cost = static_cast<uint64_t>(config().malloc_host_us_per_mib * 1000 *
                                    static_cast<double>(bytes) / (1u << 20));
  uint64_t spent = fake::NowNs() - begin;
  if (cost > spent) {
    fake::BurnNs(cost - spent);
  }
  return r;
}

bool OnDevice(const void* p) {
  MemoryKind kind = fake::KindOf(p);
  return kind == MemoryKind::kDevice || kind == MemoryKind::kManaged;
}
bool Pinned(const void* p) {
  MemoryKind kind = fake::KindOf(p);
  return kind == MemoryKind::kPinned || kind == MemoryKind::kRegistered;
}

CUresult Copy(const void* dst, const void* src, size_t bytes, Stream* s,
              bool async) {
  const auto& c = config();
  REQUIRE(dst != nullptr && src != nullptr, CUDA_ERROR_INVALID_VALUE);
  if (fake::Capturing(s)) {
    REQUIRE(async, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    fake::SubmitWork(s, TransferNs(bytes, c.h2d_pinned_gbps));
    return CUDA_SUCCESS;
  }
  bool to_device = OnDevice(dst), from_device = OnDevice(src);
  BurnUs(c.copy_us);
  if (to_device && from_device) {
    fake::SubmitWork(s, TransferNs(bytes, c.d2d_gbps));
    return CUDA_SUCCESS;  // asynchronous to the host in both forms
  }
  if (!to_device && !from_device) {
    fake::WaitStream(s, WaitMode());
    fake::BurnNs(TransferNs(bytes, c.d2h_pageable_gbps));
    return CUDA_SUCCESS;
  }
  bool pinned = Pinned(to_device ? src : dst);
  if (pinned) {
    fake::SubmitWork(s, TransferNs(bytes, to_device ? c.h2d_pinned_gbps
                                                    : c.d2h_pinned_gbps));
    if (!async) {
      fake::WaitStream(s, WaitMode());
    }
    return CUDA_SUCCESS;
  }
  if (to_device) {
    if (!async || bytes > c.staging_kib * 1024) {
      fake::WaitStream(s, WaitMode());
    }
    fake::BurnNs(TransferNs(bytes, c.h2d_pageable_gbps));
    fake::SubmitWork(s, 1000);  // the last staging buffer
  } else {
    fake::WaitStream(s, WaitMode());
    fake::BurnNs(TransferNs(bytes, c.d2h_pageable_gbps));
  }
  return CUDA_SUCCESS;
}

CUresult Set(size_t bytes, Stream* s) {
  BurnUs(config().copy_us);
  fake::SubmitWork(s, TransferNs(bytes, config().memset_gbps));
  return CUDA_SUCCESS;
}

}  // namespace

FAKE_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* p, size_t bytes) {
  ARRIVE(cuMemAlloc_v2);
  REQUIRE_CONTEXT();
  return AllocDevice(p, bytes);
}
FAKE_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr* p, size_t* pitch,
                                        size_t width, size_t height,
                                        unsigned) {
  ARRIVE(cuMemAllocPitch_v2);
  REQUIRE_CONTEXT();
  *pitch = (width + 511) & ~size_t{511};
  return AllocDevice(p, *pitch * height);
}
FAKE_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* p, size_t bytes,
                                       unsigned) {
  ARRIVE(cuMemAllocManaged);
  REQUIRE_CONTEXT();
  BurnUs(config().malloc_us);
  return Map(reinterpret_cast<void**>(p), bytes, MemoryKind::kManaged);
}
FAKE_EXPORT CUresult cuMemAllocHost_v2(void** p, size_t bytes) {
  ARRIVE(cuMemAllocHost_v2);
  REQUIRE_CONTEXT();
  return AllocHost(p, bytes);
}
FAKE_EXPORT CUresult cuMemHostAlloc(void** p, size_t bytes, unsigned) {
  ARRIVE(cuMemHostAlloc);
  REQUIRE_CONTEXT();
  return AllocHost(p, bytes);
}
FAKE_EXPORT CUresult cuMemHostRegister_v2(void* p, size_t bytes, unsigned) {
  ARRIVE(cuMemHostRegister_v2);
  REQUIRE_CONTEXT();
  BurnUs(config().malloc_host_us_per_mib * static_cast<double>(bytes) /
         (1u << 20));
  return fake::AddRange(p, bytes, MemoryKind::kRegistered)
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}
FAKE_EXPORT CUresult cuMemHostUnregister(void* p) {
  ARRIVE(cuMemHostUnregister);
  REQUIRE_CONTEXT();
  return Unmap(p);
}
FAKE_EXPORT CUresult cuMemFreeHost(void* p) {
  ARRIVE(cuMemFreeHost);
  REQUIRE_CONTEXT();
  fake::WaitDevice(Device(), WaitMode());
  return Unmap(p);
}
FAKE_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* p,
                                                  unsigned) {
  ARRIVE(cuMemHostGetDevicePointer_v2);
  REQUIRE_CONTEXT();
  *out = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}
// A hidden device sync.
FAKE_EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
  ARRIVE(cuMemFree_v2);
  REQUIRE_CONTEXT();
  if (p == 0) {
    return CUDA_SUCCESS;
  }
  fake::WaitDevice(Device(), WaitMode());
  BurnUs(config().free_us);
  return Unmap(Pointer(p));
}
STREAM_FUNCTION(cuMemAllocAsync, _ptsz, stream,
                (CUdeviceptr * p, size_t bytes, CUstream stream), {
                  (void)s;
                  BurnUs(config().malloc_async_us);
                  return Map(reinterpret_cast<void**>(p), bytes,
                             MemoryKind::kDevice);
                })
STREAM_FUNCTION(cuMemAllocFromPoolAsync, _ptsz, stream,
                (CUdeviceptr * p, size_t bytes, void*, CUstream stream), {
                  (void)s;
                  BurnUs(config().malloc_async_us);
                  return Map(reinterpret_cast<void**>(p), bytes,
                             MemoryKind::kDevice);
                })
STREAM_FUNCTION(cuMemFreeAsync, _ptsz, stream,
                (CUdeviceptr p, CUstream stream), {
                  (void)s;
                  BurnUs(config().malloc_async_us);
                  return Unmap(Pointer(p));
                })
FAKE_EXPORT CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  ARRIVE(cuMemGetInfo_v2);
  REQUIRE_CONTEXT();
  *total = static_cast<size_t>(config().device_gib * (1u << 30));
  *free_bytes = *total - std::min(*total, fake::DeviceBytesUsed());
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuPointerGetAttribute(void* value, int attribute,
                                           CUdeviceptr p) {
  ARRIVE(cuPointerGetAttribute);
  REQUIRE_CONTEXT();
  MemoryKind kind = fake::KindOf(Pointer(p));
  REQUIRE(kind != MemoryKind::kNone, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(attribute == 2, CUDA_ERROR_NOT_SUPPORTED);  // memory type
  *static_cast<unsigned*>(value) = OnDevice(Pointer(p)) ? 2 : 1;
  return CUDA_SUCCESS;
}

STREAM_FUNCTION(cuMemcpy, _ptds, nullptr,
                (CUdeviceptr dst, CUdeviceptr src, size_t bytes), {
                  return Copy(Pointer(dst), Pointer(src), bytes, s, false);
                })
STREAM_FUNCTION(cuMemcpyHtoD_v2, _ptds, nullptr,
                (CUdeviceptr dst, const void* src, size_t bytes), {
                  return Copy(Pointer(dst), src, bytes, s, false);
                })
STREAM_FUNCTION(cuMemcpyDtoH_v2, _ptds, nullptr,
                (void* dst, CUdeviceptr src, size_t bytes), {
                  return Copy(dst, Pointer(src), bytes, s, false);
                })
STREAM_FUNCTION(cuMemcpyDtoD_v2, _ptds, nullptr,
                (CUdeviceptr dst, CUdeviceptr src, size_t bytes), {
                  return Copy(Pointer(dst), Pointer(src), bytes, s, false);
                })
STREAM_FUNCTION(cuMemcpyAsync, _ptsz, stream,
                (CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                 CUstream stream),
                {
                  return Copy(Pointer(dst), Pointer(src), bytes, s, true);
                })
STREAM_FUNCTION(cuMemcpyHtoDAsync_v2, _ptsz, stream,
                (CUdeviceptr dst, const void* src, size_t bytes,
                 CUstream stream),
                { return Copy(Pointer(dst), src, bytes, s, true); })
STREAM_FUNCTION(cuMemcpyDtoHAsync_v2, _ptsz, stream,
                (void* dst, CUdeviceptr src, size_t bytes, CUstream stream),
                { return Copy(dst, Pointer(src), bytes, s, true); })
STREAM_FUNCTION(cuMemcpyDtoDAsync_v2, _ptsz, stream,
                (CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                 CUstream stream),
                {
                  return Copy(Pointer(dst), Pointer(src), bytes, s, true);
                })
STREAM_FUNCTION(cuMemsetD8_v2, _ptds, nullptr,
                (CUdeviceptr, unsigned char, size_t n), { return Set(n, s); })
STREAM_FUNCTION(cuMemsetD16_v2, _ptds, nullptr,
                (CUdeviceptr, unsigned short, size_t n),
                { return Set(n * 2, s); })
STREAM_FUNCTION(cuMemsetD32_v2, _ptds, nullptr,
                (CUdeviceptr, unsigned, size_t n), { return Set(n * 4, s); })
STREAM_FUNCTION(cuMemsetD8Async, _ptsz, stream,
                (CUdeviceptr, unsigned char, size_t n, CUstream stream),
                { return Set(n, s); })
STREAM_FUNCTION(cuMemsetD16Async, _ptsz, stream,
                (CUdeviceptr, unsigned short, size_t n, CUstream stream),
                { return Set(n * 2, s); })
STREAM_FUNCTION(cuMemsetD32Async, _ptsz, stream,
                (CUdeviceptr, unsigned, size_t n, CUstream stream),
                { return Set(n * 4, s); })

// ---- modules, kernels, launches -----------------------------------------

namespace {

CUresult NewLibrary(void** out) {
  fake::LoadModule();
  *out = new CUlib_st;
  return CUDA_SUCCESS;
}

CUkern_st* NewKernel(CUlib_st* library, const char* name) {
  auto* k = new CUkern_st;
  k->library = library;
  k->name = name;
  k->takes_ns = k->name.find("fake_kernel_ns") != std::string::npos;
  return k;
}

CUresult Launch(CUfunction f, void** args, Stream* s) {
  auto* k = reinterpret_cast<CUkern_st*>(f);
  REQUIRE(k != nullptr, CUDA_ERROR_INVALID_HANDLE);
  const auto& c = config();
  fake::WaitForModules();
  double cost = c.launch_us;
  if (!k->used.exchange(true)) {
    cost = k->library->used.exchange(true) ? c.new_kernel_us
                                           : c.first_launch_us;
  }
  BurnUs(cost);
  uint64_t ns = static_cast<uint64_t>(c.kernel_us * 1000);
  if (k->takes_ns && args != nullptr) {
    memcpy(&ns, args[0], sizeof ns);
  }
  fake::SubmitWork(s, ns);
  return CUDA_SUCCESS;
}

}  // namespace

FAKE_EXPORT CUresult cuModuleLoad(CUmodule* module, const char*) {
  ARRIVE(cuModuleLoad);
  REQUIRE_CONTEXT();
  return NewLibrary(reinterpret_cast<void**>(module));
}
FAKE_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void*) {
  ARRIVE(cuModuleLoadData);
  REQUIRE_CONTEXT();
  return NewLibrary(reinterpret_cast<void**>(module));
}
FAKE_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void*,
                                        unsigned, int*, void**) {
  ARRIVE(cuModuleLoadDataEx);
  REQUIRE_CONTEXT();
  return NewLibrary(reinterpret_cast<void**>(module));
}
FAKE_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* module, const void*) {
  ARRIVE(cuModuleLoadFatBinary);
  REQUIRE_CONTEXT();
  return NewLibrary(reinterpret_cast<void**>(module));
}
// Kernels may still be named after the unload, so nothing is freed.
FAKE_EXPORT CUresult cuModuleUnload(CUmodule) {
  ARRIVE(cuModuleUnload);
  REQUIRE_CONTEXT();
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module,
                                         const char* name) {
  ARRIVE(cuModuleGetFunction);
  REQUIRE_CONTEXT();
  REQUIRE(module != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
  *function = reinterpret_cast<CUfunction>(
      NewKernel(reinterpret_cast<CUlib_st*>(module), name));
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void*, int*,
                                       void**, unsigned, int*, void**,
                                       unsigned) {
  ARRIVE(cuLibraryLoadData);
  REQUIRE_INIT();
  return NewLibrary(reinterpret_cast<void**>(library));
}
FAKE_EXPORT CUresult cuLibraryUnload(CUlibrary) {
  ARRIVE(cuLibraryUnload);
  REQUIRE_INIT();
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library,
                                        const char* name) {
  ARRIVE(cuLibraryGetKernel);
  REQUIRE_INIT();
  REQUIRE(library != nullptr && name != nullptr, CUDA_ERROR_INVALID_VALUE);
  *kernel = NewKernel(library, name);
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  ARRIVE(cuLibraryGetModule);
  REQUIRE_CONTEXT();
  *module = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuKernelGetFunction(CUfunction* function,
                                         CUkernel kernel) {
  ARRIVE(cuKernelGetFunction);
  REQUIRE_CONTEXT();
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuKernelGetName(const char** name, CUkernel kernel) {
  ARRIVE(cuKernelGetName);
  REQUIRE_INIT();
  REQUIRE(kernel != nullptr, CUDA_ERROR_INVALID_HANDLE);
  *name = kernel->name.c_str();
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuFuncGetName(const char** name, CUfunction function) {
  ARRIVE(cuFuncGetName);
  REQUIRE_INIT();
  REQUIRE(function != nullptr, CUDA_ERROR_INVALID_HANDLE);
  *name = reinterpret_cast<CUkern_st*>(function)->name.c_str();
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuFuncGetAttribute(int* value, int, CUfunction) {
  ARRIVE(cuFuncGetAttribute);
  REQUIRE_CONTEXT();
  *value = 1024;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuFuncSetAttribute(CUfunction, int, int) {
  ARRIVE(cuFuncSetAttribute);
  REQUIRE_CONTEXT();
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, CUfunction, int, size_t, unsigned) {
  ARRIVE(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  REQUIRE_CONTEXT();
  *blocks = 2;
  return CUDA_SUCCESS;
}

STREAM_FUNCTION(cuLaunchKernel, _ptsz, stream,
                (CUfunction f, unsigned, unsigned, unsigned, unsigned,
                 unsigned, unsigned, unsigned, CUstream stream, void** args,
                 void**),
                { return Launch(f, args, s); })
STREAM_FUNCTION(cuLaunchCooperativeKernel, _ptsz, stream,
                (CUfunction f, unsigned, unsigned, unsigned, unsigned,
                 unsigned, unsigned, unsigned, CUstream stream, void** args),
                { return Launch(f, args, s); })
STREAM_FUNCTION(cuLaunchKernelEx, _ptsz, launch->hStream,
                (const CUlaunchConfig* launch, CUfunction f, void** args,
                 void**),
                { return Launch(f, args, s); })

// ---- graphs -------------------------------------------------------------

FAKE_EXPORT CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  ARRIVE(cuGraphCreate);
  REQUIRE_INIT();
  *graph = new CUgraph_st;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  ARRIVE(cuGraphDestroy);
  REQUIRE(graph != nullptr, CUDA_ERROR_INVALID_VALUE);
  delete graph;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuGraphGetNodes(CUgraph graph, void** nodes,
                                     size_t* count) {
  ARRIVE(cuGraphGetNodes);
  REQUIRE(graph != nullptr && count != nullptr, CUDA_ERROR_INVALID_VALUE);
  size_t n = graph->captured.nodes;
  if (nodes != nullptr) {
    n = std::min(n, *count);
    for (size_t i = 0; i < n; i++) {
      nodes[i] = reinterpret_cast<char*>(graph) + 1 + i;
    }
  }
  *count = n;
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec,
                                                 CUgraph graph,
                                                 unsigned long long) {
  ARRIVE(cuGraphInstantiateWithFlags);
  REQUIRE_CONTEXT();
  REQUIRE(graph != nullptr, CUDA_ERROR_INVALID_VALUE);
  BurnUs(config().graph_instantiate_us);
  *exec = new CUgraphExec_st{graph->captured};
  return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ARRIVE(cuGraphExecDestroy);
  REQUIRE(exec != nullptr, CUDA_ERROR_INVALID_VALUE);
  delete exec;
  return CUDA_SUCCESS;
}
STREAM_FUNCTION(cuGraphLaunch, _ptsz, stream,
                (CUgraphExec exec, CUstream stream), {
                  REQUIRE(exec != nullptr, CUDA_ERROR_INVALID_VALUE);
                  BurnUs(config().launch_us);
                  fake::SubmitWork(s, exec->captured.ns);
                  return CUDA_SUCCESS;
                })
STREAM_FUNCTION(cuGraphUpload, _ptsz, stream,
                (CUgraphExec exec, CUstream stream), {
                  (void)s;
                  REQUIRE(exec != nullptr, CUDA_ERROR_INVALID_VALUE);
                  return CUDA_SUCCESS;
                })

// ---- look-up ------------------------------------------------------------

namespace {

struct Symbol {
  const char* exported;
  const char* base;
  int since;  // CUDA version that brought this ABI
  bool per_thread;
  void* address;
};

}  // namespace

// Addresses are taken by name, so that a weak stub and an implementation look
// alike here.
#define X(symbol, ...) \
  extern "C" char fake_address_of_##symbol __asm__(#symbol);
#include "driver_functions.def"
#undef X

namespace {

const Symbol kSymbols[] = {
#define X(symbol, base, since, per_thread) \
  {#symbol, base, since, per_thread, &fake_address_of_##symbol},
#include "driver_functions.def"
#undef X
};

enum QueryResult { kFound = 0, kNotFound = 1, kVersionNotSufficient = 2 };

// The newest ABI that `version` knows; for per-thread streams the _ptsz form
// where there is one.
QueryResult Find(const char* name, int version, uint64_t flags, void** out) {
  const Symbol* best = nullptr;
  bool known = false;
  bool per_thread = (flags & 2) != 0;
  for (const Symbol& s : kSymbols) {
    if (strcmp(s.base, name) != 0 || (s.per_thread && !per_thread)) {
      continue;
    }
    known = true;
    if (s.since <= version &&
        (best == nullptr || s.per_thread > best->per_thread ||
         (s.per_thread == best->per_thread && s.since >= best->since))) {
      best = &s;
    }
  }
  *out = best != nullptr ? best->address : nullptr;
  return best != nullptr ? kFound : known ? kVersionNotSufficient : kNotFound;
}

}  // namespace

FAKE_EXPORT CUresult cuGetProcAddress(const char* name, void** out,
                                      int version, uint64_t flags) {
  ARRIVE(cuGetProcAddress);
  REQUIRE(name != nullptr && out != nullptr && flags <= 2,
          CUDA_ERROR_INVALID_VALUE);
  return Find(name, version, flags, out) == kFound ? CUDA_SUCCESS
                                                   : CUDA_ERROR_NOT_FOUND;
}

FAKE_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** out,
                                         int version, uint64_t flags,
                                         int* status) {
  ARRIVE(cuGetProcAddress_v2);
  REQUIRE(name != nullptr && out != nullptr && flags <= 2,
          CUDA_ERROR_INVALID_VALUE);
  QueryResult result = Find(name, version, flags, out);
  if (status != nullptr) {
    *status = result;
  }
  return result == kFound ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
