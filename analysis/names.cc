// SPDX-License-Identifier: Apache-2.0
#include "analysis/names.h"

namespace ingero::analysis {

const char* NameOf(Reason reason) {
  using enum Reason;
  switch (reason) {
    case kUnknown: return "unknown";
    case kHostCode: return "host-code";
    case kCudaCall: return "cuda-call";
    case kWaitingForCpu: return "waiting-for-cpu";
    case kDiskWait: return "disk-wait";
    case kSleepTimer: return "sleep-timer";
    case kSleepNetwork: return "sleep-network";
    case kSleepOther: return "sleep-other";
    case kPageableCopy: return "pageable-copy";
    case kColdStart: return "cold-start";
    case kStopped: return "stopped";
    case kBlocked: return "blocked";
    case kSubmitting: return "submitting";
    case kThrottled: return "throttled";
    case kHolderUnseen: return "holder-unseen";
    case kReclaim: return "reclaim";
    case kCompaction: return "compaction";
  }
  return nullptr;
}
const char* NameOf(FeedState state) {
  using enum FeedState;
  switch (state) {
    case kIdle: return "idle";
    case kBusy: return "busy";
    case kUnknown: return "unknown";
    case kHostCopy: return "host-copy";
    case kColdStart: return "cold-start";
  }
  return nullptr;
}

const char* NameOf(ThreadState state) {
  using enum ThreadState;
  switch (state) {
    case kUnknown: return "unknown";
    case kRunning: return "running";
    case kRunnable: return "runnable";
    case kSleeping: return "sleeping";
    case kDisk: return "disk";
    case kBlocked: return "blocked";
    case kStopped: return "stopped";
    case kDead: return "dead";
  }
  return nullptr;
}

}  // namespace ingero::analysis
