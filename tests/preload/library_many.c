/* SPDX-License-Identifier: Apache-2.0 */
/* As libcudnn, with more functions than there are thunks: cudnnMany0000 to
 * cudnnMany4399. Each adds its number to its argument. */
#define ONE(a, b, c, d)                                                 \
  __attribute__((visibility("default"))) int cudnnMany##a##b##c##d(int n); \
  int cudnnMany##a##b##c##d(int n) { return n + 1##a##b##c##d - 10000; }
#define TEN(a, b, c)                                                    \
  ONE(a, b, c, 0) ONE(a, b, c, 1) ONE(a, b, c, 2) ONE(a, b, c, 3)       \
  ONE(a, b, c, 4) ONE(a, b, c, 5) ONE(a, b, c, 6) ONE(a, b, c, 7)       \
  ONE(a, b, c, 8) ONE(a, b, c, 9)
#define HUNDRED(a, b)                                                   \
  TEN(a, b, 0) TEN(a, b, 1) TEN(a, b, 2) TEN(a, b, 3) TEN(a, b, 4)      \
  TEN(a, b, 5) TEN(a, b, 6) TEN(a, b, 7) TEN(a, b, 8) TEN(a, b, 9)
#define THOUSAND(a)                                                     \
  HUNDRED(a, 0) HUNDRED(a, 1) HUNDRED(a, 2) HUNDRED(a, 3) HUNDRED(a, 4) \
  HUNDRED(a, 5) HUNDRED(a, 6) HUNDRED(a, 7) HUNDRED(a, 8) HUNDRED(a, 9)
THOUSAND(0)
THOUSAND(1)
THOUSAND(2)
THOUSAND(3)
HUNDRED(4, 0)
HUNDRED(4, 1)
HUNDRED(4, 2)
HUNDRED(4, 3)
