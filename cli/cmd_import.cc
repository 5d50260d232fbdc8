// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>

#include "base/file_error.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/merging.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "import/import.h"
#include "merge/store_output.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Make a store of what another profiler recorded, so that explain, report,\n"
    "query and the rest can be asked about it: a trace of torch.profiler\n"
    "(export_chrome_trace; JSON, plain or gzipped) or an SQLite export of Nsight\n"
    "Systems. It has CUDA calls, what the GPU did and marked ranges; whether\n"
    "threads had a CPU is not in it, so causes beyond the program's own code are\n"
    "not evaluated.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero import trace.json.gz\n"
    "  ingero explain --db trace.store\n"
    "  nsys export --type sqlite report1.nsys-rep && ingero import "
    "report1.sqlite\n"
    "  ingero import rank0.json -o rank0.store";

// A folder of its own, removed with all in it.
class ScratchFolder {
 public:
  static Result<ScratchFolder> Make(const std::string& beside) {
    std::string path = beside + ".import-XXXXXX";
    if (mkdtemp(path.data()) == nullptr)
      return CannotWrite(path, errno);
    return ScratchFolder(path);
  }
  ScratchFolder(ScratchFolder&& other) noexcept
      : path_(std::exchange(other.path_, "")) {}
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  explicit ScratchFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// "a/trace.json.gz" -> "trace.store".
std::string StoreNameFor(const std::string& path) {
  std::filesystem::path name = std::filesystem::path(path).filename();
  for (const char* extension : {".gz", ".json", ".sqlite", ".pt", ".trace"})
    if (name.extension() == extension && !name.stem().empty())
      name = name.stem();
  return name.string() + ".store";
}

void Print(const import::Events& events, const import::Written& w,
           const std::map<std::string, uint64_t>& left_out,
           const merge::MergeSummary& store, const Io& io) {
  Page page(io.columns, io.err_is_terminal && !io.no_color);
  const auto line = [&](std::string_view label, std::string_view text) {
    page.Labeled(label, text, 0, 12);
  };
  line("imported",
       fmt::format("{}: {} of {}, {} of the GPU, {}", events.source,
                   FormatCounted(w.calls, "call", "calls"),
                   FormatCounted(w.processes, "process", "processes"),
                   FormatCounted(w.gpu_activities, "activity", "activities"),
                   FormatCounted(w.ranges, "range", "ranges")));
  line("store", fmt::format("{} ({})", SanitizeForTerminal(store.store_path),
                            FormatBytes(store.store_bytes)));
  if (w.gpu_activities == 0)
    line(Toned(Tone::kYellow, "note"),
         "the file does not say what the GPU did, so whether it had work is "
         "concluded from calls, as for what ingero records");
  if (w.unmatched > 0)
    line(Toned(Tone::kYellow, "note"),
         fmt::format("{} of the GPU without the call that gave it (from before "
                     "the trace began, or lost)",
                     FormatCounted(w.unmatched, "activity", "activities")));
  for (const auto& [name, count] : left_out)
    line("left out", fmt::format("{} {}", FormatCount(count),
                                 SanitizeForTerminal(name)));
  for (const std::string& note : store.notes)
    line(Toned(Tone::kYellow, "note"), SanitizeForTerminal(note));
  line("next", fmt::format("ingero explain --db {}",
                           SanitizeForTerminal(store.store_path)));
  Write(io.err, page.text());
}

}  // namespace

int RunImport(const Args& args, const Io& io) {
  std::string path, output;
  bool quiet = false;
  CLI::App app(kHelp, "ingero import");
  app.footer(kExamples);
  app.add_option("file", path, "What torch.profiler or nsys export wrote")
      ->type_name("FILE");
  app.add_option("-o,--output", output,
                 "Store to write. Default: the file's name with\n"
                 ".store, in the current folder")
      ->type_name("PATH");
  app.add_flag("-q,--quiet", quiet, "Print nothing but errors");
  if (auto status = Parse(app, args, io)) return *status;
  if (path.empty())
    return UsageError(io, "import",
                      "give the file of a profiler: ingero import trace.json");
  if (output.empty()) output = StoreNameFor(path);

  const auto fail = [&](const Status& status) {
    PrintError(io, "import", status.message());
    return kFailed;
  };
  if (const Status can = merge::CheckStoreOutput(output); !can.ok())
    return fail(can);
  std::error_code error;
  if (std::filesystem::exists(output, error))
    return fail(Status::Error(
        output + ": exists; name another store with -o, or remove it"));
  auto events = [&] {
    Progress progress(io);
    return import::Read(path, [&](double fraction, uint64_t read) {
      progress.Update("reading " + std::filesystem::path(path).filename()
                                       .string(),
                      fraction, read);
    });
  }();
  if (!events.ok()) return fail(events.status());
  auto scratch = ScratchFolder::Make(output);
  if (!scratch.ok()) return fail(scratch.status());
  const auto left_out = events->left_out;
  import::Events about;
  about.source = events->source;
  auto written = import::WriteStreams(std::move(*events), scratch->path());
  if (!written.ok())
    return fail(Status::Error(path + ": " + written.status().message()));
  merge::MergeOptions options;
  options.dirs = {scratch->path()};
  options.output = output;
  const auto store =
      MergeWithProgress(options, merge::ListRecordings(options.dirs), io);
  if (!store.ok()) return fail(store.status());
  if (!quiet) Print(about, *written, left_out, *store, io);
  return kDone;
}

}  // namespace ingero::cli
