// SPDX-License-Identifier: Apache-2.0
// Two modes of the simulator that plant scheduling facts instead of a cause.
#ifndef INGERO_TESTS_TRUTH_MODES_H_
#define INGERO_TESTS_TRUTH_MODES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace sim {

// `calls` cudaStreamSynchronize that each sleep `call_us` inside, from a
// thread that hops between its CPUs (CASES 35).
nlohmann::json RunSleepers(uint64_t calls, uint64_t call_us);

// Three threads that stamp what they do for `seconds`: one preempted by a
// spinner, one asleep on a futex, one reading with O_DIRECT (CASES 29). Each
// also makes CUDA calls, so that the recording has the process.
// states: [{tid, name, intervals: [[begin_ns, end_ns, state, cpu_ns, waited_ns,
// switches, rival_ns]...]}]
nlohmann::json RunStates(uint64_t seconds, const std::string& data_dir);

}  // namespace sim

#endif  // INGERO_TESTS_TRUTH_MODES_H_
