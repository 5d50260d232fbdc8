// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/text.h"
#include "base/trace_dir.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/render/json.h"
#include "cli/render/layout.h"
#include "cli/render/words.h"
#include "cli/stop.h"
#include "cli/time_window.h"
#include "merge/store_trace.h"
#include "merge/store_upkeep.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Look after a store: what it takes and why, whether it is whole, and how to\n"
    "make it smaller. info and check read the newest store unless one is named.\n"
    "\n"
    "  info     its sizes, table by table, its versions and what it is of\n"
    "  check    read all of it: checksums, keys, times, counts; what is damaged,\n"
    "           and which times can still be asked about\n"
    "  compact  write it anew without slack, where that gains anything\n"
    "  prune    keep the last part (--keep) and drop what was before\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero store info\n"
    "  ingero store check run1.store\n"
    "  ingero store prune run1.store --keep 1h\n"
    "  ingero store prune run1.store --keep 10m -o last.store   the old one "
    "stays\n"
    "\n"
    "A new file takes the old one's place when it is whole and on disk; readers\n"
    "keep the one they opened. Exit status of check: 0 whole, 1 damaged.";

constexpr size_t kDamageShown = 10, kWholeShown = 5;

struct Asked {
  std::string action, path, output, keep;
  bool json = false;
};

int Fail(const Io& io, const Status& status) {
  PrintError(io, "store", status.message());
  return kFailed;
}

std::string When(const merge::TraceReader& trace, Ns t) {
  const int64_t begin = trace.facts().wall_clock_at_span_begin_ns;
  const std::string offset = FormatOffset(t - trace.span().begin);
  if (begin == 0) return offset;
  return fmt::format("{} ({})", offset,
                     FormatTimeOfDay(begin + (t - trace.span().begin).value));
}

// ---- info -------------------------------------------------------------------

