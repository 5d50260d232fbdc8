// SPDX-License-Identifier: Apache-2.0
#include "analysis/syscalls.h"

#include <algorithm>
#include <iterator>

namespace ingero::analysis {
namespace {

constexpr int16_t kSelect = 23, kPselect6 = 270;
constexpr int16_t kSelectNothing = 0x4000 | kSelect;  // no number of Linux

struct Row {
  int16_t number;
  const char* name;
  Reason reason;
};

// Calls in which threads of a data pipeline are seen asleep.
constexpr Row kRows[] = {
    {0, "read", Reason::kSleepOther},
    {1, "write", Reason::kSleepOther},
    {7, "poll", Reason::kSleepNetwork},
    {16, "ioctl", Reason::kSleepOther},
    {17, "pread64", Reason::kSleepOther},
    {19, "readv", Reason::kSleepOther},
    {23, "select", Reason::kSleepNetwork},
    {35, "nanosleep", Reason::kSleepTimer},
    {42, "connect", Reason::kSleepNetwork},
    {43, "accept", Reason::kSleepNetwork},
    {44, "sendto", Reason::kSleepNetwork},
    {45, "recvfrom", Reason::kSleepNetwork},
    {46, "sendmsg", Reason::kSleepNetwork},
    {47, "recvmsg", Reason::kSleepNetwork},
    {61, "wait4", Reason::kSleepOther},
    {128, "rt_sigtimedwait", Reason::kSleepTimer},
    {202, "futex", Reason::kSleepOther},
    {230, "clock_nanosleep", Reason::kSleepTimer},
    {232, "epoll_wait", Reason::kSleepNetwork},
    {247, "waitid", Reason::kSleepOther},
    {270, "pselect6", Reason::kSleepNetwork},
    {271, "ppoll", Reason::kSleepNetwork},
    {281, "epoll_pwait", Reason::kSleepNetwork},
    {288, "accept4", Reason::kSleepNetwork},
    {299, "recvmmsg", Reason::kSleepNetwork},
    {307, "sendmmsg", Reason::kSleepNetwork},
    {426, "io_uring_enter", Reason::kSleepOther},
    {441, "epoll_pwait2", Reason::kSleepNetwork},
    {kSelectNothing, "select of nothing", Reason::kSleepTimer},
};

const Row* Find(int16_t number) {
  for (const Row& row : kRows)
    if (row.number == number) return &row;
  return nullptr;
}

}  // namespace

int16_t SleepSyscall(int16_t syscall, uint64_t arg0) {
  return (syscall == kSelect || syscall == kPselect6) && arg0 == 0
             ? kSelectNothing
             : syscall;
}

Reason ReasonOfSleep(int16_t syscall) {
  const Row* row = Find(syscall);
  return row ? row->reason : Reason::kSleepOther;
}

std::string SyscallName(int16_t syscall) {
  if (syscall < 0) return "";
  const Row* row = Find(syscall);
  return row ? row->name : "system call " + std::to_string(syscall);
}

}  // namespace ingero::analysis
