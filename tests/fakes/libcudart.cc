// SPDX-License-Identifier: Apache-2.0
// Simulated libcudart: the runtime over the driver, which it reaches the way
// the real one does: dlopen("libcuda.so.1"), one dlsym for
// cuGetProcAddress_v2, an empty probe, cuInit, cuGetProcAddress looked up
// through itself, and every other function through that pointer. So driver
// calls occur inside runtime calls, and an interposer sees both.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "arrivals.h"
#include "cuda_abi.h"
#include "fake_cuda.h"

namespace {

// X(name, version asked for, has a per-thread form, type)
#define DRIVER_FUNCTIONS(X)                                                  \
  X(cuDriverGetVersion, 2020, 0, int (*)(int*))                              \
  X(cuDeviceGetCount, 2000, 0, int (*)(int*))                                \
  X(cuDeviceGet, 2000, 0, int (*)(CUdevice*, int))                           \
  X(cuDeviceGetName, 2000, 0, int (*)(char*, int, CUdevice))                 \
  X(cuDeviceTotalMem, 3020, 0, int (*)(size_t*, CUdevice))                   \
  X(cuDeviceGetAttribute, 2000, 0, int (*)(int*, int, CUdevice))             \
  X(cuDevicePrimaryCtxRetain, 7000, 0, int (*)(CUcontext*, CUdevice))        \
  X(cuDevicePrimaryCtxReset, 11000, 0, int (*)(CUdevice))                    \
  X(cuDevicePrimaryCtxSetFlags, 11000, 0, int (*)(CUdevice, unsigned))       \
  X(cuDevicePrimaryCtxGetState, 7000, 0, int (*)(CUdevice, unsigned*, int*)) \
  X(cuCtxGetCurrent, 4000, 0, int (*)(CUcontext*))                           \
  X(cuCtxSetCurrent, 4000, 0, int (*)(CUcontext))                            \
  X(cuCtxSynchronize, 2000, 0, int (*)())                                    \
  X(cuCtxGetStreamPriorityRange, 5050, 0, int (*)(int*, int*))               \
  X(cuStreamCreate, 2000, 0, int (*)(CUstream*, unsigned))                   \
  X(cuStreamCreateWithPriority, 5050, 0, int (*)(CUstream*, unsigned, int))  \
  X(cuStreamDestroy, 4000, 0, int (*)(CUstream))                             \
  X(cuStreamSynchronize, 2000, 1, int (*)(CUstream))                         \
  X(cuStreamQuery, 2000, 1, int (*)(CUstream))                               \
  X(cuStreamGetFlags, 5050, 1, int (*)(CUstream, unsigned*))                 \
  X(cuStreamGetPriority, 5050, 1, int (*)(CUstream, int*))                   \
  X(cuStreamWaitEvent, 3020, 1, int (*)(CUstream, CUevent, unsigned))        \
  X(cuStreamAddCallback, 5000, 1,                                            \
    int (*)(CUstream, cuStreamCallbackFn, void*, unsigned))                  \
  X(cuStreamIsCapturing, 10000, 1, int (*)(CUstream, int*))                  \
  X(cuStreamBeginCapture, 10010, 1, int (*)(CUstream, int))                  \
  X(cuStreamEndCapture, 10000, 1, int (*)(CUstream, CUgraph*))               \
  X(cuLaunchHostFunc, 10000, 1, int (*)(CUstream, cuHostFn, void*))          \
  X(cuEventCreate, 2000, 0, int (*)(CUevent*, unsigned))                     \
  X(cuEventDestroy, 4000, 0, int (*)(CUevent))                               \
  X(cuEventRecord, 2000, 1, int (*)(CUevent, CUstream))                      \
  X(cuEventRecordWithFlags, 11010, 1, int (*)(CUevent, CUstream, unsigned))  \
  X(cuEventQuery, 2000, 0, int (*)(CUevent))                                 \
  X(cuEventSynchronize, 2000, 0, int (*)(CUevent))                           \
  X(cuEventElapsedTime, 2000, 0, int (*)(float*, CUevent, CUevent))          \
  X(cuMemAlloc, 3020, 0, int (*)(CUdeviceptr*, size_t))                      \
  X(cuMemAllocPitch, 3020, 0,                                                \
    int (*)(CUdeviceptr*, size_t*, size_t, size_t, unsigned))                \
  X(cuMemAllocManaged, 6000, 0, int (*)(CUdeviceptr*, size_t, unsigned))     \
  X(cuMemHostAlloc, 2020, 0, int (*)(void**, size_t, unsigned))              \
  X(cuMemHostRegister, 6050, 0, int (*)(void*, size_t, unsigned))            \
  X(cuMemHostUnregister, 4000, 0, int (*)(void*))                            \
  X(cuMemHostGetDevicePointer, 3020, 0,                                      \
    int (*)(CUdeviceptr*, void*, unsigned))                                  \
  X(cuMemFreeHost, 2000, 0, int (*)(void*))                                  \
  X(cuMemFree, 3020, 0, int (*)(CUdeviceptr))                                \
  X(cuMemAllocAsync, 11020, 1, int (*)(CUdeviceptr*, size_t, CUstream))      \
  X(cuMemAllocFromPoolAsync, 11020, 1,                                       \
    int (*)(CUdeviceptr*, size_t, void*, CUstream))                          \
  X(cuMemFreeAsync, 11020, 1, int (*)(CUdeviceptr, CUstream))                \
  X(cuMemGetInfo, 3020, 0, int (*)(size_t*, size_t*))                        \
  X(cuMemcpy, 4000, 1, int (*)(CUdeviceptr, CUdeviceptr, size_t))            \
  X(cuMemcpyHtoD, 3020, 1, int (*)(CUdeviceptr, const void*, size_t))        \
  X(cuMemcpyDtoH, 3020, 1, int (*)(void*, CUdeviceptr, size_t))              \
  X(cuMemcpyDtoD, 3020, 1, int (*)(CUdeviceptr, CUdeviceptr, size_t))        \
  X(cuMemcpyAsync, 4000, 1,                                                  \
    int (*)(CUdeviceptr, CUdeviceptr, size_t, CUstream))                     \
  X(cuMemcpyHtoDAsync, 3020, 1,                                              \
    int (*)(CUdeviceptr, const void*, size_t, CUstream))                     \
  X(cuMemcpyDtoHAsync, 3020, 1, int (*)(void*, CUdeviceptr, size_t,          \
                                        CUstream))                           \
  X(cuMemcpyDtoDAsync, 3020, 1,                                              \
    int (*)(CUdeviceptr, CUdeviceptr, size_t, CUstream))                     \
  X(cuMemsetD8, 3020, 1, int (*)(CUdeviceptr, unsigned char, size_t))        \
  X(cuMemsetD8Async, 3020, 1,                                                \
    int (*)(CUdeviceptr, unsigned char, size_t, CUstream))                   \
  X(cuLibraryLoadData, 12000, 0,                                             \
    int (*)(CUlibrary*, const void*, int*, void**, unsigned, int*, void**,   \
            unsigned))                                                       \
  X(cuLibraryGetKernel, 12000, 0, int (*)(CUkernel*, CUlibrary, const char*)) \
  X(cuLibraryUnload, 12000, 0, int (*)(CUlibrary))                           \
  X(cuKernelGetFunction, 12000, 0, int (*)(CUfunction*, CUkernel))           \
  X(cuLaunchKernel, 4000, 1,                                                 \
    int (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,    \
            unsigned, unsigned, CUstream, void**, void**))                   \
  X(cuLaunchKernelEx, 11060, 1,                                              \
    int (*)(const CUlaunchConfig*, CUfunction, void**, void**))              \
  X(cuLaunchCooperativeKernel, 9000, 1,                                      \
    int (*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,    \
            unsigned, unsigned, CUstream, void**))                           \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000, 0,           \
    int (*)(int*, CUfunction, int, size_t, unsigned))                        \
  X(cuGraphCreate, 10000, 0, int (*)(CUgraph*, unsigned))                    \
  X(cuGraphDestroy, 10000, 0, int (*)(CUgraph))                              \
  X(cuGraphGetNodes, 10000, 0, int (*)(CUgraph, void**, size_t*))            \
  X(cuGraphInstantiateWithFlags, 11040, 0,                                   \
    int (*)(CUgraphExec*, CUgraph, unsigned long long))                      \
  X(cuGraphExecDestroy, 10000, 0, int (*)(CUgraphExec))                      \
  X(cuGraphLaunch, 10000, 1, int (*)(CUgraphExec, CUstream))                 \
  X(cuGraphUpload, 11010, 1, int (*)(CUgraphExec, CUstream))

