// SPDX-License-Identifier: Apache-2.0
// Every exported function of the real library that the simulation does not
// implement: counted, and answered with "not supported". Weak, so that an
// implementation elsewhere in the library takes its place.
#include "arrivals.h"

#define X(symbol, ...)                                \
  FAKE_EXPORT __attribute__((weak)) int symbol() {    \
    ARRIVE(symbol);                                   \
    return 801; /* ...NotSupported in both layers */  \
  }
#ifdef FAKE_CUDART_OLD
#define X12(symbol) X(symbol)
#else
#define X12(symbol)
#endif
#include FAKE_FUNCTIONS
