// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "base/text.h"

namespace ingero::kernel_probe {
namespace {

struct Number {
  double value;
  std::string_view suffix;
};

std::optional<Number> SplitNumber(std::string_view text) {
  Number n{};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), n.value);
  if (error != std::errc() || !(n.value > 0) || n.value > 1e15)
    return std::nullopt;
  n.suffix = text.substr(static_cast<size_t>(end - text.data()));
  return n;
}

constexpr const char* kFooter = R"(
Records context switches with states, syscalls and wakers, page allocations,
births and ends of tasks, and once a second the state of the system, until
Ctrl-C. One stream file per run lands in the trace folder; `ingero merge` reads
it from there.

Examples:
  sudo ingero-kprobe                      until Ctrl-C
  sudo ingero-kprobe --duration 60s
  sudo ingero-kprobe --buffer 16M         where losses were shown
  sudo ingero-kprobe --check              does it work on this kernel?
  sudo ingero-kprobe --ready-file /tmp/ready &   for scripts

Exit status: 0 done, 1 failed, 2 usage.)";

}  // namespace

Result<Ns> ParseDuration(std::string_view text) {
  const auto n = SplitNumber(text);
  double unit = 0;
  if (n) {
    if (n->suffix.empty() || n->suffix == "s") unit = 1e9;
    else if (n->suffix == "ms") unit = 1e6;
    else if (n->suffix == "m" || n->suffix == "min") unit = 60e9;
    else if (n->suffix == "h") unit = 3600e9;
  }
  if (unit == 0 || n->value * unit > 9e18 || n->value * unit < 1)
    return Status::Error("'" + std::string(text) +
                         "' is not a duration; use for example 60s, 5m, 1h");
  return Ns(static_cast<int64_t>(n->value * unit));
}

Result<uint64_t> ParseBytes(std::string_view text) {
  const auto n = SplitNumber(text);
  double unit = 0;
  if (n) {
    std::string_view s = n->suffix;
    if (s.empty() || s == "B") unit = 1;
    else if (s == "K" || s == "KiB" || s == "k") unit = 1 << 10;
    else if (s == "M" || s == "MiB") unit = 1 << 20;
    else if (s == "G" || s == "GiB") unit = 1 << 30;
  }
  if (unit == 0 || n->value * unit > 9e18 || n->value * unit < 1)
    return Status::Error("'" + std::string(text) +
                         "' is not a size; use for example 64K, 4M, 1G");
  return static_cast<uint64_t>(n->value * unit);
}

Result<uint64_t> RingBytes(uint64_t asked) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (asked > kMaxRingBytes)
    return Status::Error(FormatBytes(asked) + " per CPU is too much; at most " +
                         FormatBytes(kMaxRingBytes));
  return std::bit_ceil(std::max(asked, page));
}

Status CheckReadyFile(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string folder = slash == path.npos ? "."
                             : slash == 0       ? "/"
                                                : path.substr(0, slash);
  if (access((folder + "/.").c_str(), W_OK | X_OK) != 0)
    return Status::Errno("make a file in " + folder, errno);
  struct stat st;
  if (path.ends_with('/') ||
      (lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)))
    return Status::Error(path + " is a folder; name a file");
  return {};
}

ParsedArgs ParseArgs(int argc, char** argv) {
  ParsedArgs parsed;
  Options& o = parsed.options;
  std::string duration, buffer, pages;
  CLI::App app("Kernel companion of ingero: who runs, who waits, and for what.",
               "ingero-kprobe");
  app.footer(kFooter);
  app.set_version_flag("--version", "ingero-kprobe " INGERO_VERSION);
  app.add_option("--duration", duration, "End after this time (60s, 5m)")
      ->type_name("TIME");
  app.add_option("--buffer", buffer,
                 "Ring buffer per CPU (default 4M, smallest one page)")
      ->type_name("SIZE");
  app.add_option("--dir", o.dir, "Trace folder (default: the one merge reads)")
      ->type_name("DIR");
  app.add_option("--ready-file", o.ready_file,
                 "Create this file once recording")
      ->type_name("PATH");
  app.add_flag("--check", o.check,
               "Say of each probe whether it works here; record nothing");
  app.add_option("--pages", pages,
                 "Page allocations: 'counts' by thread (default), or 'raw', "
                 "each an event of its own, which makes a fresh page some 130 "
                 "ns dearer for the program and needs a larger --buffer")
      ->type_name("HOW")
      ->check(CLI::IsMember({"counts", "raw"}));
  app.add_flag("--quiet", o.quiet,
               "Only errors, losses and the line 'recording'");
  app.add_flag("--verbose", o.verbose, "Also what libbpf says");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      app.exit(e);
      parsed.exit_status = 0;
      return parsed;
    }
    std::fprintf(stderr, "ingero-kprobe: %s; see --help\n", e.what());
    parsed.exit_status = 2;
    return parsed;
  }
  auto usage = [&](const char* option, const Status& status) {
    std::fprintf(stderr, "ingero-kprobe: %s: %s\n", option,
                 status.message().c_str());
    parsed.exit_status = 2;
    return parsed;
  };
  o.raw_pages = pages == "raw";
  if (!duration.empty()) {
    auto d = ParseDuration(duration);
    if (!d.ok()) return usage("--duration", d.status());
    o.duration = *d;
  }
  if (!buffer.empty()) {
    auto asked = ParseBytes(buffer);
    if (!asked.ok()) return usage("--buffer", asked.status());
    auto rounded = RingBytes(*asked);
    if (!rounded.ok()) return usage("--buffer", rounded.status());
    o.ring_bytes = *rounded;
    if (*rounded != *asked)
      o.note = "--buffer " + buffer + ": rounded up to " +
               FormatBytes(*rounded) + " (a power of two of at least a page)";
  }
  return parsed;
}

}  // namespace ingero::kernel_probe
