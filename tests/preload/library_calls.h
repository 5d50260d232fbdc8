// SPDX-License-Identifier: Apache-2.0
// Every shape of call into the simulated libraries, through whatever pointers
// the includer has. Each compares what arrived and what came back.
#ifndef INGERO_TESTS_PRELOAD_LIBRARY_CALLS_H_
#define INGERO_TESTS_PRELOAD_LIBRARY_CALLS_H_

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fake_libraries.h"

#define EXPECT(c)                                                     \
  do {                                                                \
    if (!(c)) {                                                       \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #c);         \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

// X(name): all functions, in the order of struct Functions.
#define LIBRARY_FUNCTIONS(X)                                                  \
  X(ncclGetVersion) X(ncclCommInitRank) X(ncclAllReduce) X(ncclGetErrorString) \
  X(cublasLtMatmul) X(cublasCreate_v2) X(cublasSetStream_v2)                  \
  X(cublasGemmStridedBatchedEx) X(cublasSgemm_v2) X(cublasDasum)              \
  X(cublasZdotu) X(cublasTestMany) X(cublasTestVariadic) X(cublasTestPair)    \
  X(cublasTestMixed) X(cublasTestLarge) X(cublasTestThrow)                    \
  X(cublasTestErrno) X(cublasTestCall) X(cudnnGetVersion) X(cudnnAddTensor)   \
  X(cudnnConvolutionForward)

struct Functions {
#define X(name) decltype(&::name) name;
  LIBRARY_FUNCTIONS(X)
#undef X
};

// ALL of library_test.py counts its calls. F: members that can be called.
template <typename F>
void CallAll(const F& f, int seed) {
  int at[4], version = 0;
  EXPECT(f.ncclGetVersion(&version) == 0 && version == 22809);
  ncclUniqueId id;
  for (size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(i * 7 + static_cast<size_t>(seed));
  void* comm = &at[0];
  EXPECT(f.ncclCommInitRank(&comm, 8, id, seed) ==
         static_cast<int>(HashOf(&comm, 8, id, seed)));
  const size_t count = 1u << 20;
  EXPECT(f.ncclAllReduce(&at[0], &at[1], count, 7, 0, &at[2], &at[3]) ==
         static_cast<int>(HashOf(static_cast<const void*>(&at[0]),
                                 static_cast<void*>(&at[1]), count, 7, 0,
                                 static_cast<void*>(&at[2]),
                                 static_cast<void*>(&at[3])) & 7));
  EXPECT(strcmp(f.ncclGetErrorString(0), "no error") == 0);
  void* handle = nullptr;
  EXPECT(f.cublasCreate_v2(&handle) == 0 && handle != nullptr);
  EXPECT(f.cublasSetStream_v2(handle, nullptr) == 0);

  void *p1 = &at[0], *p2 = &at[1], *p3 = &at[2];
  const void *c1 = p1, *c2 = p2, *c3 = p3;
  const int64_t far = 0x123456789abcdef0 + seed;
  EXPECT(f.cublasGemmStridedBatchedEx(
             handle, 1, 2, 3, seed, 5, c1, c2, 8, 9, far, c3, 12, 13, far + 14,
             c1, p2, 17, 18, far + 19, 20, 21, -22) ==
         static_cast<int>(HashOf(handle, 1, 2, 3, seed, 5, c1, c2, 8, 9, far,
                                 c3, 12, 13, far + 14, c1, p2, 17, 18, far + 19,
                                 20, 21, -22)));
  const double d = 1.5 + seed;
  EXPECT(f.cublasTestMany(1, d, far, d + 1, 2, d + 2, p1, 0.5f, 4, d + 4,
                          far + 5, d + 5, 6, d + 6, p2, d + 7, 8, d + 8,
                          far + 9, 9.5f, 10, d + 10, p3, far + 12, seed,
                          far + 14, d + 11) ==
         static_cast<int>(HashOf(1, d, far, d + 1, 2, d + 2, p1, 0.5f, 4, d + 4,
                                 far + 5, d + 5, 6, d + 6, p2, d + 7, 8, d + 8,
                                 far + 9, 9.5f, 10, d + 10, p3, far + 12, seed,
                                 far + 14, d + 11)));
  uint64_t sum = 0;
  for (int i = 0; i < 12; ++i)
    sum = sum * 31 + (i % 2 ? HashOf(d + i) : HashOf(far + i));
  EXPECT(f.cublasTestVariadic("ldldldldldld", far, d + 1, far + 2, d + 3,
                              far + 4, d + 5, far + 6, d + 7, far + 8, d + 9,
                              far + 10, d + 11) == static_cast<int>(sum));
  EXPECT(f.cublasDasum(4, d, c1, 3.0, 2) == 4 * d + 1.5);
  const TestComplex z = f.cublasZdotu(3, d);
  EXPECT(z.x == 3 * d && z.y == 3 - d);
  const TestPair pair = f.cublasTestPair(far);
  EXPECT(pair.a == far * 3 && pair.b == ~far);
  const TestMixed mixed = f.cublasTestMixed(far, d);
  EXPECT(mixed.a == -far && mixed.b == d / 4);
  const TestLarge large = f.cublasTestLarge(d, 3);
  EXPECT(large.v[0] == d && large.v[1] == d * 3 && large.v[4] == d + 3);
  errno = 41;
  EXPECT(f.cublasTestErrno(42) == 41 && errno == 42);
  int thrown = 0;
  try {
    f.cublasTestThrow(seed);
  } catch (int value) {
    thrown = value;
  }
  EXPECT(thrown == seed);
  EXPECT(f.cublasSgemm_v2(handle, 6) == 0);
  EXPECT(f.cudnnGetVersion() == 0x123456789abcdef);
  EXPECT(f.cudnnAddTensor(handle, d) ==
         static_cast<int>(HashOf(handle, d)));
  EXPECT(f.cudnnConvolutionForward(handle, 2) == 0);
}

#endif  // INGERO_TESTS_PRELOAD_LIBRARY_CALLS_H_
