// SPDX-License-Identifier: Apache-2.0
// Calls every function of cuda_api.def and writes down what it passed, for
// api_words_test.py to say what the shim must have recorded.
//
//   api_words_GROUP FILE
//
// FILE is a sequence of, little endian: u32 bytes of the name with its NUL, u32
// round, u32 status returned; the name; u8 arguments; and for each argument u16
// size, its bytes, u8 points, and where that is 1 the BUFFER that it points to,
// as it was after the call.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/preload/whole_api.h"

enum round {
  LARGE,    // numbers of all bits, distinct memory behind each pointer
  SMALL,    // five rounds in which enumerations have values that mean something
  FAILING = SMALL + 5,  // the memory behind the pointers cannot be read
  NULLS,                // success, and every pointer is NULL
  ROUNDS
};

// What the stand-in XORs into each word behind a pointer.
static const uint64_t small_change = 0x5a5a5a5a00000000ULL;
static int round_now;
static int has_count;  // the row sums an array: its numbers are lengths
static unsigned argument;
static FILE *calls;
static char *buffers, *inaccessible;

static uint64_t next_random(void) {
  static uint64_t seed = 88172645463325252ULL;

  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return seed;
}

static int small(void) { return round_now >= SMALL && round_now < FAILING; }

static void fill_bytes(void *p, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    ((unsigned char *)p)[i] = (unsigned char)(next_random() >> 24);
}
static void fill_i32(i32 *p) {
  *p = (i32)next_random();
  if (small()) *p = (i32)((unsigned)round_now + argument) % 6;
  argument++;
}
static void fill_i64(i64 *p) {
  *p = next_random();
  if (has_count) *p = 1 + ((unsigned)round_now + argument) % 4;
  argument++;
}
static void fill_ptr(ptr *p) {
  char *at = buffers + argument * BUFFER;

  *p = round_now == FAILING ? inaccessible + argument * 64
       : round_now == NULLS ? NULL
                            : at;
  fill_bytes(at, BUFFER - 8);
  // Some of it is taken for names, which go into the stream.
  for (unsigned i = 0; i < BUFFER; i++) at[i] &= 0x7f;
  // Memory types and copy kinds lie in the low half of a word.
  for (unsigned i = 0; small() && i < BUFFER - 8; i += 8) {
    const uint32_t kind = (uint32_t)(next_random() >> 33) % 9 % 5;

    memcpy(at + i, &kind, sizeof(kind));
  }
  // Once no array where the structs of copies have theirs, once the kind of one,
  // after the call.
  for (unsigned i = 0; i < 80; i += 8) {
    const uint64_t word = small_change ^ (round_now == SMALL ? 0 : 2);

    if (round_now == SMALL || round_now == SMALL + 1)
      memcpy(at + i, &word, sizeof(word));
  }
  argument++;
}
static void fill_f32(f32 *p) {
  *p = (f32)(next_random() % 100000) / 7;
  argument++;
}
#define FILL_STRUCT(kind)            \
  static void fill_##kind(kind *p) { \
    fill_bytes(p, sizeof(*p));       \
    argument++;                      \
  }
FILL_STRUCT(s8)
FILL_STRUCT(s12)
FILL_STRUCT(s24)
FILL_STRUCT(s32)
FILL_STRUCT(s64)
FILL_STRUCT(s280)

static void put(const void *p, size_t bytes) {
  if (fwrite(p, 1, bytes, calls) != bytes) {
    perror("api_words: cannot write");
    exit(1);
  }
}

static void mix(const void *p, size_t bytes) {
  const uint16_t size = (uint16_t)bytes;
  char *const buffer = buffers + argument++ * BUFFER;
  const uint8_t points = bytes == 8 && memcmp(p, &buffer, 8) == 0;

  put(&size, sizeof(size));
  put(p, bytes);
  put(&points, 1);
  if (points) put(buffer, BUFFER);
}

// What has no status cannot fail.
#define FAILS_i32 1
#define FAILS_ptr 0
#define FAILS_s20 0
#define FAILS_void 0
#define CALL_i32(e) uint32_t status = e
#define CALL_ptr(e) uint32_t status = ((e), 0)
#define CALL_s20(e) uint32_t status = ((e), 0)
#define CALL_void(e) uint32_t status = ((e), 0)

#define TAKE(sym, ret, n, kinds, cls, dir, nw, words, then)             \
  ret sym(DECL##n kinds);                                               \
  static void call_##sym(void) {                                        \
    if (round_now == FAILING && !FAILS_##ret) return;                   \
    has_count = strstr(#words, "SUM(") || strstr(#words, "VOLUMES(");   \
    argument = 0;                                                       \
    FILL##n kinds;                                                      \
    CALL_##ret(sym(PASS##n));                                           \
    const uint32_t head[] = {sizeof(#sym), (uint32_t)round_now, status}; \
    const uint8_t arguments = n;                                        \
    put(head, sizeof(head));                                            \
    put(#sym, sizeof(#sym));                                            \
    put(&arguments, 1);                                                 \
    argument = 0;                                                       \
    MIX##n;                                                             \
  }
#include "preload/cuda_api.def"
#undef TAKE
#define TAKE(sym, ...) call_##sym,
static void (*const all[])(void) = {
#include "preload/cuda_api.def"
};

int main(int argc, char **argv) {
  (void)fill_f32, (void)fill_s8, (void)fill_s12, (void)fill_s24;
  (void)fill_s32, (void)fill_s64, (void)fill_s280;
  if (argc != 2 || !(calls = fopen(argv[1], "wb"))) {
    fprintf(stderr, "usage: api_words FILE\n");
    return 2;
  }
  buffers = mmap(NULL, BUFFERS * BUFFER, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  inaccessible = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                      0);
  if (buffers == MAP_FAILED || inaccessible == MAP_FAILED) {
    perror("api_words: mmap");
    return 1;
  }
  for (round_now = LARGE; round_now < ROUNDS; round_now++) {
    whole_api_answer(round_now != FAILING);
    // What the stand-in changes keeps the small values small.
    whole_api_outputs(buffers, small() ? small_change : 0x5a254b3c0f701661ULL);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) all[i]();
  }
  if (fclose(calls) != 0) {
    perror("api_words: cannot write");
    return 1;
  }
  return 0;
}