#define X(name, version, per_thread, ...) using name##_t = __VA_ARGS__;
DRIVER_FUNCTIONS(X)
#undef X

// [1]: the form for per-thread default streams, where there is one.
struct Driver {
#define X(name, version, per_thread, ...) name##_t name[2];
  DRIVER_FUNCTIONS(X)
#undef X
};
Driver g_driver;
pthread_once_t g_once = PTHREAD_ONCE_INIT;
cudaError_t g_init_error;

using GetProcAddress = int (*)(const char*, void**, int, uint64_t, int*);

void LoadDriver() {
  void* lib = dlopen("libcuda.so.1", RTLD_LAZY);
  auto get = lib == nullptr ? nullptr
                            : reinterpret_cast<GetProcAddress>(
                                  dlsym(lib, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    g_init_error = cudaErrorInsufficientDriver;
    return;
  }
  void* p = nullptr;
  int status = 0;
  get("", &p, 0, 0, &status);
  if (get("cuInit", &p, 2000, 0, &status) != 0) {
    g_init_error = cudaErrorInsufficientDriver;
    return;
  }
  g_init_error = reinterpret_cast<int (*)(unsigned)>(p)(0);
  if (g_init_error != 0) {
    return;
  }
  get("cuGetProcAddress", &p, 11030, 0, &status);
  if (get("cuGetProcAddress", &p, 12000, 0, &status) == 0) {
    get = reinterpret_cast<GetProcAddress>(p);
  }
#define X(name, version, per_thread, ...)                                   \
  if (get(#name, &p, version, 0, &status) != 0) {                           \
    g_init_error = cudaErrorInsufficientDriver;                             \
    return;                                                                 \
  }                                                                         \
  g_driver.name[0] = g_driver.name[1] = reinterpret_cast<name##_t>(p);      \
  if (per_thread && get(#name, &p, 13000, 2, &status) == 0) {               \
    g_driver.name[1] = reinterpret_cast<name##_t>(p);                       \
  }
  DRIVER_FUNCTIONS(X)
#undef X
}

thread_local cudaError_t t_last_error;
thread_local int t_device;
thread_local bool t_bound;  // the primary context is current on this thread

constexpr int kMaxDevices = 8;
std::atomic<bool> g_retained[kMaxDevices];
pthread_mutex_t g_retain_mutex = PTHREAD_MUTEX_INITIALIZER;

cudaError_t Done(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) {
    t_last_error = e;
  }
  return e;
}

cudaError_t InitDriver() {
  pthread_once(&g_once, LoadDriver);
  return g_init_error;
}

cudaError_t BindContext() {
  if (cudaError_t e = InitDriver()) {
    return e;
  }
  if (t_bound) {
    return cudaSuccess;
  }
  CUcontext context = nullptr;
  if (int e = g_driver.cuCtxGetCurrent[0](&context)) {
    return e;
  }
  if (context == nullptr) {
    static CUcontext primary[kMaxDevices];
    if (!g_retained[t_device].load(std::memory_order_acquire)) {
      pthread_mutex_lock(&g_retain_mutex);
      int e = 0;
      if (!g_retained[t_device].load()) {
        e = g_driver.cuDevicePrimaryCtxRetain[0](&primary[t_device], t_device);
        g_retained[t_device].store(e == 0);
      }
      pthread_mutex_unlock(&g_retain_mutex);
      if (e != 0) {
        return e;
      }
    }
    if (int e = g_driver.cuCtxSetCurrent[0](primary[t_device])) {
      return e;
    }
  }
  t_bound = true;
  return cudaSuccess;
}

// Beginning of nearly every entry point.
#define ENTER(name)                    \
  ARRIVE(name);                        \
  if (cudaError_t e = BindContext()) { \
    return Done(e);                    \
  }

// Defines an entry point that needs a context.
#define RUNTIME(name, PARAMS, ...)       \
  FAKE_EXPORT cudaError_t name PARAMS {  \
    ENTER(name);                         \
    return Done(__VA_ARGS__);            \
  }

// The same in both stream forms; `pt` is 1 in the per-thread one.
#define RUNTIME_STREAM(name, suffix, PARAMS, ...) \
  FAKE_EXPORT cudaError_t name PARAMS {           \
    ENTER(name);                                  \
    constexpr int pt = 0;                         \
    return Done(__VA_ARGS__);                     \
  }                                               \
  FAKE_EXPORT cudaError_t name##suffix PARAMS {   \
    ENTER(name##suffix);                          \
    constexpr int pt = 1;                         \
    return Done(__VA_ARGS__);                     \
  }

CUdeviceptr Address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

// ---- kernels ------------------------------------------------------------

struct Module {
  const void* fat_binary;
  std::atomic<CUlibrary> library{nullptr};
};

// A slot is written once, before its key is published, and never freed: look-
// up takes no lock, so that a fork at any moment leaves it usable.
struct Kernel {
  std::atomic<const void*> host_function{nullptr};
  Module* module = nullptr;
  const char* name = nullptr;
  std::atomic<CUkernel> handle{nullptr};
};
constexpr size_t kMaxKernels = 8192;
constinit Kernel g_kernels[kMaxKernels];
pthread_mutex_t g_register_mutex = PTHREAD_MUTEX_INITIALIZER;

size_t Slot(const void* p) {
  return (reinterpret_cast<uintptr_t>(p) * 0x9e3779b97f4a7c15u) >> 51;
}

Kernel* FindKernel(const void* host_function) {
  for (size_t i = Slot(host_function);; i = (i + 1) % kMaxKernels) {
    const void* key = g_kernels[i].host_function.load(std::memory_order_acquire);
    if (key == host_function) {
      return &g_kernels[i];
    }
    if (key == nullptr) {
      return nullptr;
    }
  }
}

void RegisterKernel(Module* module, const void* host_function,
                    const char* name) {
  pthread_mutex_lock(&g_register_mutex);
  if (FindKernel(host_function) == nullptr) {
    size_t i = Slot(host_function);
    size_t probes = 0;
    while (g_kernels[i].host_function.load() != nullptr &&
           ++probes < kMaxKernels - 1) {
      i = (i + 1) % kMaxKernels;
    }
    if (probes < kMaxKernels - 1) {
      g_kernels[i].module = module;
      g_kernels[i].name = name;
      g_kernels[i].host_function.store(host_function,
                                       std::memory_order_release);
    }
  }
  pthread_mutex_unlock(&g_register_mutex);
}

// Loads the module on the first use of one of its kernels, as lazy loading
// does.
cudaError_t ResolveKernel(Kernel* k, CUkernel* out) {
  if (k == nullptr) {
    return cudaErrorInvalidDeviceFunction;
  }
  CUkernel handle = k->handle.load(std::memory_order_acquire);
  if (handle == nullptr) {
    CUlibrary library = k->module->library.load(std::memory_order_acquire);
    if (library == nullptr) {
      CUlibrary loaded = nullptr;
      if (int e = g_driver.cuLibraryLoadData[0](&loaded, k->module->fat_binary,
                                                nullptr, nullptr, 0, nullptr,
                                                nullptr, 0)) {
        return e;
      }
      if (k->module->library.compare_exchange_strong(library, loaded)) {
        library = loaded;
      }
    }
    CUkernel found = nullptr;
    if (int e = g_driver.cuLibraryGetKernel[0](&found, library, k->name)) {
      return e;
    }
    if (k->handle.compare_exchange_strong(handle, found)) {
      handle = found;
    }
  }
  *out = handle;
  return cudaSuccess;
}

cudaError_t LaunchHandle(CUkernel kernel, fake_dim3 grid, fake_dim3 block,
                         void** args, size_t shared, cudaStream_t stream,
                         int pt) {
  return g_driver.cuLaunchKernel[pt](
      reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x,
      block.y, block.z, static_cast<unsigned>(shared), stream, args, nullptr);
}

cudaError_t LaunchFunction(const void* func, fake_dim3 grid, fake_dim3 block,
                           void** args, size_t shared, cudaStream_t stream,
                           int pt) {
  CUkernel kernel = nullptr;
  if (cudaError_t e = ResolveKernel(FindKernel(func), &kernel)) {
    return e;
  }
  return LaunchHandle(kernel, grid, block, args, shared, stream, pt);
}

cudaError_t LaunchConfig(const cudaLaunchConfig_t* c, const void* func,
                         void** args, int pt) {
  CUkernel kernel = nullptr;
  if (cudaError_t e = ResolveKernel(FindKernel(func), &kernel)) {
    return e;
  }
  CUlaunchConfig config = {c->gridDim.x,
                           c->gridDim.y,
                           c->gridDim.z,
                           c->blockDim.x,
                           c->blockDim.y,
                           c->blockDim.z,
                           static_cast<unsigned>(c->dynamicSmemBytes),
                           c->stream,
                           nullptr,
                           0};
  return g_driver.cuLaunchKernelEx[pt](
      &config, reinterpret_cast<CUfunction>(kernel), args, nullptr);
}

cudaError_t LaunchCooperative(const void* func, fake_dim3 grid,
                              fake_dim3 block, void** args, size_t shared,
                              cudaStream_t stream, int pt) {
  CUkernel kernel = nullptr;
  if (cudaError_t e = ResolveKernel(FindKernel(func), &kernel)) {
    return e;
  }
  return g_driver.cuLaunchCooperativeKernel[pt](
      reinterpret_cast<CUfunction>(kernel), grid.x, grid.y, grid.z, block.x,
      block.y, block.z, static_cast<unsigned>(shared), stream, args);
}

struct PushedCall {
  fake_dim3 grid, block;
  size_t shared;
  void* stream;
};
thread_local PushedCall t_pushed[8];
thread_local int t_pushed_count;

constinit Module g_builtin_module{nullptr};
__attribute__((constructor(103))) void RegisterBuiltin() {
  RegisterKernel(&g_builtin_module,
                 reinterpret_cast<const void*>(fake_kernel_ns),
                 "_Z14fake_kernel_nsm");
}

// ---- copies -------------------------------------------------------------

cudaError_t CopyAsync(void* dst, const void* src, size_t bytes, int kind,
                      cudaStream_t stream, int pt) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return g_driver.cuMemcpyHtoDAsync[pt](Address(dst), src, bytes, stream);
    case cudaMemcpyDeviceToHost:
      return g_driver.cuMemcpyDtoHAsync[pt](dst, Address(src), bytes, stream);
    case cudaMemcpyDeviceToDevice:
      return g_driver.cuMemcpyDtoDAsync[pt](Address(dst), Address(src), bytes,
                                            stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return g_driver.cuMemcpyAsync[pt](Address(dst), Address(src), bytes,
                                        stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t CopySync(void* dst, const void* src, size_t bytes, int kind,
                     int pt) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return g_driver.cuMemcpyHtoD[pt](Address(dst), src, bytes);
    case cudaMemcpyDeviceToHost:
      return g_driver.cuMemcpyDtoH[pt](dst, Address(src), bytes);
    case cudaMemcpyDeviceToDevice:
      return g_driver.cuMemcpyDtoD[pt](Address(dst), Address(src), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return g_driver.cuMemcpy[pt](Address(dst), Address(src), bytes);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

FAKE_EXPORT void fake_kernel_ns(uint64_t) {}

// ---- devices and errors -------------------------------------------------

FAKE_EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  ARRIVE(cudaGetDeviceCount);
  *count = 0;
  cudaError_t e = InitDriver();
  return Done(e != 0 ? e : g_driver.cuDeviceGetCount[0](count));
}
FAKE_EXPORT cudaError_t cudaGetDevice(int* device) {
  ARRIVE(cudaGetDevice);
  if (cudaError_t e = InitDriver()) {
    return Done(e);
  }
  *device = t_device;
  return cudaSuccess;
}
// Initialises the device, as since CUDA 12.
FAKE_EXPORT cudaError_t cudaSetDevice(int device) {
  ARRIVE(cudaSetDevice);
  int count = 0;
  if (cudaError_t e = InitDriver()) {
    return Done(e);
  }
  if (cudaError_t e = g_driver.cuDeviceGetCount[0](&count)) {
    return Done(e);
  }
  if (device < 0 || device >= count) {
    return Done(cudaErrorInvalidDevice);
  }
  if (device != t_device) {
    t_device = device;
    t_bound = false;
    g_driver.cuCtxSetCurrent[0](nullptr);
  }
  return Done(BindContext());
}
FAKE_EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags) {
  ARRIVE(cudaSetDeviceFlags);
  cudaError_t e = InitDriver();
  return Done(e != 0 ? e : g_driver.cuDevicePrimaryCtxSetFlags[0](t_device,
                                                                  flags));
}
FAKE_EXPORT cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  ARRIVE(cudaGetDeviceFlags);
  int active;
  cudaError_t e = InitDriver();
  return Done(e != 0 ? e : g_driver.cuDevicePrimaryCtxGetState[0](
                               t_device, flags, &active));
}
FAKE_EXPORT cudaError_t cudaDeviceReset() {
  ENTER(cudaDeviceReset);
  cudaError_t e = g_driver.cuDevicePrimaryCtxReset[0](t_device);
  g_driver.cuCtxSetCurrent[0](nullptr);
  g_retained[t_device].store(false);
  t_bound = false;
  return Done(e);
}
RUNTIME(cudaDeviceSynchronize, (), g_driver.cuCtxSynchronize[0]())
RUNTIME(cudaDeviceGetStreamPriorityRange, (int* least, int* greatest),
        g_driver.cuCtxGetStreamPriorityRange[0](least, greatest))
FAKE_EXPORT cudaError_t cudaDeviceGetAttribute(int* value, int attribute,
                                               int device) {
  ARRIVE(cudaDeviceGetAttribute);
  cudaError_t e = InitDriver();
  return Done(e != 0 ? e : g_driver.cuDeviceGetAttribute[0](value, attribute,
                                                            device));
}

// Offsets are those of CUDA 13.0's cudaDeviceProp; of an older runtime's
// structure, which differs further on, only the name and the memory size are
// filled in.
static cudaError_t FillProperties(void* properties, int device, bool full) {
  if (cudaError_t e = InitDriver()) {
    return e;
  }
  auto* bytes = static_cast<char*>(properties);
  memset(bytes, 0, full ? 1008 : 296);
  if (int e = g_driver.cuDeviceGetName[0](bytes, 256, device)) {
    return e;
  }
  size_t total = 0;
  g_driver.cuDeviceTotalMem[0](&total, device);
  memcpy(bytes + 288, &total, sizeof total);
  if (full) {
    auto put = [&](size_t offset, int value) {
      memcpy(bytes + offset, &value, sizeof value);
    };
    put(308, 32);    // warpSize
    put(320, 1024);  // maxThreadsPerBlock
    put(360, 9);     // major
    put(384, 132);   // multiProcessorCount
    put(604, 2048);  // maxThreadsPerMultiProcessor
  }
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaGetDeviceProperties(void* properties, int device) {
  ARRIVE(cudaGetDeviceProperties);
#ifdef FAKE_CUDART_OLD
  return Done(FillProperties(properties, device, false));
#else
  return Done(FillProperties(properties, device, true));
#endif
}
#ifdef FAKE_CUDART_OLD
FAKE_EXPORT cudaError_t cudaGetDeviceProperties_v2(void* properties,
                                                   int device) {
  ARRIVE(cudaGetDeviceProperties_v2);
  return Done(FillProperties(properties, device, false));
}
#endif

FAKE_EXPORT cudaError_t cudaGetLastError() {
  ARRIVE(cudaGetLastError);
  cudaError_t e = t_last_error;
  t_last_error = cudaSuccess;
  return e;
}
FAKE_EXPORT cudaError_t cudaPeekAtLastError() {
  ARRIVE(cudaPeekAtLastError);
  return t_last_error;
}
static const char* ErrorName(cudaError_t error) {
  switch (error) {
#define E(x) case x: return #x;
    E(cudaSuccess) E(cudaErrorInvalidValue) E(cudaErrorMemoryAllocation)
    E(cudaErrorInitializationError) E(cudaErrorInsufficientDriver)
    E(cudaErrorInvalidDeviceFunction) E(cudaErrorNoDevice)
    E(cudaErrorInvalidDevice) E(cudaErrorInvalidResourceHandle)
    E(cudaErrorNotFound) E(cudaErrorNotReady) E(cudaErrorNotSupported)
    E(cudaErrorStreamCaptureUnsupported) E(cudaErrorUnknown)
#undef E
    default: return "unrecognized error code";
  }
}
FAKE_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  ARRIVE(cudaGetErrorName);
  return ErrorName(error);
}
FAKE_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  ARRIVE(cudaGetErrorString);
  return error == cudaSuccess ? "no error" : ErrorName(error);
}
FAKE_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  ARRIVE(cudaRuntimeGetVersion);
  *version = FAKE_CUDART_VERSION;
  return cudaSuccess;
}
FAKE_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  ARRIVE(cudaDriverGetVersion);
  *version = 0;
  cudaError_t e = InitDriver();
  return Done(e != 0 ? e : g_driver.cuDriverGetVersion[0](version));
}
struct ChannelFormat {
  int x, y, z, w, kind;
};
FAKE_EXPORT ChannelFormat cudaCreateChannelDesc(int x, int y, int z, int w,
                                                int kind) {
  ARRIVE(cudaCreateChannelDesc);
  return {x, y, z, w, kind};
}

