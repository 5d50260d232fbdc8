/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Argument lists for the expansions of cuda_api.def, up to 17 arguments and 4
 * words: parameters (DECL), the arguments passed on (PASS), word expressions
 * (EXPRS) and word meanings (WORDS). CAT pastes after expansion.
 */
#ifndef INGERO_PRELOAD_API_MACROS_H
#define INGERO_PRELOAD_API_MACROS_H

#include <stdint.h>

/* Argument kinds: what the calling convention needs to know, no more. */
typedef uint32_t i32;
typedef uint64_t i64;
typedef void *ptr;
typedef float f32;
typedef double f64;
typedef struct { uint32_t part[2]; } s8;
typedef struct { uint32_t part[3]; } s12;
typedef struct { uint32_t part[5]; } s20;
typedef struct { uint64_t part[3]; } s24;
typedef struct { uint64_t part[4]; } s32;
typedef struct { uint64_t part[8]; } s64;
typedef struct { uint64_t part[35]; } s280;

#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

#define DECL0() void
#define DECL1(k0) k0 a0
#define DECL2(k0, k1) k0 a0, k1 a1
#define DECL3(k0, k1, k2) k0 a0, k1 a1, k2 a2
#define DECL4(k0, k1, k2, k3) k0 a0, k1 a1, k2 a2, k3 a3
#define DECL5(k0, k1, k2, k3, k4) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4
#define DECL6(k0, k1, k2, k3, k4, k5) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5
#define DECL7(k0, k1, k2, k3, k4, k5, k6) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6
#define DECL8(k0, k1, k2, k3, k4, k5, k6, k7) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7
#define DECL9(k0, k1, k2, k3, k4, k5, k6, k7, k8) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7, k8 a8
#define DECL10(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7, k8 a8, k9 a9
#define DECL11(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7, k8 a8, k9 a9, k10 a10
#define DECL12(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7, k8 a8, k9 a9, k10 a10, k11 a11
#define DECL13(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7, k8 a8, k9 a9, k10 a10, k11 a11, k12 a12
#define DECL14(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7, k8 a8, k9 a9, k10 a10, k11 a11, k12 a12, k13 a13
#define DECL15(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7, k8 a8, k9 a9, k10 a10, k11 a11, k12 a12, k13 a13, k14 a14
#define DECL16(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7, k8 a8, k9 a9, k10 a10, k11 a11, k12 a12, k13 a13, k14 a14, k15 a15
#define DECL17(k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15, k16) k0 a0, k1 a1, k2 a2, k3 a3, k4 a4, k5 a5, k6 a6, k7 a7, k8 a8, k9 a9, k10 a10, k11 a11, k12 a12, k13 a13, k14 a14, k15 a15, k16 a16
#define PASS0 
#define PASS1 a0
#define PASS2 a0, a1
#define PASS3 a0, a1, a2
#define PASS4 a0, a1, a2, a3
#define PASS5 a0, a1, a2, a3, a4
#define PASS6 a0, a1, a2, a3, a4, a5
#define PASS7 a0, a1, a2, a3, a4, a5, a6
#define PASS8 a0, a1, a2, a3, a4, a5, a6, a7
#define PASS9 a0, a1, a2, a3, a4, a5, a6, a7, a8
#define PASS10 a0, a1, a2, a3, a4, a5, a6, a7, a8, a9
#define PASS11 a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10
#define PASS12 a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11
#define PASS13 a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12
#define PASS14 a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13
#define PASS15 a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14
#define PASS16 a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15
#define PASS17 a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16
#define EXPRS0() 0
#define EXPRS1(w0, e0) (__u64)(e0)
#define EXPRS2(w0, e0, w1, e1) (__u64)(e0), (__u64)(e1)
#define EXPRS3(w0, e0, w1, e1, w2, e2) (__u64)(e0), (__u64)(e1), (__u64)(e2)
#define EXPRS4(w0, e0, w1, e1, w2, e2, w3, e3) (__u64)(e0), (__u64)(e1), (__u64)(e2), (__u64)(e3)
#define WORDS0() 0
#define WORDS1(w0, e0) INGERO_WORD_##w0
#define WORDS2(w0, e0, w1, e1) INGERO_WORD_##w0, INGERO_WORD_##w1
#define WORDS3(w0, e0, w1, e1, w2, e2) INGERO_WORD_##w0, INGERO_WORD_##w1, INGERO_WORD_##w2
#define WORDS4(w0, e0, w1, e1, w2, e2, w3, e3) INGERO_WORD_##w0, INGERO_WORD_##w1, INGERO_WORD_##w2, INGERO_WORD_##w3

#endif /* INGERO_PRELOAD_API_MACROS_H */
