// SPDX-License-Identifier: Apache-2.0
// Reports built by hand, one for each story that a golden folder tells.
#ifndef INGERO_TESTS_CLI_REPORT_FIXTURES_H_
#define INGERO_TESTS_CLI_REPORT_FIXTURES_H_

#include <span>

#include "analysis/report.h"

namespace ingero::cli {

struct Story {
  const char* name;  // of its folder in golden/
  analysis::Report (*report)();
};
std::span<const Story> Stories();

}  // namespace ingero::cli

#endif  // INGERO_TESTS_CLI_REPORT_FIXTURES_H_
