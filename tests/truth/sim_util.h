// SPDX-License-Identifier: Apache-2.0
// Clocks and planted costs of the starvation simulator. Times are ns on
// CLOCK_MONOTONIC unless a name says otherwise.
#ifndef INGERO_TESTS_TRUTH_SIM_UTIL_H_
#define INGERO_TESTS_TRUTH_SIM_UTIL_H_

#include <sched.h>
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace sim {

inline uint64_t ReadClock(clockid_t id) {
  timespec t;
  clock_gettime(id, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u +
         static_cast<uint64_t>(t.tv_nsec);
}
inline uint64_t Now() { return ReadClock(CLOCK_MONOTONIC); }
inline uint64_t ThreadCpu() { return ReadClock(CLOCK_THREAD_CPUTIME_ID); }

// Uses `ns` of CPU time, however long that takes.
inline void Burn(uint64_t ns) {
  uint64_t end = ThreadCpu() + ns;
  volatile uint64_t sink = 0;
  while (ns != 0 && ThreadCpu() < end) {
    for (int i = 0; i < 500; i++) {
      sink = sink + static_cast<uint64_t>(i);
    }
  }
}

inline void Sleep(uint64_t ns) {
  timespec t{static_cast<time_t>(ns / 1000000000u),
             static_cast<long>(ns % 1000000000u)};
  while (ns != 0 && nanosleep(&t, &t) != 0) {
  }
}

[[noreturn]] inline void Die(const std::string& what) {
  fprintf(stderr, "starve_sim: %s\n", what.c_str());
  exit(1);
}

inline std::vector<int> AllowedCpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int c = 0; c < CPU_SETSIZE; c++) {
      if (CPU_ISSET(c, &set)) {
        cpus.push_back(c);
      }
    }
  }
  return cpus;
}

// "0,2-3": the first, third and fourth of the CPUs that the process might use
// when it began; empty: no change.
inline std::vector<int> ParseCpus(const std::string& text) {
  static const std::vector<int> allowed = AllowedCpus();
  std::vector<int> cpus;
  for (size_t at = 0; at < text.size();) {
    char* end;
    long first = strtol(text.c_str() + at, &end, 10), last = first;
    if (*end == '-') {
      last = strtol(end + 1, &end, 10);
    }
    if ((*end != ',' && *end != '\0') || first < 0 || last >= CPU_SETSIZE) {
      Die("\"" + text + "\" is not a list of CPUs");
    }
    if (static_cast<size_t>(last) >= allowed.size()) {
      fprintf(stderr, "starve_sim: SKIP: needs %ld CPUs, and may use %zu\n",
              last + 1, allowed.size());
      exit(77);
    }
    for (long c = first; c <= last; c++) {
      cpus.push_back(allowed[static_cast<size_t>(c)]);
    }
    at = static_cast<size_t>(end - text.c_str()) + 1;
  }
  return cpus;
}

inline void PinTo(const std::vector<int>& cpus) {
  if (cpus.empty()) {
    return;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int c : cpus) {
    CPU_SET(c, &set);
  }
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    Die("cannot pin to the CPUs asked for");
  }
}

// Small reproducible jitter: value * [0.9, 1.1).
class Jitter {
 public:
  explicit Jitter(uint64_t seed) : state_(seed * 2 + 1) {}
  uint64_t operator()(uint64_t value) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return value * (900 + (state_ >> 33) % 200) / 1000;
  }

 private:
  uint64_t state_;
};

}  // namespace sim

#endif  // INGERO_TESTS_TRUTH_SIM_UTIL_H_
