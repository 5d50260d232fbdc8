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
// api_words.c calls the same library.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/preload/whole_api.h"

#ifdef SIDE_LIB

static uint64_t whole_api_hash;
static int whole_api_succeed;
static unsigned whole_api_status;
static char *whole_api_memory;
static uint64_t whole_api_change;
// Functions, since a program's copy relocation would split a variable.
uint64_t whole_api_seen(void) { return whole_api_hash; }
void whole_api_answer(int succeed) { whole_api_succeed = succeed; }
void whole_api_fail_with(unsigned status) { whole_api_status = status; }
void whole_api_outputs(char *memory, uint64_t change) {
  whole_api_memory = memory;
  whole_api_change = change;
}

static void mix(const void *p, size_t bytes) {
  fold(&whole_api_hash, p, bytes);
  if (!whole_api_memory || bytes != sizeof(char *)) return;
  char *at;
  memcpy(&at, p, sizeof(at));
  if (at < whole_api_memory || at >= whole_api_memory + BUFFERS * BUFFER ||
      (at - whole_api_memory) % BUFFER)
    return;
  // All but the last, which ends names.
  for (size_t i = 0; i + 8 < BUFFER; i += 8) {
    uint64_t word;
    memcpy(&word, at + i, 8);
    word ^= whole_api_change;
    memcpy(at + i, &word, 8);
  }
}
#define ANSWER_i32                      \
  return whole_api_succeed    ? 0       \
         : whole_api_status ? whole_api_status \
                            : (i32)whole_api_hash | 1
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
