// SPDX-License-Identifier: Apache-2.0
// Tries each part that recording needs, on this machine, as this user.
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/program.h"
#include "cli/render/layout.h"
#include "merge/merge.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Try what recording needs on this machine: the shim on simulated calls,\n"
    "the trace folder, the clock, and (as root) every probe of ingero-kprobe\n"
    "for a fifth of a second. Records nothing of yours and leaves no file.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero check               the shim alone\n"
    "  sudo ingero check          the kernel side, too\n"
    "  ingero check --json        for scripts\n"
    "\n"
    "Exit status: 0 nothing is broken, 1 something is, 2 wrong usage.";

constexpr int kCalls = 1000;
constexpr unsigned kMaxSeconds = 30;
constexpr uint64_t kEnoughBytes = uint64_t{1} << 30;

enum class State { kWorks, kLimited, kFailed, kUnknown };

struct Item {
  std::string name;
  State state;
  std::string text;
  std::string todo = {};  // what to do about it
  bool detail = false;    // part of the item above
};

const char* Word(State state) {
  switch (state) {
    case State::kWorks: return "works";
    case State::kLimited: return "limited";
    case State::kFailed: return "FAILED";
    case State::kUnknown: return "not tried";
  }
  return "";
}

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}
std::string LastLine(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}
std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// ---- the shim ---------------------------------------------------------------

enum ChildStatus : int { kNotLoaded = 10, kNoDriver = 11, kFailedCall = 12 };

// Path of the shim in this process, "" if it is not loaded.
std::string LoadedShim() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* module, size_t, void* to) {
        const std::string_view name = module->dlpi_name;
        if (!name.ends_with(std::string("/") + kShim)) return 0;
        *static_cast<std::string*>(to) = name;
        return 1;
      },
      &path);
  return path;
}

// Runs with the shim preloaded: prints its path and the ns of a call.
int MakeSimulatedCalls(const Io& io) {
  const std::string path = LoadedShim();
  if (path.empty()) return kNotLoaded;
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  void* driver = dlopen((folder + "libingero_check.so").c_str(), RTLD_NOW);
  if (driver == nullptr) {
    PrintError(io, "check", dlerror());
    return kNoDriver;
  }
  const auto call = reinterpret_cast<int (*)(void*)>(
      dlsym(driver, "cuStreamSynchronize"));
  if (call == nullptr) return kNoDriver;
  // The cheapest of ten blocks: what a call costs once all is warm.
  double ns_per_call = 1e9;
  for (int block = 0; block < 10; ++block) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls / 10; ++i)
      if (call(nullptr) != 0) return kFailedCall;
    const std::chrono::duration<double, std::nano> ns =
        std::chrono::steady_clock::now() - begin;
    ns_per_call = std::min(ns_per_call, ns.count() / (kCalls / 10));
  }
  Write(io.out, fmt::format("{}\n{:.0f}\n", path, ns_per_call));
  return FinishOutput(io, "check") ? kDone : kFailed;
}

std::string WhyNothingRecorded() {
  if (const std::string off = Environment("INGERO_DISABLE");
      !off.empty() && off != "0")
    return "INGERO_DISABLE is set in this environment: unset it";
  if (const std::string apis = Environment("INGERO_APIS"); !apis.empty())
    return "INGERO_APIS=" + apis + " leaves out sync-stream, of which the "
           "simulated calls are";
  return "";
}

// What does not fit into `folder` any more, "" = nothing.
std::string WhyNoRoom(const std::string& folder) {
  constexpr off_t kNeeded = 1 << 20;
  auto file = OpenFile(folder + "/room", O_RDWR | O_CREAT | O_TRUNC);
  const int error = file.ok() ? posix_fallocate(file->get(), 0, kNeeded)
                              : ENOSPC;
  unlink((folder + "/room").c_str());
  return error == 0 ? ""
                    : fmt::format("no room for {} in {}: {}",
                                  FormatBytes(kNeeded), folder,
                                  std::strerror(error));
}