// ---- memory -------------------------------------------------------------

RUNTIME(cudaMalloc, (void** p, size_t bytes),
        g_driver.cuMemAlloc[0](reinterpret_cast<CUdeviceptr*>(p), bytes))
RUNTIME(cudaMallocPitch,
        (void** p, size_t* pitch, size_t width, size_t height),
        g_driver.cuMemAllocPitch[0](reinterpret_cast<CUdeviceptr*>(p), pitch,
                                    width, height, 4))
RUNTIME(cudaFree, (void* p), g_driver.cuMemFree[0](Address(p)))
RUNTIME(cudaMallocHost, (void** p, size_t bytes),
        g_driver.cuMemHostAlloc[0](p, bytes, 0))
RUNTIME(cudaHostAlloc, (void** p, size_t bytes, unsigned flags),
        g_driver.cuMemHostAlloc[0](p, bytes, flags))
RUNTIME(cudaFreeHost, (void* p), g_driver.cuMemFreeHost[0](p))
RUNTIME(cudaHostRegister, (void* p, size_t bytes, unsigned flags),
        g_driver.cuMemHostRegister[0](p, bytes, flags))
RUNTIME(cudaHostUnregister, (void* p), g_driver.cuMemHostUnregister[0](p))
RUNTIME(cudaHostGetDevicePointer, (void** out, void* p, unsigned flags),
        g_driver.cuMemHostGetDevicePointer[0](
            reinterpret_cast<CUdeviceptr*>(out), p, flags))
