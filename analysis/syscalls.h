// SPDX-License-Identifier: Apache-2.0
// What a sleep in a system call means for the critical path (x86-64 numbers).
#ifndef INGERO_ANALYSIS_SYSCALLS_H_
#define INGERO_ANALYSIS_SYSCALLS_H_

#include "analysis/attribution.h"

namespace ingero::analysis {

// The call that a sleep counts as. select() of no descriptors (`arg0`, their
// number, is 0) is a timed sleep: Python's time.sleep() before 3.11.
int16_t SleepSyscall(int16_t syscall, uint64_t arg0);
// Of a sleep that no thread ended: an interrupt did, or nobody knows.
Reason ReasonOfSleep(int16_t syscall);
// "futex"; "system call 999" where there is no name for it here; "" for -1.
std::string SyscallName(int16_t syscall);

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_SYSCALLS_H_