Item CheckShimAt(const std::string& preload, const std::string& folder) {
  Item item{"Shim", State::kFailed, ""};
  const std::string traces = folder + "/traces";
  auto child = RunProgram({"/proc/self/exe", "check", "--simulated-calls"},
                          {"LD_PRELOAD=" + preload, "INGERO_DIR=" + traces},
                          kMaxSeconds);
  if (!child.ok()) {
    item.text = child.status().message();
    return item;
  }
  if (child->exit_status == kNotLoaded) {
    item.text = "LD_PRELOAD=" + preload + " did not load it" +
                (child->err.empty() ? "" : ": " + FirstLine(child->err));
    return item;
  }
  if (child->exit_status == kNoDriver) {
    item.text = "loaded, but not tried: the simulated driver is not beside it "
                "(" + LastLine(child->err) + ")";
    item.todo = "install ingero again, whole";
    return item;
  }
  if (child->exit_status != kDone) {
    item.text = fmt::format("a program with simulated calls ended with status "
                            "{} under it",
                            child->exit_status);
    item.todo = "please report this, with: " + LastLine(child->err);
    return item;
  }
  const std::string path = FirstLine(child->out);
  merge::MergeOptions options;
  options.dirs = {traces};
  options.output = folder + "/check.store";
  const auto merged = merge::Merge(options);
  const uint64_t calls = merged.ok() ? merged->calls : 0;
  if (calls != kCalls) {
    item.text = fmt::format("{}: {} of {} simulated calls were recorded", path,
                            FormatCount(calls), FormatCount(kCalls));
    item.todo = WhyNothingRecorded();
    if (item.todo.empty())
      item.todo = merged.ok() ? "please report this"
                              : "please report this, with: " +
                                    merged.status().message();
    return item;
  }
  item.state = State::kWorks;
  item.text = fmt::format(
      "{}: {} of {} simulated calls recorded and merged, {} ns a call (warm)", path,
      FormatCount(calls), FormatCount(kCalls), LastLine(child->out));
  return item;
}

Item CheckShim() {
  auto scratch = NewFolder("ingero-check");
  if (!scratch.ok())
    return {"Shim", State::kUnknown,
            "no folder for temporary files (TMPDIR, /tmp) can be written to: " +
                scratch.status().message(),
            "set TMPDIR to one"};
  const std::string& folder = scratch->path();
  if (const std::string why = WhyNoRoom(folder); !why.empty())
    return {"Shim", State::kUnknown, why,
            "free some space there, or set TMPDIR to another folder"};
  // As people type it; else where it was built or installed.
  Item item = CheckShimAt(kShim, folder);
  if (item.text.find("did not load") != std::string::npos) {
    if (const std::string path = ShimBesideUs(); path.empty()) {
      item.todo = "install ingero, or set LD_LIBRARY_PATH to the folder that "
                  "has it";
    } else {
      std::error_code error;
      std::filesystem::remove_all(folder + "/traces", error);
      item = CheckShimAt(path, folder);
      if (item.state == State::kWorks) {
        item.state = State::kLimited;
        item.text += "; but ld.so does not find it by name in this environment";
        item.todo = "LD_PRELOAD=" + path + ", or: export LD_LIBRARY_PATH=" +
                    path.substr(0, path.rfind('/'));
      }
    }
  }
  return item;
}

// ---- where and when ---------------------------------------------------------

Item CheckTraceFolder() {
  const TraceDir dir = DefaultTraceDir();
  Item item{"Folder", State::kWorks, dir.path};
  std::string there = dir.path;
  struct stat st;
  if (lstat(there.c_str(), &st) == 0) {
    const char* wrong = S_ISLNK(st.st_mode)   ? "is a symbolic link"
                        : !S_ISDIR(st.st_mode) ? "is not a folder"
                        : st.st_uid != dir.uid ? "belongs to another user"
                                               : nullptr;
    if (wrong != nullptr) {
      item.state = State::kFailed;
      item.text += std::string(": ") + wrong +
                   "; recorders refuse it, so that nobody else can plant or "
                   "read traces";
      item.todo = "remove it, or set INGERO_DIR to a folder of your own";
      return item;
    }
  } else {
    item.text += " (made when recording begins)";
    while (there.size() > 1 && lstat(there.c_str(), &st) != 0)
      there.resize(std::max<size_t>(there.rfind('/'), 1));
  }
  // Root may write everywhere, and still not be able to.
  if (auto probe = MakeScratchFolder(there + "/.ingero-check"); !probe.ok()) {
    item.state = State::kFailed;
    item.text += ": no folder can be made in it: " + probe.status().message();
    item.todo = "set INGERO_DIR to a folder of your own";
    return item;
  }
  struct statvfs space;
  if (statvfs(there.c_str(), &space) == 0) {
    const uint64_t bytes = uint64_t{space.f_bavail} * space.f_frsize;
    item.text += ", " + FormatBytes(bytes) + " free";
    if (bytes < kEnoughBytes) {
      item.state = State::kLimited;
      item.todo = "what does not fit is lost, and counted; free some space or "
                  "set INGERO_DIR";
    }
  }
  if (!dir.note.empty()) item.text += "; " + dir.note;
  return item;
}

