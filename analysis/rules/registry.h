// SPDX-License-Identifier: Apache-2.0
// Every rule, one file each, named after its cause.
#ifndef INGERO_ANALYSIS_RULES_REGISTRY_H_
#define INGERO_ANALYSIS_RULES_REGISTRY_H_

#include "analysis/rules/rule.h"

namespace ingero::analysis {

extern const Rule kAllocChurnRule;
extern const Rule kCgroupQuotaRule;
extern const Rule kColdStartRule;
extern const Rule kCpuOtherProcessRule;
extern const Rule kCpuOversubscribedRule;
extern const Rule kForkStormRule;
extern const Rule kHostBoundRule;
extern const Rule kIdleByChoiceRule;
extern const Rule kInProcessLoadingRule;
extern const Rule kLaunchBoundRule;
extern const Rule kLazyLoadStallRule;
extern const Rule kLoaderCpuBoundRule;
extern const Rule kLoaderOversubscribedRule;
extern const Rule kLockHeldRule;
extern const Rule kMemoryFaultsRule;
extern const Rule kPageableCopyRule;
extern const Rule kReclaimSwapRule;
extern const Rule kSlowWakeupRule;
extern const Rule kStoppedRule;
extern const Rule kStorageBoundRule;
extern const Rule kSyncStormRule;
extern const Rule kUnexplainedRule;
extern const Rule kUpstreamWaitRule;
extern const Rule kWorkersReplacedRule;

extern const ContextRule kGpuSharedRule;
extern const ContextRule kGpuThrottledRule;
extern const ContextRule kHostCallbackRule;
extern const ContextRule kWorkerDiedRule;

}  // namespace ingero::analysis

#endif  // INGERO_ANALYSIS_RULES_REGISTRY_H_
