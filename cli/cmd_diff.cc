// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "analysis/diff.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/render/diff.h"
#include "merge/trace_reader.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Compare two recordings of a program: what got slower, and to which cause\n"
    "the difference goes. A is the one before, B the one after. By step where\n"
    "both have steps, else by second of GPU use; how much a run varies by\n"
    "itself decides what is a difference.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero diff before.store after.store\n"
    "  ingero diff A B --json                    for scripts\n"
    "  ingero diff A B --fail-on slower:10       exit with 4 where a step takes\n"
    "                                            10 % longer, or more\n"
    "  ingero diff A B --fail-on starved,loader-cpu-bound:2\n"
    "\n"
    "--fail-on WHAT[:PERCENT],...  WHAT is 'slower' (the time of a step; in\n"
    "percent), 'starved' (GPU starved for certain), 'gpu-busy', 'not-known' or\n"
    "a cause (their share of the time; in percentage points). PERCENT: 5 where\n"
    "it is left out. Changes within the noise never count. Exit status: 0 all\n"
    "passed, 4 one failed, 1 one could not be judged.";

// The first value of --fail-on that has an empty part, "" = none.
std::string EmptyCondition(const Args& args) {
  constexpr std::string_view kOption = "--fail-on";
  for (size_t i = 0; i < args.size(); ++i) {
    std::string value;
    if (args[i] == kOption && i + 1 < args.size())
      value = args[i + 1];
    else if (args[i].starts_with(std::string(kOption) + "="))
      value = args[i].substr(kOption.size() + 1);
    if (value.starts_with(',') || value.ends_with(',') ||
        value.find(",,") != value.npos)
      return value;
  }
  return "";
}

}  // namespace

int RunDiff(const Args& args, const Io& io) {
  std::string path_a, path_b, color = "auto";
  std::vector<std::string> fail_on;
  bool json = false, all = false, strict = false;
  CLI::App app(kHelp, "ingero diff");
  app.footer(kExamples);
  app.add_option("A", path_a, "Store of the recording before")->required();
  app.add_option("B", path_b, "Store of the recording after")->required();
  app.add_flag("--json", json,
               "Print everything as JSON, for programs\n"
               "(docs/diff.schema.json)");
  app.add_option("--fail-on", fail_on,
                 "Exit with 4 where this got worse; see below")
      ->type_name("WHAT[:PERCENT]")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--all", all, "Show every row of every table");
  app.add_flag("--strict", strict,
               "Exit with 3 where data were lost in A or B, or a\n"
               "side was not recorded");
  app.add_option("--color", color,
                 "auto, always or never; auto: on a terminal,\n"
                 "unless NO_COLOR is set")
      ->type_name("WHEN");
  if (auto status = Parse(app, args, io)) return *status;
  if (color != "auto" && color != "always" && color != "never")
    return UsageError(
        io, "diff",
        fmt::format("--color: '{}' is not one of auto, always and never",
                    color));
  std::vector<analysis::FailCondition> conditions;
  // The parser drops what is empty between commas.
  if (const std::string wrong = EmptyCondition(args); !wrong.empty())
    return UsageError(
        io, "diff",
        fmt::format("--fail-on: '{}' has a condition that is empty; leave out "
                    "the comma, or say WHAT[:PERCENT]",
                    wrong));
  for (const std::string& text : fail_on) {
    const auto condition = analysis::ParseFailCondition(text);
    if (!condition)
      return UsageError(
          io, "diff",
          fmt::format("--fail-on: '{}' is not WHAT[:PERCENT]; WHAT is one of "
                      "{}",
                      text, fmt::join(analysis::FailConditionNames(), ", ")));
    conditions.push_back(*condition);
  }

  auto a = merge::OpenTrace(path_a);
  auto b = merge::OpenTrace(path_b);
  for (const auto* opened : {&a, &b})
    if (!opened->ok()) {
      PrintError(io, "diff", opened->status().message());
      return kFailed;
    }
  const analysis::Diff diff = analysis::CompareReports(**a, **b);
  for (const auto* read : {&*a, &*b})
    if (Status status = (*read)->AllRead(); !status.ok()) {
      PrintError(io, "diff", status.message());
      return kFailed;
    }
  FailAnswers answers;
  bool failed = false, judged = true;
  for (const analysis::FailCondition& condition : conditions) {
    answers.emplace_back(condition, analysis::Judge(diff, condition));
    failed = failed || answers.back().second.failed;
    judged = judged && answers.back().second.judged;
  }
  if (json) {
    Write(io.out, DiffJson(diff, answers)
                          .dump(2, ' ', /*ensure_ascii=*/true,
                                Json::error_handler_t::replace) +
                      "\n");
  } else {
    DiffTextOptions text;
    text.columns = io.columns;
    text.color = color == "always" ||
                 (color == "auto" && io.out_is_terminal && !io.no_color);
    text.all = all;
    Write(io.out, RenderDiffText(diff, answers, text));
  }
  if (!FinishOutput(io, "diff")) return kFailed;
  if (!judged) {
    for (const auto& [condition, answer] : answers)
      if (!answer.judged)
        PrintError(io, "diff",
                   fmt::format("--fail-on {} cannot be judged: {}",
                               condition.what, answer.text));
    return kFailed;
  }
  if (strict) {
    for (const auto& [side, name] :
         {std::pair(&diff.a, "A"), std::pair(&diff.b, "B")}) {
      if (side->complete && side->scheduled >= analysis::kScheduledEnough) continue;
      PrintError(io, "diff",
                 fmt::format("the data of {} are incomplete (--strict): {}",
                             name,
                             side->complete ? "not all scheduling was recorded"
                                            : "events were lost"));
      return kIncomplete;
    }
  }
  return failed ? kWorse : kDone;
}

}  // namespace ingero::cli
