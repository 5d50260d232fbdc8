// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>

#include "base/trace_dir.h"
#include "cli/command.h"
#ifdef INGERO_HAVE_HTTP
#include "cli/mcp/http.h"
#endif
#include "cli/mcp/protocol.h"
#include "cli/mcp/tools.h"
#include "cli/options.h"
#include "merge/store_trace.h"
#include "merge/trace_reader.h"

namespace ingero::cli {
namespace {

constexpr const char* kHelp =
    "Serve a store to an LLM, by the Model Context Protocol on stdin and\n"
    "stdout, or over HTTP. A client starts it; by hand it only waits for JSON.\n";

constexpr const char* kExamples =
    "Examples:\n"
    "  ingero mcp --db run1.store\n"
    "  ingero mcp                  the newest store, at each question\n"
    "  ingero mcp --http 127.0.0.1:8080\n"
    "  INGERO_MCP_TOKEN=... ingero mcp --http 0.0.0.0:8080\n"
    "\n"
    "In a client's configuration:\n"
    "  {\"mcpServers\": {\"ingero\": {\"command\": \"ingero\",\n"
    "     \"args\": [\"mcp\", \"--db\", \"/path/of/run1.store\"]}}}";

constexpr size_t kMaxMessageBytes = 64u << 20;
// An end of the input answers what was asked before it, within this.
constexpr auto kLastAnswers = std::chrono::milliseconds(1500);
constexpr auto kMost = std::chrono::seconds(120);  // for one question
// HTTP does not tell when who asked is gone, unless it listens for progress.
constexpr auto kMostOverHttp = std::chrono::seconds(20);
constexpr int kLookMs = 500;  // at the parent, and whether stdout is there

// stdout of the protocol: whole lines. Broken once a write failed.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  void Line(const std::string& text) {
    std::string line = text + "\n";
    std::string_view rest = line;
    while (!rest.empty() && !broken_) {
      const ssize_t n = write(fd_, rest.data(), rest.size());
      if (n > 0)
        rest.remove_prefix(static_cast<size_t>(n));
      else if (errno != EINTR)
        broken_ = true;
    }
  }
  bool broken() const { return broken_; }
  void Break() { broken_ = true; }
  int fd() const { return fd_; }

 private:
  int fd_;
  std::atomic<bool> broken_{false};
};

// Calls `line` for each line of stdin, CR and LF cut off, until there is no
// more, stdout is gone or the parent is.
void ReadLines(Output& output,
               const std::function<void(std::string_view)>& line,
               const std::function<void()>& too_long) {
  const pid_t parent = getppid();
  std::string pending;
  bool skipping = false;
  char chunk[1 << 16];
  while (!output.broken() && getppid() == parent) {
    // A closed reader of stdout shows as POLLERR, without a write.
    pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {output.fd(), 0, 0}};
    const int ready = poll(fds, 2, kLookMs);
    if (ready < 0 && errno != EINTR) return;
    if (ready <= 0) continue;
    if (fds[1].revents & (POLLERR | POLLNVAL)) {
      output.Break();
      return;
    }
    if (fds[0].revents == 0) continue;
    const ssize_t n = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) break;
    std::string_view rest(chunk, static_cast<size_t>(n));
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view piece = rest.substr(0, end);
      if (!skipping && pending.size() + piece.size() > kMaxMessageBytes) {
        skipping = true;
        pending.clear();
        too_long();
      }
      if (!skipping) pending += piece;
      if (end == rest.npos) break;
      rest.remove_prefix(end + 1);
      if (!skipping) {
        if (pending.ends_with('\r')) pending.pop_back();
        if (pending.find_first_not_of(" \t") != std::string::npos)
          line(pending);
      }
      skipping = false;
      pending.clear();
    }
  }
  // A last line without its end.
  if (!skipping && pending.find_first_not_of(" \t\r") != std::string::npos)
    line(pending);
}

// A client may start this before there is a store: no failure, but who looks at
// what it says finds out.
void SayWhatIsMissing(const std::string& db, const Io& io) {
  Status status;
  if (!db.empty())
    status = merge::OpenTrace(db).status();
  else
    status = merge::FindNewestStore(DefaultTraceDirs()).status();
  if (!status.ok())
    PrintError(io, "mcp",
               status.message() +
                   "; served all the same: until it is there, each tool call "
                   "answers with this");
}

#ifdef INGERO_HAVE_HTTP
int RunHttp(const std::string& db, const std::string& where, const Io& io) {
  auto address = ParseHttpAddress(where);
  if (!address.ok())
    return UsageError(io, "mcp", "--http: " + address.status().message());
  const char* set = std::getenv("INGERO_MCP_TOKEN");
  const std::string token = set == nullptr ? "" : set;
  if (token.empty() && !address->loopback())
    return UsageError(io, "mcp",
                      "--http: " + address->host +
                          " can be reached from other machines; set "
                          "INGERO_MCP_TOKEN to a secret that clients send as "
                          "'Authorization: Bearer ...', or use 127.0.0.1");
  SayWhatIsMissing(db, io);
  const mcp::Offer offer = mcp::MakeOffer(db, kMostOverHttp);
  const Status status =
      mcp::ServeHttp(offer, *address, token, [&](const std::string& url) {
        Write(io.err, "serving " + url + "\n");
        std::fflush(io.err);
      });
  if (status.ok()) return kDone;
  PrintError(io, "mcp", status.message());
  return kFailed;
}
#else
int RunHttp(const std::string&, const std::string&, const Io& io) {
  PrintError(io, "mcp",
             "--http: this build lacks it; install libcpp-httplib-dev and "
             "build again");
  return kFailed;
}
#endif

}  // namespace

int RunMcp(const Args& args, const Io& io) {
  std::string db, http;
  CLI::App app(kHelp, "ingero mcp");
  app.footer(kExamples);
  app.add_option("--db", db, "Store to serve. Default: the newest")
      ->type_name("PATH");
  app.add_option("--http", http,
                 "Serve over HTTP at this address instead of\n"
                 "stdin; beyond this machine only with a token\n"
                 "in INGERO_MCP_TOKEN")
      ->type_name("HOST:PORT");
  if (auto status = Parse(app, args, io)) return *status;
  std::signal(SIGPIPE, SIG_IGN);
  if (!http.empty()) return RunHttp(db, http, io);
  SayWhatIsMissing(db, io);
  if (isatty(STDIN_FILENO) == 1)
    PrintError(io, "mcp",
               "waiting for JSON-RPC on standard input; an MCP client starts "
               "this command (Ctrl-D ends it)");

  Output output(STDOUT_FILENO);
  const mcp::Offer offer = mcp::MakeOffer(db, kMost);
  {
    mcp::Session session(offer,
                         [&](const std::string& text) { output.Line(text); });
    ReadLines(
        output, [&](std::string_view text) { session.Receive(text); },
        [&] {
          session.Refuse(fmt::format("a message of more than {} MiB",
                                     kMaxMessageBytes >> 20));
        });
    if (!output.broken() && !session.WaitIdle(kLastAnswers))
      session.Abandon(
          "the input ended while this was being answered; leave standard "
          "input open until the answer is there");
  }
  if (output.broken()) {
    PrintError(io, "mcp", "nobody reads standard output any more");
    return kFailed;
  }
  return kDone;
}

}  // namespace ingero::cli
