// SPDX-License-Identifier: Apache-2.0
// Counts entries per exported function. The counters live in a page that the
// kernel wipes on fork, so each process counts only its own.
#ifndef INGERO_TESTS_FAKES_ARRIVALS_H_
#define INGERO_TESTS_FAKES_ARRIVALS_H_

#include <atomic>
#include <cstdint>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

enum ArrivalIndex : int {
#define X(symbol, ...) kArrive_##symbol,
#define X12(symbol) kArrive_##symbol,
#include FAKE_FUNCTIONS
#undef X
#undef X12
  kArriveCount
};

extern std::atomic<uint64_t>* g_arrivals;

}  // namespace fake

#define ARRIVE(symbol)                               \
  ::fake::g_arrivals[::fake::kArrive_##symbol].fetch_add( \
      1, std::memory_order_relaxed)

#endif  // INGERO_TESTS_FAKES_ARRIVALS_H_
