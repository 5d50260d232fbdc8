// SPDX-License-Identifier: Apache-2.0
#include "analysis/rules/registry.h"

namespace ingero::analysis {

std::span<const Rule* const> Rules() {
  // Order matters where two could take the same time: the more specific one
  // first. Whatever is left at the end is "unexplained".
  static constexpr const Rule* kRules[] = {
      &kLazyLoadStallRule,     &kColdStartRule,
      &kPageableCopyRule,      &kReclaimSwapRule,
      &kMemoryFaultsRule,      &kCgroupQuotaRule,
      &kLoaderOversubscribedRule,&kCpuOversubscribedRule,
      &kCpuOtherProcessRule,   &kSlowWakeupRule,
      &kStoppedRule,           &kStorageBoundRule,
      &kIdleByChoiceRule,      &kUpstreamWaitRule,
      &kForkStormRule,         &kWorkersReplacedRule,
      &kLoaderCpuBoundRule,    &kLockHeldRule,
      &kSyncStormRule,         &kAllocChurnRule,
      &kInProcessLoadingRule,  &kLaunchBoundRule,
      &kHostBoundRule,         &kUnexplainedRule,
  };
  return kRules;
}

std::span<const ContextRule* const> ContextRules() {
  static constexpr const ContextRule* kContextRules[] = {
      &kWorkerDiedRule, &kGpuSharedRule, &kGpuThrottledRule,
      &kHostCallbackRule};
  return kContextRules;
}

}  // namespace ingero::analysis
