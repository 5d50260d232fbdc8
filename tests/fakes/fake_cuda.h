// SPDX-License-Identifier: Apache-2.0
// What the simulated CUDA offers beyond CUDA's own functions. Tests find these
// with dlsym or by linking; a client that wants to run on real CUDA too
// declares them weak.
//
// Settings, all optional: FAKE_CUDA="key=value,key=value". See gpu_model.h for
// the keys and their defaults (which are what GPU_FACTS measured on an H200).
// FAKE_CUDA_COUNTS=DIR: at a normal exit each process writes its arrivals to
// DIR/<pid>.cudart.json and DIR/<pid>.cuda.json.
#ifndef INGERO_TESTS_FAKES_FAKE_CUDA_H_
#define INGERO_TESTS_FAKES_FAKE_CUDA_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// How often this process entered a function of libcudart / libcuda, counted
// inside the simulated library. -1: no such function. Children of a fork start
// at zero.
int64_t fake_cudart_arrivals(const char* function);
int64_t fake_cuda_arrivals(const char* function);
// Sum over all functions.
int64_t fake_cudart_arrivals_total(void);
int64_t fake_cuda_arrivals_total(void);

// When the stream's newest operation ends (CLOCK_MONOTONIC; 0 = none, or it is
// behind a host function) and how long the stream was without work between its
// operations so far: what a real GPU does not tell. In libcuda; 0 = done.
int fake_cuda_stream_times(void* stream, uint64_t* end_ns, uint64_t* idle_ns);

// A kernel registered with the simulated runtime: pass its address to
// cudaLaunchKernel; args[0] points to a uint64_t, its duration in ns. Any
// other kernel whose name contains "fake_kernel_ns" works the same way; all
// others take kernel_us.
void fake_kernel_ns(uint64_t ns);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // INGERO_TESTS_FAKES_FAKE_CUDA_H_
