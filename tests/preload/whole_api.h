// SPDX-License-Identifier: Apache-2.0
// What the tests over all of cuda_api.def share: the rows of one GROUP (0 is
// the driver; 11, 12 and 13 the runtimes) as TAKE(symbol, return, argument
// count, (kinds), class, direction, word count, (words), then), and macros
// that do something to each argument: FILLn declares a0, a1, ... and fills
// each by fill_<kind>(&a), MIXn calls mix(&a, sizeof(a)).
#ifndef INGERO_TESTS_PRELOAD_WHOLE_API_H
#define INGERO_TESTS_PRELOAD_WHOLE_API_H

#include <stdint.h>
#include <stddef.h>

#include "preload/api_macros.h"

#define RUNTIME_11(...) TAKE_11(__VA_ARGS__)
#define RUNTIME_12(...) TAKE_12(__VA_ARGS__)
#define RUNTIME_13(...) TAKE_13(__VA_ARGS__)
#define RUNTIME_11_12(...) TAKE_11_12(__VA_ARGS__)
#define RUNTIME_12_13(...) TAKE_12_13(__VA_ARGS__)
#define RUNTIME_11_12_13(...) TAKE_11_12_13(__VA_ARGS__)
#define LEAVE(...)
#define TAKE_11 LEAVE
#define TAKE_12 LEAVE
#define TAKE_13 LEAVE
#define TAKE_11_12 LEAVE
#define TAKE_12_13 LEAVE
#define TAKE_11_12_13 LEAVE
#define DRIVER LEAVE
#if GROUP == 0
#undef DRIVER
#define DRIVER TAKE
#else
#undef TAKE_11_12_13
#define TAKE_11_12_13 TAKE
#if GROUP == 11
#undef TAKE_11
#define TAKE_11 TAKE
#undef TAKE_11_12
#define TAKE_11_12 TAKE
#elif GROUP == 12
#undef TAKE_12
#define TAKE_12 TAKE
#undef TAKE_11_12
#define TAKE_11_12 TAKE
#undef TAKE_12_13
#define TAKE_12_13 TAKE
#else
#undef TAKE_13
#define TAKE_13 TAKE
#undef TAKE_12_13
#define TAKE_12_13 TAKE
#endif
#endif

