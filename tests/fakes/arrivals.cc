// SPDX-License-Identifier: Apache-2.0
#include "arrivals.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace fake {

std::atomic<uint64_t>* g_arrivals;

namespace {

const char* const kNames[] = {
#define X(symbol, ...) #symbol,
#define X12(symbol) #symbol,
#include FAKE_FUNCTIONS
#undef X
#undef X12
};

__attribute__((constructor(101))) void MapCounters() {
  size_t bytes = (kArriveCount * sizeof(uint64_t) + 4095) & ~size_t{4095};
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    abort();
  }
  madvise(p, bytes, MADV_WIPEONFORK);
  g_arrivals = static_cast<std::atomic<uint64_t>*>(p);
}

// Runs before the first constructor priority is left, so after everything a
// program can still call at exit, except calls from other libraries' own late
// destructors.
__attribute__((destructor(101))) void WriteCounters() {
  const char* dir = getenv("FAKE_CUDA_COUNTS");
  if (dir == nullptr) {
    return;
  }
  std::string path =
      std::string(dir) + "/" + std::to_string(getpid()) + "." FAKE_LIBRARY
                                                         ".json";
  FILE* f = fopen(path.c_str(), "w");
  if (f == nullptr) {
    fprintf(stderr, "fake_cuda: cannot write %s\n", path.c_str());
    return;
  }
  const char* separator = "{";
  for (int i = 0; i < kArriveCount; i++) {
    uint64_t n = g_arrivals[i].load(std::memory_order_relaxed);
    if (n != 0) {
      fprintf(f, "%s\n\"%s\": %llu", separator, kNames[i],
              static_cast<unsigned long long>(n));
      separator = ",";
    }
  }
  fprintf(f, "%s}\n", separator[0] == '{' ? "{" : "\n");
  fclose(f);
}

}  // namespace
}  // namespace fake

#define CONCAT2(a, b) a##b
#define CONCAT(a, b) CONCAT2(a, b)

FAKE_EXPORT int64_t CONCAT(FAKE_PREFIX, _arrivals)(const char* function) {
  for (int i = 0; i < fake::kArriveCount; i++) {
    if (strcmp(fake::kNames[i], function) == 0) {
      return static_cast<int64_t>(fake::g_arrivals[i].load());
    }
  }
  return -1;
}

FAKE_EXPORT int64_t CONCAT(FAKE_PREFIX, _arrivals_total)() {
  int64_t sum = 0;
  for (int i = 0; i < fake::kArriveCount; i++) {
    sum += static_cast<int64_t>(fake::g_arrivals[i].load());
  }
  return sum;
}
