// SPDX-License-Identifier: Apache-2.0
// What nvcc makes of <<<>>> must run on the simulated runtime. Exit 0 = every
// call succeeded and the kernel's time passed on the device.
#include <cstdint>
#include <cstdio>

__global__ void fake_kernel_ns(uint64_t ns) { (void)ns; }
__global__ void plain(int* p) { *p = 1; }
__device__ int variable;

#define CHECK(call)                                             \
  do {                                                          \
    cudaError_t e = (call);                                     \
    if (e != cudaSuccess) {                                     \
      fprintf(stderr, #call ": %s\n", cudaGetErrorString(e));   \
      return 1;                                                 \
    }                                                           \
  } while (0)

int main() {
  int* p = nullptr;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaMalloc(&p, 4096));
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(begin, stream));
  fake_kernel_ns<<<1, 32, 0, stream>>>(20 * 1000 * 1000);
  CHECK(cudaGetLastError());
  plain<<<dim3(2, 2), 64, 0, stream>>>(p);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(end, stream));
  if (cudaStreamQuery(stream) != cudaErrorNotReady) {
    fprintf(stderr, "a 20 ms kernel was over at once\n");
    return 1;
  }
  CHECK(cudaStreamSynchronize(stream));
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, begin, end));
  if (ms < 20) {
    fprintf(stderr, "20 ms kernel took %g ms\n", ms);
    return 1;
  }
  CHECK(cudaFree(p));
  return 0;
}