RUNTIME(cudaMallocManaged, (void** p, size_t bytes, unsigned flags),
        g_driver.cuMemAllocManaged[0](reinterpret_cast<CUdeviceptr*>(p), bytes,
                                      flags))
RUNTIME_STREAM(cudaMallocAsync, _ptsz,
               (void** p, size_t bytes, cudaStream_t stream),
               g_driver.cuMemAllocAsync[pt](reinterpret_cast<CUdeviceptr*>(p),
                                            bytes, stream))
RUNTIME_STREAM(cudaMallocFromPoolAsync, _ptsz,
               (void** p, size_t bytes, void* pool, cudaStream_t stream),
               g_driver.cuMemAllocFromPoolAsync[pt](
                   reinterpret_cast<CUdeviceptr*>(p), bytes, pool, stream))
RUNTIME_STREAM(cudaFreeAsync, _ptsz, (void* p, cudaStream_t stream),
               g_driver.cuMemFreeAsync[pt](Address(p), stream))
RUNTIME(cudaMemGetInfo, (size_t * free_bytes, size_t* total),
        g_driver.cuMemGetInfo[0](free_bytes, total))
RUNTIME_STREAM(cudaMemcpy, _ptds,
               (void* dst, const void* src, size_t bytes, int kind),
               CopySync(dst, src, bytes, kind, pt))
