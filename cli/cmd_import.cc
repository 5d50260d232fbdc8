// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "base/leftover.h"
#include "base/shell_word.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/merging.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "cli/stop.h"
#include "import/import.h"
#include "import/sched.h"
#include "merge/store_output.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Make a store of what others recorded, so that explain, report, query and\n"
    "the rest can be asked about it:\n"
    "  torch.profiler  its trace (export_chrome_trace; JSON, plain or gzipped)\n"
    "  Nsight Systems  an SQLite export\n"
    "  perf            what perf script prints of `perf sched record`\n"
    "The first two have CUDA calls, what the GPU did and marked ranges; perf has\n"
    "who had a CPU, who waited for one and who slept. Give one of the first and\n"
    "perf's together to have both sides, if perf recorded with -k mono at the\n"
    "same time. What is in no file is not evaluated.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero import trace.json.gz\n"
    "  ingero explain --db trace.store\n"
    "  nsys export --type sqlite report1.nsys-rep && ingero import "
    "report1.sqlite\n"
    "  perf sched record -o perf.data -k mono -g -m 16M -- sleep 30\n"
    "  perf script --header --ns --show-task-events --show-lost-events \\\n"
    "      -F comm,pid,tid,cpu,time,event,ip,sym,trace > sched.txt\n"
    "  ingero import sched.txt\n"
    "  ingero import rank0.json sched.txt -o rank0.store";

// "a/trace.json.gz" -> "trace.store".
std::string StoreNameFor(const std::string& path) {
  std::filesystem::path name = std::filesystem::path(path).filename();
  for (const char* extension : {".gz", ".json", ".sqlite", ".pt", ".trace", ".txt"})
    if (name.extension() == extension && !name.stem().empty())
      name = name.stem();
  return name.string() + ".store";
}

class Says {
 public:
  explicit Says(const Io& io)
      : page_(io.columns, io.err_is_terminal && !io.no_color) {}
  void Line(std::string_view label, std::string_view text) {
    page_.Labeled(label, text, 0, 12, 0, /*cut=*/false);
  }
  void Note(std::string_view text) { Line(Toned(Tone::kYellow, "note"), text); }
  std::string text() { return page_.text(); }

 private:
  Page page_;
};

void SayCalls(const std::string& source, const import::Written& w,
              const std::map<std::string, uint64_t>& left_out, Says* says) {
  says->Line("imported",
             fmt::format("{}: {} of {}, {} of the GPU, {}", source,
                         FormatCounted(w.calls, "call", "calls"),
                         FormatCounted(w.processes, "process", "processes"),
                         FormatCounted(w.gpu_activities, "activity",
                                       "activities"),
                         FormatCounted(w.ranges, "range", "ranges")));
  if (w.gpu_activities == 0)
    says->Note(
        "the file does not say what the GPU did, so whether it had work is "
        "concluded from calls, as for what ingero records");
  if (w.unmatched > 0)
    says->Note(fmt::format(
        "{} of the GPU without the call that gave it (from before the trace "
        "began, or lost)",
        FormatCounted(w.unmatched, "activity", "activities")));
  for (const auto& [name, count] : left_out)
    says->Line("left out", fmt::format("{} {}", FormatCount(count),
                                       SanitizeForTerminal(name)));
}

void SaySched(const import::SchedEvents& about,
              const import::KernelWritten& w, Says* says) {
  says->Line("imported",
             fmt::format("perf: {} of {} on {} in {}",
                         FormatCounted(w.switches, "context switch",
                                       "context switches"),
                         FormatCounted(w.threads, "thread", "threads"),
                         FormatCounted(w.cpus, "CPU", "CPUs"),
                         FormatDuration(Ns(w.end_ns - w.begin_ns))));
  if (about.whole_us)
    says->Note(
        "times are whole microseconds; perf script --ns prints them exactly");
  if (about.odd_lines > 0)
    says->Note(fmt::format(
        "{} of scheduler events could not be read and {} left out ({})",
        FormatCounted(about.odd_lines, "line", "lines"),
        about.odd_lines == 1 ? "was" : "were", about.first_odd));
  if (about.no_events > 0)
    says->Note(fmt::format(
        "{} no event of perf and {} left out ({}); events may be missing there",
        about.no_events == 1 ? std::string("1 line is")
                             : FormatCount(about.no_events) + " lines are",
        about.no_events == 1 ? "was" : "were", about.first_no_event));
  if (!about.cut.empty())
    says->Note(fmt::format("the text was cut {}: what came after is missing; "
                           "write it or copy it again",
                           about.cut));
}

// What one file, or two that belong together, hold.
struct Inputs {
  std::optional<import::Events> calls;
  std::optional<import::SchedEvents> sched;
  std::string calls_path, sched_path;
};