// clang-format off
#define MIX0 
#define MIX1 mix(&a0, sizeof(a0));
#define MIX2 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1));
#define MIX3 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2));
#define MIX4 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3));
#define MIX5 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4));
#define MIX6 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5));
#define MIX7 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6));
#define MIX8 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7));
#define MIX9 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7)); mix(&a8, sizeof(a8));
#define MIX10 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7)); mix(&a8, sizeof(a8)); mix(&a9, sizeof(a9));
#define MIX11 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7)); mix(&a8, sizeof(a8)); mix(&a9, sizeof(a9)); mix(&a10, sizeof(a10));
#define MIX12 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7)); mix(&a8, sizeof(a8)); mix(&a9, sizeof(a9)); mix(&a10, sizeof(a10)); mix(&a11, sizeof(a11));
#define MIX13 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7)); mix(&a8, sizeof(a8)); mix(&a9, sizeof(a9)); mix(&a10, sizeof(a10)); mix(&a11, sizeof(a11)); mix(&a12, sizeof(a12));
#define MIX14 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7)); mix(&a8, sizeof(a8)); mix(&a9, sizeof(a9)); mix(&a10, sizeof(a10)); mix(&a11, sizeof(a11)); mix(&a12, sizeof(a12)); mix(&a13, sizeof(a13));
#define MIX15 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7)); mix(&a8, sizeof(a8)); mix(&a9, sizeof(a9)); mix(&a10, sizeof(a10)); mix(&a11, sizeof(a11)); mix(&a12, sizeof(a12)); mix(&a13, sizeof(a13)); mix(&a14, sizeof(a14));
#define MIX16 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7)); mix(&a8, sizeof(a8)); mix(&a9, sizeof(a9)); mix(&a10, sizeof(a10)); mix(&a11, sizeof(a11)); mix(&a12, sizeof(a12)); mix(&a13, sizeof(a13)); mix(&a14, sizeof(a14)); mix(&a15, sizeof(a15));
#define MIX17 mix(&a0, sizeof(a0)); mix(&a1, sizeof(a1)); mix(&a2, sizeof(a2)); mix(&a3, sizeof(a3)); mix(&a4, sizeof(a4)); mix(&a5, sizeof(a5)); mix(&a6, sizeof(a6)); mix(&a7, sizeof(a7)); mix(&a8, sizeof(a8)); mix(&a9, sizeof(a9)); mix(&a10, sizeof(a10)); mix(&a11, sizeof(a11)); mix(&a12, sizeof(a12)); mix(&a13, sizeof(a13)); mix(&a14, sizeof(a14)); mix(&a15, sizeof(a15)); mix(&a16, sizeof(a16));
#define FILL0() 
#define FILL1(k0) k0 a0; fill_##k0(&a0);
#define FILL2(k0, k1) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1);
#define FILL3(k0, k1, k2) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2);
#define FILL4(k0, k1, k2, k3) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3);
#define FILL5(k0, k1, k2, k3, k4) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4);
#define FILL6(k0, k1, k2, k3, k4, k5) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5);
#define FILL7(k0, k1, k2, k3, k4, k5, k6) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6);
#define FILL8(k0, k1, k2, k3, k4, k5, k6, k7) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7);
#define FILL9(k0, k1, k2, k3, k4, k5, k6, k7, k8) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7); k8 a8; fill_##k8(&a8);
#define FILL10(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7); k8 a8; fill_##k8(&a8); k9 a9; fill_##k9(&a9);
#define FILL11(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7); k8 a8; fill_##k8(&a8); k9 a9; fill_##k9(&a9); k10 a10; fill_##k10(&a10);
#define FILL12(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7); k8 a8; fill_##k8(&a8); k9 a9; fill_##k9(&a9); k10 a10; fill_##k10(&a10); k11 a11; fill_##k11(&a11);
#define FILL13(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7); k8 a8; fill_##k8(&a8); k9 a9; fill_##k9(&a9); k10 a10; fill_##k10(&a10); k11 a11; fill_##k11(&a11); k12 a12; fill_##k12(&a12);
#define FILL14(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7); k8 a8; fill_##k8(&a8); k9 a9; fill_##k9(&a9); k10 a10; fill_##k10(&a10); k11 a11; fill_##k11(&a11); k12 a12; fill_##k12(&a12); k13 a13; fill_##k13(&a13);
#define FILL15(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7); k8 a8; fill_##k8(&a8); k9 a9; fill_##k9(&a9); k10 a10; fill_##k10(&a10); k11 a11; fill_##k11(&a11); k12 a12; fill_##k12(&a12); k13 a13; fill_##k13(&a13); k14 a14; fill_##k14(&a14);
#define FILL16(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7); k8 a8; fill_##k8(&a8); k9 a9; fill_##k9(&a9); k10 a10; fill_##k10(&a10); k11 a11; fill_##k11(&a11); k12 a12; fill_##k12(&a12); k13 a13; fill_##k13(&a13); k14 a14; fill_##k14(&a14); k15 a15; fill_##k15(&a15);
#define FILL17(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15, k16) k0 a0; fill_##k0(&a0); k1 a1; fill_##k1(&a1); k2 a2; fill_##k2(&a2); k3 a3; fill_##k3(&a3); k4 a4; fill_##k4(&a4); k5 a5; fill_##k5(&a5); k6 a6; fill_##k6(&a6); k7 a7; fill_##k7(&a7); k8 a8; fill_##k8(&a8); k9 a9; fill_##k9(&a9); k10 a10; fill_##k10(&a10); k11 a11; fill_##k11(&a11); k12 a12; fill_##k12(&a12); k13 a13; fill_##k13(&a13); k14 a14; fill_##k14(&a14); k15 a15; fill_##k15(&a15); k16 a16; fill_##k16(&a16);
// clang-format on

static inline void fold(uint64_t *hash, const void *p, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    *hash = (*hash ^ ((const unsigned char *)p)[i]) * 0x100000001b3ULL;
}

// Pointers to one of so many buffers are outputs of the stand-in.
enum { BUFFER = 512, BUFFERS = 17 };

// The stand-in library's own entries (whole_api.c).
uint64_t whole_api_seen(void);
void whole_api_answer(int succeed);
// Failing calls return this; 0: something that depends on the arguments.
void whole_api_fail_with(unsigned status);
// With success, each word of a buffer whose start is an argument changes by
// xor, its last word excepted.
void whole_api_outputs(char *memory, uint64_t change);

#endif  // INGERO_TESTS_PRELOAD_WHOLE_API_H