int Info(const Asked& asked, const Io& io) {
  auto opened = merge::OpenTrace(asked.path);
  if (!opened.ok()) return Fail(io, opened.status());
  const merge::TraceReader& trace = **opened;
  auto sizes = merge::MeasureStore(trace.file());
  if (!sizes.ok())
    return Fail(io, Status(sizes.status()).In(trace.file().path()));
  const analysis::TraceFacts facts = trace.facts();
  uint64_t pages = 0;
  for (const merge::TableSize& t : *sizes) pages += t.page_bytes;
  const uint64_t file = trace.file().size();
  const uint64_t rest = file - std::min(file, pages);
  const double per_event =
      facts.events == 0 ? 0
                        : static_cast<double>(file) /
                              static_cast<double>(facts.events);
  const int64_t pruned = trace.Fact("pruned.events");

  if (asked.json) {
    Json out = {
        {"schema", {{"name", "ingero.store_info"}, {"version", 1}}},
        {"store", trace.file().path()},
        {"bytes", file},
        {"store_version", trace.Fact("schema.version")},
        {"analysis_version", trace.Fact("analysis.version")},
        {"written_by", facts.tool_version},
        {"recording", trace.FactText("recording")},
        {"host", facts.host},
        {"boot_id", facts.boot_id},
        {"cpus", facts.cpus},
        {"span",
         {{"begin_ns", trace.span().begin.value},
          {"end_ns", trace.span().end.value},
          {"begin_real_ns", facts.wall_clock_at_span_begin_ns}}},
        {"events", facts.events},
        {"bytes_per_event", per_event},
        {"pruned_events", pruned},
        {"processes", trace.processes().size()},
        {"threads", trace.threads().size()},
        {"missing", facts.missing}};
    out["tables"] = Json::array();
    for (const merge::TableSize& t : *sizes)
      out["tables"].push_back({{"name", t.name},
                               {"rows", t.rows},
                               {"blocks", t.blocks},
                               {"bytes", t.bytes},
                               {"page_bytes", t.page_bytes}});
    out["other_bytes"] = rest;
    out["streams"] = Json::array();
    for (const merge::StoredStream& s : trace.streams())
      out["streams"].push_back({{"file", s.file},
                                {"kind", s.kernel ? "kernel" : s.code ? "code" : "cuda"},
                                {"pid", s.pid},
                                {"events", s.events},
                                {"bytes", s.bytes},
                                {"nesting_violations", s.nesting_violations},
                                {"begin_ns", s.span.begin.value},
                                {"end_ns", s.span.end.value}});
    Write(io.out,
          out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return FinishOutput(io, "store") ? kDone : kFailed;
  }

  Page page(io.columns, io.out_is_terminal && !io.no_color);
  constexpr int kLabel = 11;
  const auto fact = [&](std::string_view label, const std::string& text) {
    page.Labeled(label, SanitizeForTerminal(text), 0, kLabel, 0,
                 /*cut=*/false);
  };
  fact("Store", fmt::format("{} ({})", trace.file().path(), FormatBytes(file)));
  fact("Version",
       fmt::format("store {}, analysis {}, written by ingero {}",
                   trace.Fact("schema.version"), trace.Fact("analysis.version"),
                   facts.tool_version));
  fact("Recording",
       fmt::format("{} of {} ({} CPUs), boot {}", trace.FactText("recording"),
                   facts.host, facts.cpus, facts.boot_id));
  const Ns length = trace.span().length();
  fact("Span",
       facts.wall_clock_at_span_begin_ns == 0
           ? FormatDuration(length)
           : fmt::format(
                 "{}, {} to {} {}", FormatDuration(length),
                 FormatDateTime(facts.wall_clock_at_span_begin_ns),
                 FormatTimeOfDay(facts.wall_clock_at_span_begin_ns +
                                 length.value),
                 FormatTimeZone(facts.wall_clock_at_span_begin_ns)));
  fact("Events", fmt::format("{}, {:.2f} bytes each with all that is made of "
                             "them",
                             FormatCount(facts.events), per_event));
  fact("Seen", fmt::format(
                   "{}, {}",
                   FormatCounted(trace.processes().size(), "process",
                                 "processes"),
                   FormatCounted(trace.threads().size(), "thread", "threads")));
  for (const std::string& stream : facts.streams) fact("Stream", stream);
  for (const std::string& missing : facts.missing) fact("Missing", missing);
  Table table;
  table.header = {"Table", "Rows", "Blocks", "Size", "Bytes/row", "Share"};
  const auto share = [&](uint64_t bytes) {
    return FormatPercent(static_cast<double>(bytes) /
                         static_cast<double>(std::max<uint64_t>(1, file)));
  };
  for (const merge::TableSize& t : *sizes)
    table.rows.push_back(
        {t.name, FormatCount(t.rows), FormatCount(t.blocks),
         FormatBytes(t.page_bytes),
         t.rows == 0 ? "-"
                     : fmt::format("{:.1f}", static_cast<double>(t.page_bytes) /
                                                 static_cast<double>(t.rows)),
         share(t.page_bytes)});
  table.rows.push_back(
      {"keys, free pages", "-", "-", FormatBytes(rest), "-", share(rest)});
  page.Blank();
  page.Add(table, 0);
  Write(io.out, page.text());
  return FinishOutput(io, "store") ? kDone : kFailed;
}

// ---- check ------------------------------------------------------------------

int Check(const Asked& asked, const Io& io) {
  Progress progress(io);
  auto checked = merge::CheckStore(
      asked.path, [&](double fraction, uint64_t rows) {
        progress.Update("checking", fraction, rows);
      });
  progress.Finish();
  if (!checked.ok()) return Fail(io, checked.status());
  const merge::StoreCheck& c = *checked;
  if (asked.json) {
    Json out = {{"schema", {{"name", "ingero.store_check"}, {"version", 1}}},
                {"store", asked.path},
                {"ok", c.ok()},
                {"blocks", c.blocks},
                {"rows", c.rows},
                {"bytes", c.bytes},
                {"damaged_blocks", c.damaged_blocks},
                {"problems", c.problems}};
    out["damage"] = Json::array();
    for (const merge::StoreDamage& d : c.damage)
      out["damage"].push_back({{"table", d.table},
                               {"owner", d.owner},
                               {"begin_ns", d.range.begin.value},
                               {"end_ns", d.range.end.value},
                               {"what", d.what}});
    out["whole"] = Json::array();
    for (const Interval& i : c.whole)
      out["whole"].push_back(
          {{"begin_ns", i.begin.value}, {"end_ns", i.end.value}});
    Write(io.out,
          out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else if (c.ok()) {
    Page page(io.columns, false);
    page.Paragraph(SanitizeForTerminal(asked.path) +
                   fmt::format(": whole: {} blocks with {} rows, {}; checksums, "
                               "keys, times and counts are as they were written.",
                               FormatCount(c.blocks), FormatCount(c.rows),
                               FormatBytes(c.bytes)),
                   0, 0, /*cut=*/false);
    Write(io.out, page.text());
  } else {
    Page page(io.columns, false);
    for (const std::string& problem : c.problems)
      page.Paragraph(SanitizeForTerminal(problem), 0, 2, /*cut=*/false);
    for (size_t i = 0; i < c.damage.size() && i < kDamageShown; ++i) {
      const merge::StoreDamage& d = c.damage[i];
      const bool placed = c.span.length() > Ns(0) &&
                          d.range.begin >= c.span.begin - Ns(3'600'000'000'000);
      page.Paragraph(
          fmt::format("damaged: {}, owner {}{}: {}", d.table, d.owner,
                      placed ? fmt::format(
                                   ", {} to {}",
                                   FormatOffset(d.range.begin - c.span.begin),
                                   FormatOffset(d.range.end - c.span.begin))
                             : std::string(),
                      SanitizeForTerminal(d.what)),
          0, 2);
    }
    if (c.damaged_blocks > kDamageShown)
      page.Paragraph(fmt::format("and {} damaged blocks more{}",
                                 FormatCount(c.damaged_blocks - kDamageShown),
                                 c.damaged_blocks <= merge::kMaxDamage
                                     ? "; --json lists them"
                                     : ""));
    if (c.whole.empty()) {
      page.Paragraph("Nothing of it can be relied on.");
    } else {
      for (size_t i = 0; i < c.whole.size() && i < kWholeShown; ++i)
        page.Labeled(i == 0 ? "whole" : "",
                     fmt::format("--from {:.3f}s --to {:.3f}s",
                                 static_cast<double>(
                                     (c.whole[i].begin - c.span.begin).value) /
                                     1e9,
                                 static_cast<double>(
                                     (c.whole[i].end - c.span.begin).value) /
                                     1e9),
                     0, 10);
      if (c.whole.size() > kWholeShown)
        page.Paragraph(fmt::format("and {} stretches more; --json lists them",
                                   c.whole.size() - kWholeShown));
    }
    Write(io.out, page.text());
  }
  if (!FinishOutput(io, "store")) return kFailed;
  if (c.ok()) return kDone;
  return Fail(io, Status::Error(fmt::format(
                      "{}: damaged ({} of {} blocks); run `ingero merge` again "
                      "where the streams are still there",
                      asked.path, FormatCount(c.damaged_blocks),
                      FormatCount(c.blocks))));
}

// ---- compact and prune ------------------------------------------------------

int Report(const merge::Rewritten& r, const std::string& told, const Io& io) {
  Page page(io.columns, false);
  page.Paragraph(told, 0, 2);
  page.Paragraph(
      fmt::format("{}: {} before, {} now; {} and {} rows in {} and {} blocks",
                  SanitizeForTerminal(r.path), FormatBytes(r.bytes_before),
                  FormatBytes(r.bytes_after), FormatCount(r.rows_before),
                  FormatCount(r.rows_after), FormatCount(r.blocks_before),
                  FormatCount(r.blocks_after)),
      0, 2, /*cut=*/false);
  Write(io.out, page.text());
  return FinishOutput(io, "store") ? kDone : kFailed;
}

int NotChanged(const merge::Rewritten& r, const std::string& why,
               const Io& io) {
  Page page(io.columns, false);
  page.Paragraph(why + (r.changed ? fmt::format(" {} ({}) is a copy of it.",
                                                SanitizeForTerminal(r.path),
                                                FormatBytes(r.bytes_after))
                                  : std::string()),
                 0, 2, /*cut=*/false);
  Write(io.out, page.text());
  return FinishOutput(io, "store") ? kDone : kFailed;
}

int Compact(const Asked& asked, const Io& io) {
  Progress progress(io);
  auto done = merge::CompactStore(
      asked.path, asked.output, [&](double fraction, uint64_t rows) {
        progress.Update("compacting", fraction, rows);
      });
  progress.Finish();
  if (!done.ok()) return Fail(io, done.status());
  if (done->copied)
    return NotChanged(
        *done, "Nothing to gain: its blocks are full and its pages are used.",
        io);
  return Report(*done, "Compacted: blocks of few rows joined, slack left out.",
                io);
}

int Prune(const Asked& asked, const Io& io) {
  if (asked.keep.empty())
    return UsageError(io, "store",
                      "prune: say how much to keep, for example --keep 1h");
  auto keep = ParseDuration(asked.keep);
  if (!keep.ok() || *keep <= Ns(0))
    return UsageError(io, "store",
                      fmt::format("--keep: '{}' is not a duration; write for "
                                  "example 1h, 90m or 30s",
                                  asked.keep));
  Progress progress(io);
  auto done = merge::PruneStore(
      asked.path, *keep, asked.output, [&](double fraction, uint64_t rows) {
        progress.Update("pruning", fraction, rows);
      });
  progress.Finish();
  if (!done.ok()) return Fail(io, done.status());
  if (done->copied)
    return NotChanged(*done,
                      fmt::format("Nothing to drop: the recording is {} long.",
                                  FormatDuration(done->span.length())),
                      io);
  auto opened = merge::OpenTrace(done->path);
  if (!opened.ok()) return Fail(io, opened.status());
  return Report(*done,
                fmt::format("Keeps the last {}, from {} on; {} before are gone.",
                            FormatDuration(done->span.length()),
                            When(**opened, done->span.begin),
                            FormatDuration(done->span.begin -
                                           done->span_before.begin)),
                io);
}

}  // namespace

int RunStore(const Args& args, const Io& io) {
  Asked asked;
  CLI::App app(kHelp, "ingero store");
  app.footer(kExamples);
  app.add_option("action", asked.action, "info, check, compact or prune")
      ->type_name("ACTION");
  app.add_option("path,--db", asked.path, "Store (a folder, or the file in it)")
      ->type_name("DB");
  app.add_option("--keep", asked.keep, "prune: how much, counted from the end")
      ->type_name("DURATION");
  app.add_option("-o,--output", asked.output,
                 "compact, prune: write a new store and leave the\n"
                 "old one as it is")
      ->type_name("PATH");
  app.add_flag("--json", asked.json, "info, check: for programs");
  if (auto status = Parse(app, args, io)) return *status;

  const std::string& a = asked.action;
  const bool reads = a == "info" || a == "check";
  if (!reads && a != "compact" && a != "prune")
    return UsageError(io, "store",
                      a.empty() ? "say what to do: info, check, compact or "
                                  "prune"
                                : fmt::format("'{}' is not one of info, check, "
                                              "compact and prune",
                                              a));
  if (reads && (!asked.keep.empty() || !asked.output.empty()))
    return UsageError(io, "store", a + " has no --keep and no -o");
  if (a == "compact" && !asked.keep.empty())
    return UsageError(io, "store", "compact keeps everything: --keep is prune's");
  if (!reads && asked.json)
    return UsageError(io, "store", a + " has no --json");
  if (!reads && asked.path.empty())
    return UsageError(io, "store",
                      a + " changes a store: name it, for example 'ingero "
                          "store " + a + " run1.store'");
  if (asked.path.empty()) {
    auto newest = merge::FindNewestStore(DefaultTraceDirs());
    if (!newest.ok()) return Fail(io, newest.status());
    asked.path = newest->path;
    if (!newest->note.empty()) PrintError(io, "store", "note: " + newest->note);
  }
  if (a == "info") return Info(asked, io);
  if (a == "check") return Check(asked, io);
  SayWhenStopped("ingero store: stopped; the store is as it was");
  return a == "compact" ? Compact(asked, io) : Prune(asked, io);
}

}  // namespace ingero::cli