Item CheckClock() {
  auto source = ReadWholeFile(
      "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  const std::string name = source.ok() ? FirstLine(*source) : "unknown";
  if (name == "tsc")
    return {"Clock", State::kWorks, "the kernel trusts the time stamp counter"};
  return {"Clock", State::kLimited,
          "the kernel's clock source is " + name +
              ", so a call is stamped by clock_gettime, which costs more",
          ""};
}

Item CheckDriver() {
  auto version = ReadWholeFile("/proc/driver/nvidia/version");
  if (!version.ok())
    return {"GPU", State::kUnknown,
            "no NVIDIA driver here: programs can be recorded on simulated CUDA "
            "only"};
  return {"GPU", State::kWorks, FirstLine(*version)};
}

// ---- the companion ----------------------------------------------------------

void CheckCompanion(bool has_driver, std::vector<Item>* items) {
  const std::string path = FindCompanion();
  if (path.empty()) {
    items->push_back({"Companion", State::kFailed,
                      "there is no ingero-kprobe beside ingero or in PATH: the "
                      "scheduler's side cannot be recorded",
                      "build it (cmake says what it lacks) or install it"});
    return;
  }
  auto run = RunProgram({path, "--check"}, {}, kMaxSeconds);
  if (!run.ok()) {
    items->push_back(
        {"Companion", State::kFailed, run.status().message(), ""});
    return;
  }
  Item head{"Companion", State::kWorks, path};
  std::vector<Item> probes;
  std::istringstream lines(run->out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string state, name, text;
    words >> state >> name >> std::ws;
    std::getline(words, text);
    probes.push_back({name,
                      state == "works"      ? State::kWorks
                      : state == "attached" ? State::kUnknown
                      : state == "skipped"  ? State::kLimited
                                            : State::kFailed,
                      text, "", true});
    // What no GPU answers to is not missing.
    if (name == "nvml" && !has_driver) probes.back().state = State::kUnknown;
    if (probes.back().state == State::kLimited) head.state = State::kLimited;
  }
  if (run->exit_status != 0) {
    const std::string why = LastLine(run->err);
    const bool rights = geteuid() != 0 && probes.empty();
    head.state = rights ? State::kUnknown : State::kFailed;
    head.text += ": " + (why.empty() ? fmt::format("ended with status {}",
                                                   run->exit_status)
                                     : why);
    if (rights) head.todo = "sudo ingero check";
  }
  items->push_back(std::move(head));
  items->insert(items->end(), probes.begin(), probes.end());
}

// ---- output -----------------------------------------------------------------

std::string AsText(const std::vector<Item>& items, const Io& io) {
  Page page(io.columns, io.out_is_terminal && !io.no_color);
  for (const Item& item : items) {
    const Tone tone = item.state == State::kWorks    ? Tone::kGreen
                      : item.state == State::kFailed ? Tone::kRed
                      : item.state == State::kLimited ? Tone::kYellow
                                                      : Tone::kDim;
    const int indent = item.detail ? 2 : 0, name_columns = 32 - indent;
    page.Labeled(fmt::format("{:<{}} ", SanitizeForTerminal(item.name),
                             name_columns) +
                     Toned(tone, Word(item.state)),
                 SanitizeForTerminal(item.text), indent, 44 - indent, 0,
                 /*cut=*/false);
    if (!item.todo.empty())
      page.Paragraph("do: " + SanitizeForTerminal(item.todo), 4, 4,
                     /*cut=*/false);
  }
  return page.text();
}

std::string AsJson(const std::vector<Item>& items, bool ok) {
  nlohmann::ordered_json out = {
      {"schema", {{"name", "ingero.check"}, {"version", 1}}}, {"ok", ok}};
  out["items"] = nlohmann::ordered_json::array();
  for (const Item& item : items) {
    static constexpr const char* kStates[] = {"works", "limited", "failed",
                                              "not-tried"};
    nlohmann::ordered_json one = {
        {"name", item.name},
        {"probe", item.detail},
        {"state", kStates[static_cast<int>(item.state)]},
        {"text", item.text}};
    if (!item.todo.empty()) one["todo"] = item.todo;
    out["items"].push_back(one);
  }
  using Json = nlohmann::ordered_json;
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

int RunCheck(const Args& args, const Io& io) {
  bool json = false, simulated_calls = false;
  CLI::App app(kHelp, "ingero check");
  app.footer(kExamples);
  app.add_flag("--json", json, "Print it as JSON, for programs");
  app.add_flag("--simulated-calls", simulated_calls)->group("");
  if (auto status = Parse(app, args, io)) return *status;
  if (simulated_calls) return MakeSimulatedCalls(io);

  std::vector<Item> items = {CheckShim(), CheckTraceFolder(), CheckClock(),
                             CheckDriver()};
  CheckCompanion(items.back().state == State::kWorks, &items);
  bool ok = true;
  for (const Item& item : items) ok &= item.state != State::kFailed;
  Write(io.out, json ? AsJson(items, ok) : AsText(items, io));
  if (!FinishOutput(io, "check")) return kFailed;
  return ok ? kDone : kFailed;
}

}  // namespace ingero::cli
