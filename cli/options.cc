// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/text.h"

namespace ingero::cli {
namespace {

// "ingero explain" -> "explain".
std::string CommandOf(const CLI::App& app) {
  std::string name = app.get_name();
  size_t space = name.find(' ');
  return space == std::string::npos ? "" : name.substr(space + 1);
}

int NeedsValue(const CLI::App& app, const std::string& option, const Io& io) {
  return UsageError(io, CommandOf(app),
                    fmt::format("{} needs a value; '{} --help' has examples",
                                option, app.get_name()));
}

std::string ExtraMessage(const CLI::App& app, const std::string& extra) {
  if (!extra.starts_with("-") || extra == "-")
    return fmt::format(
        "unexpected argument '{}'; '{} --help' shows what it "
        "takes",
        extra, app.get_name());
  std::string given = extra.substr(0, extra.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      known.push_back("--" + name);
  std::string near = Nearest(given, known);
  if (near.empty())
    return fmt::format("unknown option {}; '{} --help' lists the options",
                       given, app.get_name());
  return fmt::format("unknown option {}; did you mean {}?", given, near);
}

}  // namespace

std::string Nearest(std::string_view word,
                    const std::vector<std::string>& candidates) {
  if (word.size() > 64) return "";  // no typing error, and slow to compare
  for (const std::string& candidate : candidates)
    if (word.size() >= 2 && candidate.starts_with(word)) return candidate;
  const std::vector<std::string_view> views(candidates.begin(),
                                            candidates.end());
  return std::string(ClosestMatch(word, views).value_or(""));
}

std::optional<int> Parse(CLI::App& app, const Args& args, const Io& io) {
  app.set_help_flag("-h,--help", "Print this help");
  try {
    app.parse(Args(args.rbegin(), args.rend()));  // CLI11 takes from the back
    // An empty shell variable, most likely.
    for (const CLI::Option* option : app.get_options())
      for (const std::string& value : option->results())
        if (value.empty() && option->get_expected_min() > 0)
          return NeedsValue(app, option->get_name(), io);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    Write(io.out, app.help());
    return FinishOutput(io, CommandOf(app)) ? kDone : kFailed;
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> extra = app.remaining();
    return UsageError(io, CommandOf(app),
                      ExtraMessage(app, extra.empty() ? "" : extra[0]));
  } catch (const CLI::ArgumentMismatch& e) {
    std::string what = e.what();
    std::string option = what.substr(0, what.find(':'));
    const CLI::Option* known = app.get_option_no_throw(option);
    bool twice = known != nullptr && known->results().size() > 1;
    if (!twice) return NeedsValue(app, option, io);
    return UsageError(
        io, CommandOf(app),
        fmt::format("{} is given more than once; give it once", option));
  } catch (const CLI::ParseError& e) {
    return UsageError(
        io, CommandOf(app),
        fmt::format("{}; see '{} --help'", e.what(), app.get_name()));
  }
}

std::optional<int> RequireFolders(const std::vector<std::string>& dirs,
                                  std::string_view command, const Io& io) {
  for (const std::string& dir : dirs) {
    std::error_code error;
    const auto status = std::filesystem::status(dir, error);
    const char* why = status.type() == std::filesystem::file_type::not_found
                          ? "there is no such folder"
                      : status.type() == std::filesystem::file_type::none
                          ? nullptr  // who reads it says why
                      : std::filesystem::is_directory(status)
                          ? nullptr
                          : "is no folder";
    if (why == nullptr) continue;
    PrintError(io, command,
               fmt::format("--dir {}: {}; name the one that holds the "
                           "recordings",
                           dir, why));
    return kFailed;
  }
  return std::nullopt;
}

int UsageError(const Io& io, std::string_view command,
               std::string_view message) {
  PrintError(io, command, message);
  return kUsage;
}

}  // namespace ingero::cli