RUNTIME_STREAM(cudaMemcpyAsync, _ptsz,
               (void* dst, const void* src, size_t bytes, int kind,
                cudaStream_t stream),
               CopyAsync(dst, src, bytes, kind, stream, pt))
RUNTIME_STREAM(cudaMemset, _ptds, (void* p, int value, size_t bytes),
               g_driver.cuMemsetD8[pt](Address(p),
                                       static_cast<unsigned char>(value),
                                       bytes))
RUNTIME_STREAM(cudaMemsetAsync, _ptsz,
               (void* p, int value, size_t bytes, cudaStream_t stream),
               g_driver.cuMemsetD8Async[pt](Address(p),
                                            static_cast<unsigned char>(value),
                                            bytes, stream))

// ---- streams, events, graphs --------------------------------------------

RUNTIME(cudaStreamCreate, (cudaStream_t * stream),
        g_driver.cuStreamCreate[0](stream, 0))
RUNTIME(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags),
        g_driver.cuStreamCreate[0](stream, flags))
RUNTIME(cudaStreamCreateWithPriority,
        (cudaStream_t * stream, unsigned flags, int priority),
        g_driver.cuStreamCreateWithPriority[0](stream, flags, priority))
RUNTIME(cudaStreamDestroy, (cudaStream_t stream),
        g_driver.cuStreamDestroy[0](stream))
