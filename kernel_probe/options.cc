// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/options.h"

#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "base/ring_size.h"
#include "base/task_stat.h"
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
  sudo ingero-kprobe --tree train.py      of a busy host, one job only
  sudo ingero-kprobe --metrics 127.0.0.1:9753    for Prometheus, at /metrics
  sudo ingero-kprobe --otlp http://127.0.0.1:4318    for OpenTelemetry
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

Result<TreeRoot> ParseTree(std::string_view text) {
  TreeRoot root;
  if (!text.empty() &&
      text.find_first_not_of("0123456789") == std::string_view::npos) {
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), root.pid);
    if (error != std::errc() || root.pid == 0)
      return Status::Error("'" + std::string(text) + "' is not a PID");
    return root;
  }
  if (text.empty() || text.find('/') != std::string_view::npos)
    return Status::Error("'" + std::string(text) +
                         "' is neither a PID nor the name of a program as "
                         "'ps -o comm' shows it");
  root.comm = text.substr(0, INGERO_COMM_LEN - 1);
  return root;
}

Result<std::string> FindRoots(std::vector<TreeRoot>* tree) {
  std::string text;
  for (TreeRoot& root : *tree) {
    if (!text.empty()) text += " and ";
    if (root.pid == 0) {
      text += "the trees of processes named " + root.comm;
      continue;
    }
    const std::string pid = std::to_string(root.pid);
    const auto status = ReadWholeFile("/proc/" + pid + "/status");
    struct stat st;
    if (!status.ok() || stat(("/proc/" + pid + "/ns/pid").c_str(), &st) != 0)
      return Status::Error("--tree " + pid + ": there is no process " + pid);
    if (status->find("\nTgid:\t" + pid + "\n") == std::string::npos)
      return Status::Error("--tree " + pid +
                           ": is a thread; name its process");
    root.pid_namespace = static_cast<uint32_t>(st.st_ino);
    // "NSpid:", from the namespace of this /proc inwards; the last counts.
    root.inner_pid = root.pid;
    const size_t inner = status->find("\nNSpid:\t");
    if (inner != std::string::npos) {
      const size_t end = status->find('\n', inner + 1);
      const size_t last = status->rfind('\t', end) + 1;
      std::from_chars(status->data() + last, status->data() + status->size(),
                      root.inner_pid);
    }
    const auto stat = ReadTaskStat(root.pid);
    text += "the tree of PID " + pid;
    if (stat) text += " (" + stat->comm + ")";
  }
  return text;
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
  std::string duration, buffer, pages, metrics, otlp, otlp_every;
  std::vector<std::string> trees;
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
  app.add_option("--tree", trees,
                 "Record the switches of this process and its descendants "
                 "only, and of others those on CPUs that it waits for; a name "
                 "is all processes called so, now or later. What is left out "
                 "is counted. May be given up to 8 times")
      ->type_name("PID|NAME")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--supervised", o.supervised,
               "For a program that starts this one: end when standard input "
               "does, and print 'SWITCHES LOST BYTES' so far to standard output, "
               "once recording and then once a second");
  app.add_option("--metrics", metrics,
                 "Serve the recording's figures to Prometheus at this address "
                 "while it goes on, at /metrics; beyond this machine only with "
                 "a token in INGERO_METRICS_TOKEN, which clients send as "
                 "'Authorization: Bearer ...'")
      ->type_name("HOST:PORT");
  auto* const with_otlp = app.add_option(
      "--otlp", otlp,
      "Send the same figures to an OpenTelemetry collector (OTLP/HTTP, JSON; "
      "without TLS) while recording. Default: "
      "OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318; headers: "
      "OTEL_EXPORTER_OTLP_HEADERS");
  with_otlp->type_name("URL")->expected(0, 1);
  auto* const otlp_often =
      app.add_option("--otlp-every", otlp_every,
                     "How often (default: OTEL_METRIC_EXPORT_INTERVAL in ms, "
                     "else 10s)")
          ->type_name("TIME");
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
  if (trees.size() > INGERO_MAX_TREE_ROOTS)
    return usage("--tree", Status::Error("is given more than 8 times"));
  for (const std::string& text : trees) {
    auto root = ParseTree(text);
    if (!root.ok()) return usage("--tree", root.status());
    o.tree.push_back(*root);
  }
  if (!metrics.empty()) {
    auto address = ParseHttpAddress(metrics);
    if (!address.ok()) return usage("--metrics", address.status());
    const char* token = std::getenv("INGERO_METRICS_TOKEN");
    o.metrics_token = token == nullptr ? "" : token;
    if (o.metrics_token.empty() && !address->loopback())
      return usage("--metrics",
                   Status::Error(address->host +
                                 " can be reached from other machines; set "
                                 "INGERO_METRICS_TOKEN to a secret that clients "
                                 "send as 'Authorization: Bearer ...', or use "
                                 "127.0.0.1"));
    o.metrics = *address;
  }
  if (otlp_often->count() > 0 && with_otlp->count() == 0)
    return usage("--otlp-every", Status::Error("needs --otlp"));
  // Not its default: an empty shell variable, most likely.
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--otlp=")
      return usage("--otlp", Status::Error("'' is no URL, such as "
                                           "http://localhost:4318"));
  if (with_otlp->count() > 0) {
    auto to = ParseOtlp(otlp, [](const char* name) -> const char* {
      return std::getenv(name);
    });
    if (!to.ok()) return usage("--otlp", to.status());
    o.otlp = std::move(*to);
    if (!otlp_every.empty()) {
      auto every = ParseDuration(otlp_every);
      if (!every.ok()) return usage("--otlp-every", every.status());
      if (*every < kSecond / 10 || *every > kSecond * 86'400)
        return usage("--otlp-every",
                     Status::Error("'" + otlp_every +
                                   "' is not between 100ms and 24h"));
      o.otlp->every = *every;
    }
  }
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
