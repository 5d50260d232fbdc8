// SPDX-License-Identifier: Apache-2.0
// What /proc tells of a process from outside: does it use CUDA, is the shim in
// it, and if not, why.
//
// Threads: any. Errors: a process that is gone, or is not for us to see, looks
// like one without mappings.
#ifndef INGERO_BASE_CUDA_PROCESS_H_
#define INGERO_BASE_CUDA_PROCESS_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ingero {

// /proc/PID/maps.
struct CudaMaps {
  bool any = false;     // else a kernel thread, or gone
  std::string library;  // path of libcuda, else of libcudart; "" = none
  bool shim = false;
  bool loader = false;  // a dynamic loader is mapped: not a static program
  // Another library is: the loader has been through LD_PRELOAD, whose come
  // first. Until then a program has just been executed.
  bool libraries = false;
  bool denied = false;  // they are not for us to see
};
CudaMaps ParseCudaMaps(std::string_view maps);
CudaMaps ReadCudaMaps(uint32_t pid);

// Where a process has its environment: elsewhere once it has executed another
// program. 0: it is executing one just now, is gone, or is not for us to see.
uint64_t EnvironmentAddress(uint32_t pid);

// What an environment (NUL-separated) says: bits of enum ingero_cuda_process.
uint64_t CudaEnvironment(std::string_view environment);

// All bits of enum ingero_cuda_process, for a process with these maps.
uint64_t CudaProcessBits(uint32_t pid, const CudaMaps& maps);

}  // namespace ingero

#endif  // INGERO_BASE_CUDA_PROCESS_H_