RUNTIME_STREAM(cudaStreamSynchronize, _ptsz, (cudaStream_t stream),
               g_driver.cuStreamSynchronize[pt](stream))
RUNTIME_STREAM(cudaStreamQuery, _ptsz, (cudaStream_t stream),
               g_driver.cuStreamQuery[pt](stream))
RUNTIME_STREAM(cudaStreamGetFlags, _ptsz,
               (cudaStream_t stream, unsigned* flags),
               g_driver.cuStreamGetFlags[pt](stream, flags))
RUNTIME_STREAM(cudaStreamGetPriority, _ptsz,
               (cudaStream_t stream, int* priority),
               g_driver.cuStreamGetPriority[pt](stream, priority))
RUNTIME_STREAM(cudaStreamWaitEvent, _ptsz,
               (cudaStream_t stream, cudaEvent_t event, unsigned flags),
               g_driver.cuStreamWaitEvent[pt](stream, event, flags))
RUNTIME_STREAM(cudaStreamAddCallback, _ptsz,
               (cudaStream_t stream, cuStreamCallbackFn fn, void* data,
                unsigned flags),
               g_driver.cuStreamAddCallback[pt](stream, fn, data, flags))
RUNTIME_STREAM(cudaLaunchHostFunc, _ptsz,
               (cudaStream_t stream, cudaHostFn_t fn, void* data),
               g_driver.cuLaunchHostFunc[pt](stream, fn, data))
