// SPDX-License-Identifier: Apache-2.0
// Two recordings compared, as text for people and as JSON for programs. As in
// render/report.h: facts and sentences come from analysis/diff.h.
#ifndef INGERO_CLI_RENDER_DIFF_H_
#define INGERO_CLI_RENDER_DIFF_H_

#include <string>
#include <utility>
#include <vector>

#include "analysis/diff.h"
#include "cli/render/json.h"

namespace ingero::cli {

using FailAnswers = std::vector<
    std::pair<analysis::FailCondition, analysis::FailAnswer>>;

struct DiffTextOptions {
  int columns = 80;
  bool color = false;
  bool all = false;  // every row of every table
};
std::string RenderDiffText(const analysis::Diff& diff,
                           const FailAnswers& answers,
                           const DiffTextOptions& options);

// docs/diff.schema.json.
Json DiffJson(const analysis::Diff& diff, const FailAnswers& answers);

inline constexpr const char* kDiffSchemaName = "ingero.diff";
inline constexpr int kDiffSchemaVersion = 1;

}  // namespace ingero::cli

#endif  // INGERO_CLI_RENDER_DIFF_H_
