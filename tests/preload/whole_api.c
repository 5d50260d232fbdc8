// SPDX-License-Identifier: Apache-2.0
// Every function of cuda_api.def, in both directions: arguments reach the real
// function bit by bit, its result comes back bit by bit.
//
//   -DGROUP=0|11|12|13 -DSIDE_LIB     the "real" library: folds every argument
//                                     byte into a hash and answers from it
//   -DGROUP=...                       the caller: random arguments, compares
//
// Two rounds: random bits everywhere with a failing status (the shim must not
// follow a pointer then), and valid pointers with success (it reads words).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

#ifdef SIDE_LIB

static uint64_t whole_api_hash;
static int whole_api_succeed;
// Functions, since a program's copy relocation would split a variable.
uint64_t whole_api_seen(void) { return whole_api_hash; }
void whole_api_answer(int succeed) { whole_api_succeed = succeed; }

#define mix(p, n) fold(&whole_api_hash, p, n)
#define ANSWER_i32 return whole_api_succeed ? 0 : (i32)whole_api_hash | 1
#define ANSWER_ptr return (ptr)(uintptr_t)whole_api_hash
#define ANSWER_s20                              \
  s20 answer;                                   \
  memset(&answer, 0, sizeof(answer));           \
  memcpy(&answer, &whole_api_hash, 8);          \
  memcpy((char *)&answer + 12, &whole_api_hash, 8); \
  return answer
#define ANSWER_void return
#define TAKE(sym, ret, n, kinds, ...) \
  ret sym(DECL##n kinds) {            \
    whole_api_hash = sizeof(#sym);    \
    MIX##n ANSWER_##ret;              \
  }
#include "preload/cuda_api.def"

#else

uint64_t whole_api_seen(void);
void whole_api_answer(int succeed);
static int whole_api_succeed;

static uint64_t seed = 88172645463325252ULL;
static uint64_t next_random(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

static _Alignas(64) char memory[4096];

static void fill_bytes(void *p, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    ((unsigned char *)p)[i] = (unsigned char)(next_random() >> 24);
}
static void fill_i32(i32 *p) { *p = (i32)next_random(); }
static void fill_i64(i64 *p) {
  *p = whole_api_succeed ? next_random() % 9 : next_random();
}
static void fill_ptr(ptr *p) {
  *p = whole_api_succeed ? (ptr)(memory + next_random() % 8 * 8)
                         : (ptr)(uintptr_t)next_random();
}
static void fill_f32(f32 *p) { *p = (f32)(next_random() % 100000) / 7; }
static void fill_s8(s8 *p) { fill_bytes(p, sizeof(*p)); }
static void fill_s12(s12 *p) { fill_bytes(p, sizeof(*p)); }
static void fill_s24(s24 *p) { fill_bytes(p, sizeof(*p)); }
static void fill_s32(s32 *p) { fill_bytes(p, sizeof(*p)); }
static void fill_s64(s64 *p) { fill_bytes(p, sizeof(*p)); }
static void fill_s280(s280 *p) { fill_bytes(p, sizeof(*p)); }

static unsigned calls, wrong;

#define CALL_i32(e) i32 got = e
#define CALL_ptr(e) ptr got = e
#define CALL_s20(e) s20 got = e
#define CALL_void(e) e
#define SAME_i32 (got == (whole_api_succeed ? 0 : ((i32)hash | 1)))
#define SAME_ptr (got == (ptr)(uintptr_t)hash)
#define SAME_s20                       \
  (memcmp(&got, &hash, 8) == 0 &&      \
   memcmp((char *)&got + 12, &hash, 8) == 0)
#define SAME_void 1
#define mix(p, n) fold(&hash, p, n)

#define TAKE(sym, ret, n, kinds, ...)                          \
  ret sym(DECL##n kinds);                                      \
  static void call_##sym(void) {                               \
    FILL##n kinds uint64_t hash = sizeof(#sym);                \
    MIX##n;                                                    \
    CALL_##ret(sym(PASS##n));                                  \
    calls++;                                                   \
    if (!SAME_##ret || whole_api_seen() != hash) {               \
      wrong++;                                                 \
      printf("%s: arguments or result differ\n", #sym);        \
    }                                                          \
  }
#include "preload/cuda_api.def"

#undef TAKE
#define TAKE(sym, ...) call_##sym,
static void (*const all[])(void) = {
#include "preload/cuda_api.def"
};

int main(void) {
  (void)fill_f32, (void)fill_s8, (void)fill_s12, (void)fill_s24;
  (void)fill_s32, (void)fill_s64, (void)fill_s280;
  for (int round = 0; round < 6; round++) {
    whole_api_succeed = round & 1;
    whole_api_answer(whole_api_succeed);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) all[i]();
  }
  printf("%zu functions %u calls %u wrong\n", sizeof(all) / sizeof(all[0]),
         calls, wrong);
  return wrong != 0;
}

#endif