RUNTIME_STREAM(cudaStreamIsCapturing, _ptsz,
               (cudaStream_t stream, int* status),
               g_driver.cuStreamIsCapturing[pt](stream, status))
RUNTIME_STREAM(cudaStreamBeginCapture, _ptsz, (cudaStream_t stream, int mode),
               g_driver.cuStreamBeginCapture[pt](stream, mode))
RUNTIME_STREAM(cudaStreamEndCapture, _ptsz,
               (cudaStream_t stream, cudaGraph_t* graph),
               g_driver.cuStreamEndCapture[pt](stream, graph))
RUNTIME(cudaEventCreate, (cudaEvent_t * event),
        g_driver.cuEventCreate[0](event, 0))
RUNTIME(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned flags),
        g_driver.cuEventCreate[0](event, flags))
RUNTIME(cudaEventDestroy, (cudaEvent_t event),
        g_driver.cuEventDestroy[0](event))
RUNTIME_STREAM(cudaEventRecord, _ptsz,
               (cudaEvent_t event, cudaStream_t stream),
               g_driver.cuEventRecord[pt](event, stream))
RUNTIME_STREAM(cudaEventRecordWithFlags, _ptsz,
               (cudaEvent_t event, cudaStream_t stream, unsigned flags),
               g_driver.cuEventRecordWithFlags[pt](event, stream, flags))
RUNTIME(cudaEventQuery, (cudaEvent_t event), g_driver.cuEventQuery[0](event))
RUNTIME(cudaEventSynchronize, (cudaEvent_t event),
        g_driver.cuEventSynchronize[0](event))
RUNTIME(cudaEventElapsedTime, (float* ms, cudaEvent_t a, cudaEvent_t b),
        g_driver.cuEventElapsedTime[0](ms, a, b))
RUNTIME(cudaGraphCreate, (cudaGraph_t * graph, unsigned flags),
        g_driver.cuGraphCreate[0](graph, flags))
RUNTIME(cudaGraphDestroy, (cudaGraph_t graph),
        g_driver.cuGraphDestroy[0](graph))
RUNTIME(cudaGraphGetNodes, (cudaGraph_t graph, void** nodes, size_t* count),
        g_driver.cuGraphGetNodes[0](graph, nodes, count))
RUNTIME(cudaGraphInstantiate,
        (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
        g_driver.cuGraphInstantiateWithFlags[0](exec, graph, flags))
RUNTIME(cudaGraphInstantiateWithFlags,
        (cudaGraphExec_t * exec, cudaGraph_t graph, unsigned long long flags),
        g_driver.cuGraphInstantiateWithFlags[0](exec, graph, flags))
RUNTIME(cudaGraphExecDestroy, (cudaGraphExec_t exec),
        g_driver.cuGraphExecDestroy[0](exec))
RUNTIME_STREAM(cudaGraphLaunch, _ptsz,
               (cudaGraphExec_t exec, cudaStream_t stream),
               g_driver.cuGraphLaunch[pt](exec, stream))
RUNTIME_STREAM(cudaGraphUpload, _ptsz,
               (cudaGraphExec_t exec, cudaStream_t stream),
               g_driver.cuGraphUpload[pt](exec, stream))

// ---- launches -----------------------------------------------------------

RUNTIME_STREAM(cudaLaunchKernel, _ptsz,
               (const void* func, fake_dim3 grid, fake_dim3 block, void** args,
                size_t shared, cudaStream_t stream),
               LaunchFunction(func, grid, block, args, shared, stream, pt))
RUNTIME_STREAM(__cudaLaunchKernel, _ptsz,
               (cudaKernel_t kernel, fake_dim3 grid, fake_dim3 block,
                void** args, size_t shared, cudaStream_t stream),
               LaunchHandle(kernel, grid, block, args, shared, stream, pt))
RUNTIME_STREAM(cudaLaunchKernelExC, _ptsz,
               (const cudaLaunchConfig_t* config, const void* func,
                void** args),
               LaunchConfig(config, func, args, pt))
RUNTIME_STREAM(cudaLaunchCooperativeKernel, _ptsz,
               (const void* func, fake_dim3 grid, fake_dim3 block, void** args,
                size_t shared, cudaStream_t stream),
               LaunchCooperative(func, grid, block, args, shared, stream, pt))
RUNTIME(__cudaGetKernel, (cudaKernel_t * kernel, const void* func),
        ResolveKernel(FindKernel(func), kernel))
RUNTIME(cudaGetKernel, (cudaKernel_t * kernel, const void* func),
        ResolveKernel(FindKernel(func), kernel))
RUNTIME(cudaFuncSetAttribute, (const void* func, int, int),
        FindKernel(func) != nullptr ? cudaSuccess
                                    : cudaErrorInvalidDeviceFunction)
RUNTIME(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int* blocks, const void* func, int threads, size_t shared,
         unsigned flags),
        g_driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags[0](
            blocks, static_cast<CUfunction>(const_cast<void*>(func)), threads,
            shared, flags))
