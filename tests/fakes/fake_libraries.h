// SPDX-License-Identifier: Apache-2.0
// Simulated NCCL, cuBLAS, cuBLASLt and cuDNN: real names with the shapes of
// arguments and results that a caller may pass, the rest (Test in the name)
// shapes that one day may come. Most answer with a hash of their arguments, so
// that a caller knows whether each arrived.
#ifndef INGERO_TESTS_FAKES_FAKE_LIBRARIES_H_
#define INGERO_TESTS_FAKES_FAKE_LIBRARIES_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

template <typename... A>
uint64_t HashOf(const A&... a) {
  uint64_t h = 0xcbf29ce484222325;
  const auto add = [&h](const auto& v) {
    unsigned char bytes[sizeof v];
    memcpy(bytes, &v, sizeof v);
    for (unsigned char b : bytes) h = (h ^ b) * 0x100000001b3;
  };
  (add(a), ...);
  return h;
}

struct ncclUniqueId {
  char internal[128];
};
struct TestComplex {
  double x, y;
};
struct TestPair {
  int64_t a, b;
};
struct TestMixed {
  int64_t a;
  double b;
};
struct TestLarge {
  double v[5];
};

extern "C" {
// libnccl
int ncclGetVersion(int* version);
int ncclCommInitRank(void** comm, int ranks, ncclUniqueId id, int rank);
int ncclAllReduce(const void* from, void* to, size_t count, int type, int op,
                  void* comm, void* stream);
const char* ncclGetErrorString(int status);
extern int ncclNetPlugin_v8[4];  // data, no function
int ncclTestLate(int value);
int (*fake_nccl_late())(int);  // its address, as the loader binds it

// libcublasLt
int cublasLtMatmul(void* handle, int64_t n);

// libcublas
int cublasCreate_v2(void** handle);
int cublasSetStream_v2(void* handle, void* stream);
int cublasGemmStridedBatchedEx(void*, int, int, int, int, int, const void*,
                               const void*, int, int, int64_t, const void*,
                               int, int, int64_t, const void*, void*, int, int,
                               int64_t, int, int, int);
// Launches n kernels, with cublasLtMatmul between, and then waits.
int cublasSgemm_v2(void* handle, int64_t n);
double cublasDasum(int n, double a, const void* x, double b, int incx);
int cublasDasum_v2(void* handle);
TestComplex cublasZdotu(int n, double a);
int cublasZdotu_v2(void* handle);
int cublasTestMany(int a0, double d0, int64_t a1, double d1, int a2, double d2,
                   void* a3, float d3, int a4, double d4, int64_t a5, double d5,
                   int a6, double d6, void* a7, double d7, int a8, double d8,
                   int64_t a9, float d9, int a10, double d10, void* a11,
                   int64_t a12, int a13, int64_t a14, double d11);
int cublasTestVariadic(const char* kinds, ...);
TestPair cublasTestPair(int64_t a);
TestMixed cublasTestMixed(int64_t a, double b);
TestLarge cublasTestLarge(double a, int b);
int cublasTestThrow(int value);
int cublasTestErrno(int value);  // returns errno as it was, sets it
int cublasTestCall(int (*callback)(void*), void* data);

// libcudnn
size_t cudnnGetVersion(void);
int cudnnAddTensor(void* handle, double alpha);  // an IFUNC
int cudnnConvolutionForward(void* handle, int64_t launches);
}

#endif  // INGERO_TESTS_FAKES_FAKE_LIBRARIES_H_
