// SPDX-License-Identifier: Apache-2.0
// Compiled once per library (NCCL, CUBLAS, CUBLASLT, CUDNN).
#include "fake_libraries.h"

#include <errno.h>
#include <stdarg.h>

#include "cuda_abi.h"
#include "fake_cuda.h"

#define VISIBLE __attribute__((visibility("default")))

#ifndef NCCL
namespace {
int Launch(int64_t n) {
  int status = 0;
  uint64_t ns = 20000;
  void* arguments[] = {&ns};
  for (int64_t i = 0; i < n && status == 0; ++i)
    status = cudaLaunchKernel(reinterpret_cast<const void*>(fake_kernel_ns),
                              {1, 1, 1}, {32, 1, 1}, arguments, 0, nullptr);
  return status;
}
}  // namespace
#endif

extern "C" {

#ifdef NCCL
VISIBLE int ncclNetPlugin_v8[4] = {8, 80, 800, 8000};
VISIBLE int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
VISIBLE int ncclTestLate(int value) { return value + 1; }
VISIBLE int (*fake_nccl_late())(int) { return ncclTestLate; }
VISIBLE int ncclCommInitRank(void** comm, int ranks, ncclUniqueId id,
                             int rank) {
  return static_cast<int>(HashOf(comm, ranks, id, rank));
}
VISIBLE int ncclAllReduce(const void* from, void* to, size_t count, int type,
                          int op, void* comm, void* stream) {
  return static_cast<int>(HashOf(from, to, count, type, op, comm, stream) & 7);
}
VISIBLE const char* ncclGetErrorString(int status) {
  return status == 0 ? "no error" : "some error";
}
#endif

#ifdef CUBLASLT
VISIBLE int cublasLtMatmul(void*, int64_t n) { return Launch(n); }
#endif

#ifdef CUBLAS
VISIBLE int cublasCreate_v2(void** handle) {
  *handle = handle;
  return 0;
}
VISIBLE int cublasSetStream_v2(void*, void*) { return 0; }
VISIBLE int cublasGemmStridedBatchedEx(
    void* handle, int transa, int transb, int m, int n, int k,
    const void* alpha, const void* A, int Atype, int lda, int64_t strideA,
    const void* B, int Btype, int ldb, int64_t strideB, const void* beta,
    void* C, int Ctype, int ldc, int64_t strideC, int batch, int compute,
    int algo) {
  return static_cast<int>(HashOf(handle, transa, transb, m, n, k, alpha, A,
                                 Atype, lda, strideA, B, Btype, ldb, strideB,
                                 beta, C, Ctype, ldc, strideC, batch, compute,
                                 algo));
}
VISIBLE int cublasSgemm_v2(void* handle, int64_t n) {
  int status = Launch(n / 2);
  if (status == 0) status = cublasLtMatmul(handle, n - n / 2);
  return status == 0 ? cudaStreamSynchronize(nullptr) : status;
}
VISIBLE double cublasDasum(int n, double a, const void*, double b, int incx) {
  return n * a + b / incx;
}
VISIBLE int cublasDasum_v2(void*) { return 0; }
VISIBLE TestComplex cublasZdotu(int n, double a) { return {n * a, n - a}; }
VISIBLE int cublasZdotu_v2(void*) { return 0; }
VISIBLE int cublasTestMany(int a0, double d0, int64_t a1, double d1, int a2,
                           double d2, void* a3, float d3, int a4, double d4,
                           int64_t a5, double d5, int a6, double d6, void* a7,
                           double d7, int a8, double d8, int64_t a9, float d9,
                           int a10, double d10, void* a11, int64_t a12, int a13,
                           int64_t a14, double d11) {
  return static_cast<int>(HashOf(a0, d0, a1, d1, a2, d2, a3, d3, a4, d4, a5, d5,
                                 a6, d6, a7, d7, a8, d8, a9, d9, a10, d10, a11,
                                 a12, a13, a14, d11));
}
VISIBLE int cublasTestVariadic(const char* kinds, ...) {
  uint64_t sum = 0;
  va_list list;
  va_start(list, kinds);
  for (; *kinds; ++kinds)
    sum = sum * 31 + (*kinds == 'd' ? HashOf(va_arg(list, double))
                                    : HashOf(va_arg(list, int64_t)));
  va_end(list);
  return static_cast<int>(sum);
}
VISIBLE TestPair cublasTestPair(int64_t a) { return {a * 3, ~a}; }
VISIBLE TestMixed cublasTestMixed(int64_t a, double b) { return {-a, b / 4}; }
VISIBLE TestLarge cublasTestLarge(double a, int b) {
  return {{a, a * b, a / b, a - b, a + b}};
}
VISIBLE int cublasTestThrow(int value) { throw value; }
VISIBLE int cublasTestErrno(int value) {
  const int was = errno;
  errno = value;
  return was;
}
VISIBLE int cublasTestCall(int (*callback)(void*), void* data) {
  return callback(data);
}
#endif

#ifdef CUDNN
VISIBLE size_t cudnnGetVersion() { return 0x123456789abcdef; }
static int AddTensor(void* handle, double alpha) {
  return static_cast<int>(HashOf(handle, alpha));
}
static int (*ChooseAddTensor())(void*, double) { return AddTensor; }
VISIBLE __attribute__((ifunc("ChooseAddTensor"))) int cudnnAddTensor(void*,
                                                                    double);
VISIBLE int cudnnConvolutionForward(void*, int64_t launches) {
  return Launch(launches);
}
#endif

}  // extern "C"