FAKE_EXPORT cudaError_t cudaFuncGetName(const char** name, const void* func) {
  ARRIVE(cudaFuncGetName);
  Kernel* k = FindKernel(func);
  if (k == nullptr) {
    return Done(cudaErrorInvalidDeviceFunction);
  }
  *name = k->name;
  return cudaSuccess;
}

FAKE_EXPORT unsigned __cudaPushCallConfiguration(fake_dim3 grid,
                                                 fake_dim3 block,
                                                 size_t shared,
                                                 void* stream) {
  ARRIVE(__cudaPushCallConfiguration);
  if (t_pushed_count == 8) {
    return 1;
  }
  t_pushed[t_pushed_count++] = {grid, block, shared, stream};
  return 0;
}
FAKE_EXPORT cudaError_t __cudaPopCallConfiguration(fake_dim3* grid,
                                                   fake_dim3* block,
                                                   size_t* shared,
                                                   void* stream) {
  ARRIVE(__cudaPopCallConfiguration);
  if (t_pushed_count == 0) {
    return Done(cudaErrorUnknown);
  }
  const PushedCall& call = t_pushed[--t_pushed_count];
  *grid = call.grid;
  *block = call.block;
  *shared = call.shared;
  *static_cast<void**>(stream) = call.stream;
  return cudaSuccess;
}

FAKE_EXPORT void** __cudaRegisterFatBinary(void* fat_binary) {
  ARRIVE(__cudaRegisterFatBinary);
  auto* module = new Module{fat_binary};
  return reinterpret_cast<void**>(module);
}
FAKE_EXPORT void __cudaRegisterFatBinaryEnd(void**) {
  ARRIVE(__cudaRegisterFatBinaryEnd);
}
// The real one unloads the module here, in the exit handlers: a late driver
// call that interposers must survive.
FAKE_EXPORT void __cudaUnregisterFatBinary(void** handle) {
  ARRIVE(__cudaUnregisterFatBinary);
  auto* module = reinterpret_cast<Module*>(handle);
  CUlibrary library = module->library.exchange(nullptr);
  if (library != nullptr) {
    g_driver.cuLibraryUnload[0](library);
  }
}
FAKE_EXPORT void __cudaRegisterFunction(void** handle, const char* host,
                                        char*, const char* name, int, void*,
                                        void*, void*, void*, int*) {
  ARRIVE(__cudaRegisterFunction);
  RegisterKernel(reinterpret_cast<Module*>(handle), host, name);
}
FAKE_EXPORT void __cudaRegisterVar(void**, char*, char*, const char*, int,
                                   size_t, int, int) {
  ARRIVE(__cudaRegisterVar);
}
FAKE_EXPORT void __cudaRegisterManagedVar(void**, void**, char*, const char*,
                                          int, size_t, int, int) {
  ARRIVE(__cudaRegisterManagedVar);
}
FAKE_EXPORT char __cudaInitModule(void**) {
  ARRIVE(__cudaInitModule);
  return 1;
}

// ---- driver entry points through the runtime ----------------------------

// Its own cuGetProcAddress is the interposer's where there is one, so what it
// hands out is, too.
static cudaError_t DriverEntryPoint(const char* name, void** out,
                                    unsigned version,
                                    unsigned long long flags, int* status,
                                    bool per_thread) {
  if (cudaError_t e = InitDriver()) {
    return e;
  }
  if (flags == 0 && per_thread) {
    flags = 2;
  }
  void* lib = dlopen("libcuda.so.1", RTLD_LAZY);
  auto get =
      reinterpret_cast<GetProcAddress>(dlsym(lib, "cuGetProcAddress_v2"));
  int local = 0;
  int e = get(name, out, static_cast<int>(version), flags, &local);
  if (status != nullptr) {
    *status = local;
  }
  // The runtime reports "not found" in *status alone.
  return e == cudaErrorNotFound ? cudaSuccess : e;
}
#define ENTRY_POINT(symbol, per_thread)                                      \
  FAKE_EXPORT cudaError_t symbol(const char* name, void** out,               \
                                 unsigned long long flags, int* status) {    \
    ARRIVE(symbol);                                                          \
    return Done(DriverEntryPoint(name, out, FAKE_CUDART_VERSION, flags,      \
                                 status, per_thread));                       \
  }
ENTRY_POINT(cudaGetDriverEntryPoint, false)
ENTRY_POINT(cudaGetDriverEntryPoint_ptsz, true)
#define ENTRY_POINT_BY_VERSION(symbol, per_thread)                        \
  FAKE_EXPORT cudaError_t symbol(const char* name, void** out,            \
                                 unsigned version,                        \
                                 unsigned long long flags, int* status) { \
    ARRIVE(symbol);                                                       \
    return Done(                                                          \
        DriverEntryPoint(name, out, version, flags, status, per_thread)); \
  }
ENTRY_POINT_BY_VERSION(cudaGetDriverEntryPointByVersion, false)
ENTRY_POINT_BY_VERSION(cudaGetDriverEntryPointByVersion_ptsz, true)