Status ReadInput(const std::string& path, const Io& io, Inputs* in) {
  INGERO_ASSIGN_OR_RETURN(const import::Format format, import::FormatOf(path));
  const bool sched = format == import::Format::kPerfSched;
  if (sched ? in->sched.has_value() : in->calls.has_value())
    return Status::Error(
        path + ": is of the same kind as " +
        (sched ? in->sched_path : in->calls_path) +
        "; two files are imported together where one has CUDA calls and the "
        "other is perf's");
  Progress progress(io);
  const auto update = [&](double fraction, uint64_t read) {
    progress.Update(
        "reading " + std::filesystem::path(path).filename().string(), fraction,
        read);
  };
  if (sched) {
    INGERO_ASSIGN_OR_RETURN(in->sched, import::ReadPerfSched(path, update));
    in->sched_path = path;
  } else {
    INGERO_ASSIGN_OR_RETURN(in->calls, import::Read(path, update));
    in->calls_path = path;
  }
  return {};
}

Status WriteInputs(Inputs in, const std::string& folder, Says* says) {
  import::Placement placement;
  const bool both = in.calls && in.sched;
  if (in.sched) {
    import::ThreadsOf threads_of;
    if (both) {
      INGERO_RETURN_IF_ERROR(import::CheckTogether(
          *in.calls, in.calls_path, *in.sched, in.sched_path));
      for (const import::HostCall& c : in.calls->calls)
        threads_of.emplace(c.tid, c.pid);
      for (const import::HostRange& r : in.calls->ranges)
        threads_of.emplace(r.tid, r.pid);
      if (in.calls->host.empty()) in.calls->host = in.sched->host;
    }
    import::SchedEvents about;
    about.whole_us = in.sched->whole_us;
    about.odd_lines = in.sched->odd_lines;
    about.first_odd = in.sched->first_odd;
    about.no_events = in.sched->no_events;
    about.first_no_event = in.sched->first_no_event;
    about.cut = in.sched->cut;
    const auto written = import::WriteKernelStream(
        std::move(*in.sched), threads_of, folder, &placement);
    if (!written.ok()) return written.status();
    SaySched(about, *written, says);
  }
  if (in.calls) {
    const auto left_out = in.calls->left_out;
    const std::string source = in.calls->source;
    const auto written = import::WriteStreams(
        std::move(*in.calls), folder, both ? &placement : nullptr);
    if (!written.ok()) return written.status();
    SayCalls(source, *written, left_out, says);
  }
  return {};
}

}  // namespace

int RunImport(const Args& args, const Io& io) {
  std::vector<std::string> paths;
  std::string output;
  bool quiet = false;
  CLI::App app(kHelp, "ingero import");
  app.footer(kExamples);
  app.add_option("file", paths,
                 "What torch.profiler, nsys export or perf script\n"
                 "wrote; or one with CUDA calls and perf's of the\n"
                 "same time")
      ->type_name("FILE");
  app.add_option("-o,--output", output,
                 "Store to write. Default: the first file's name\n"
                 "with .store, in the current folder")
      ->type_name("PATH");
  app.add_flag("-q,--quiet", quiet, "Print nothing but errors");
  if (auto status = Parse(app, args, io)) return *status;
  if (paths.empty())
    return UsageError(io, "import",
                      "give the file of a profiler: ingero import trace.json");
  if (paths.size() > 2)
    return UsageError(io, "import",
                      "give one file, or two that belong together: one with "
                      "CUDA calls and one of perf");
  if (output.empty()) output = StoreNameFor(paths.front());

  const auto fail = [&](const Status& status) {
    PrintError(io, "import", status.message());
    return kFailed;
  };
  if (const Status can = merge::CheckNewStore(output); !can.ok())
    return fail(can);
  SayWhenStopped("ingero import: stopped; nothing was written");
  Inputs inputs;
  for (const std::string& path : paths)
    if (const Status read = ReadInput(path, io, &inputs); !read.ok())
      return fail(read);
  auto scratch = MakeScratchFolder(output + ".import");
  if (!scratch.ok()) return fail(scratch.status());
  Says says(io);
  if (const Status written =
          WriteInputs(std::move(inputs), scratch->path(), &says);
      !written.ok())
    return fail(written);
  merge::MergeOptions options;
  options.dirs = {scratch->path()};
  options.output = output;
  const auto store =
      MergeWithProgress(options, merge::ListRecordings(options.dirs), io);
  if (!store.ok()) return fail(store.status());
  if (quiet) return kDone;
  says.Line("store", fmt::format("{} ({})",
                                 SanitizeForTerminal(store->store_path),
                                 FormatBytes(store->store_bytes)));
  for (const std::string& note : store->notes)
    says.Note(SanitizeForTerminal(note));
  says.Line("next",
            fmt::format("ingero explain --db {}",
                        SanitizeForTerminal(ShellWord(store->store_path))));
  Write(io.err, says.text());
  return kDone;
}

}  // namespace ingero::cli
