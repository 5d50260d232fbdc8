// SPDX-License-Identifier: Apache-2.0
// A report as text for people and as JSON for programs. Renderers decide
// nothing: all facts and sentences come from analysis/report.h.
#ifndef INGERO_CLI_RENDER_REPORT_H_
#define INGERO_CLI_RENDER_REPORT_H_

#include <optional>
#include <string>

#include "analysis/report.h"

namespace ingero::cli {

struct TextOptions {
  int columns = 80;
  bool color = false;
  bool per_process = false;          // processes instead of findings
  bool chains = false;               // slow operations instead of findings
  bool all = false;                  // every row of every table
  std::optional<uint32_t> pid = {};  // the process that was asked about
};

// The answer and what to do come first, then the findings, then the numbers.
std::string RenderText(const analysis::Report& report,
                       const TextOptions& options);

struct MarkdownOptions {
  bool all = false;
  std::optional<uint32_t> pid = {};
};
// To paste into an issue or a pull request: no line is wrapped, since those
// keep line ends; names cannot mention anybody, link or mark up anything.
std::string RenderMarkdown(const analysis::Report& report,
                           const MarkdownOptions& options);

// docs/explain.schema.json. Times are integers, ns on the host's
// CLOCK_MONOTONIC; the same report always gives the same bytes; pure ASCII,
// so that no name can do harm on a terminal.
std::string RenderJson(const analysis::Report& report);

inline constexpr const char* kSchemaName = "ingero.explain";
// Rises when a field is renamed, removed or changes its meaning; a new field
// alone does not raise it.
inline constexpr int kSchemaVersion = 1;

}  // namespace ingero::cli

#endif  // INGERO_CLI_RENDER_REPORT_H_
