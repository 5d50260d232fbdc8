// SPDX-License-Identifier: Apache-2.0
#include "cli/companion.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <chrono>
#include <cstdio>
#include <sstream>

#include "cli/program.h"

namespace ingero::cli {
namespace {

// Loading takes under a second; many times that on a host that is overloaded.
constexpr std::chrono::seconds kMostUntilReady{60};
constexpr size_t kMaxSaidBytes = 64 << 10;
constexpr std::string_view kName = "ingero-kprobe: ";
constexpr const char* kLock = "/ingero-kprobe.lock";
// Between its lock and its first event an ingero-kprobe takes a tenth of this
// where it has to share its CPU.
constexpr std::chrono::seconds kMostUntilOthers{10};

// What comes before the companion's path to run it as root: nothing, or sudo.
Result<std::vector<std::string>> AsRoot(const std::string& companion,
                                        bool may_ask) {
  if (geteuid() == 0 ||
      getxattr(companion.c_str(), "security.capability", nullptr, 0) > 0)
    return std::vector<std::string>();
  const std::string sudo = FindInPath("sudo");
  if (sudo.empty())
    return Status::Error("ingero-kprobe needs root, and there is no sudo");
  // Whether it may run this one program, without running it in earnest.
  INGERO_ASSIGN_OR_RETURN(
      const ProgramResult allowed,
      RunProgram({sudo, "-n", "--", companion, "--version"}, {}, 10));
  const std::vector<std::string> prefix = {sudo, "-n", "--"};
  if (allowed.exit_status == 0) return prefix;
  if (!may_ask)
    return Status::Error(
        "ingero-kprobe needs root, and there is no terminal to ask for sudo's "
        "password on");
  INGERO_ASSIGN_OR_RETURN(Fd nothing, OpenFile("/dev/null", O_WRONLY));
  StartOptions options;
  options.out = nothing.get();
  INGERO_ASSIGN_OR_RETURN(
      const pid_t asked,
      StartProgram({sudo, "-p",
                    "ingero: sudo password of %p, to record the scheduler's "
                    "side (Ctrl-D: without): ",
                    "--", companion, "--version"},
                   options));
  if (WaitForProgram(asked) != 0)
    return Status::Error("ingero-kprobe needs root, and sudo did not allow it");
  return prefix;
}

// False: nothing more will come.
bool ReadAvailable(int fd, std::string* to) {
  char chunk[4096];
  while (true) {
    const ssize_t n = read(fd, chunk, sizeof(chunk));
    if (n > 0) {
      to->append(chunk, static_cast<size_t>(n));
      if (to->size() > kMaxSaidBytes)
        to->erase(0, to->size() - kMaxSaidBytes);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    return n < 0 && errno == EAGAIN;
  }
}

}  // namespace

Result<Companion> Companion::Start(const std::string& dir,
                                   uint64_t buffer_bytes, bool may_ask) {
  const std::string path = FindCompanion();
  if (path.empty())
    return Status::Error("there is no ingero-kprobe beside ingero or in PATH");
  INGERO_ASSIGN_OR_RETURN(std::vector<std::string> argv,
                          AsRoot(path, may_ask));
  for (const char* word : {path.c_str(), "--supervised", "--quiet", "--dir",
                           dir.c_str()})
    argv.push_back(word);
  if (buffer_bytes > 0)
    argv.insert(argv.end(), {"--buffer", std::to_string(buffer_bytes)});

  INGERO_ASSIGN_OR_RETURN(Pipe in, MakePipe());
  INGERO_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  INGERO_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  StartOptions start;
  start.in = in.read.get();
  start.out = out.write.get();
  start.err = err.write.get();
  start.own_group = true;
  Companion companion;
  INGERO_ASSIGN_OR_RETURN(companion.pid_, StartProgram(argv, start));
  // Or its end would never show.
  in.read.reset();
  out.write.reset();
  err.write.reset();
  companion.in_ = std::move(in.write);
  companion.out_ = std::move(out.read);
  companion.err_ = std::move(err.read);
  for (const Fd* fd : {&companion.out_, &companion.err_})
    fcntl(fd->get(), F_SETFL, O_NONBLOCK);
  INGERO_RETURN_IF_ERROR(companion.WaitUntilReady());
  return companion;
}

Status Companion::WaitUntilReady() {
  const auto deadline = std::chrono::steady_clock::now() + kMostUntilReady;
  while (true) {
    Listen();
    if (ready_) return {};
    const bool late = std::chrono::steady_clock::now() > deadline;
    if (ended_ || late) {
      const std::vector<std::string> said = Stop();
      if (!said.empty())
        return Status::Error("ingero-kprobe: " + said.back());
      return Status::Error(late ? "ingero-kprobe did not begin to record"
                                : "ingero-kprobe ended before it recorded");
    }
    pollfd fds[] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
    (void)poll(fds, 2, 1000);
  }
}

void Companion::Listen() {
  if (!ReadAvailable(out_.get(), &counts_text_)) ended_ = true;
  (void)ReadAvailable(err_.get(), &said_);
  size_t end;
  while ((end = counts_text_.find('\n')) != std::string::npos) {
    unsigned long long switches, lost, bytes;
    if (std::sscanf(counts_text_.c_str(), "%llu %llu %llu", &switches, &lost,
                    &bytes) == 3) {
      counts_ = {switches, lost, bytes};
      ready_ = true;
    }
    counts_text_.erase(0, end + 1);
  }
}

std::vector<std::string> Companion::Stop() {
  in_.reset();
  // Until it has ended, so that it never waits for room to speak.
  while (true) {
    const bool more = ReadAvailable(err_.get(), &said_);
    (void)ReadAvailable(out_.get(), &counts_text_);
    if (!more) break;
    pollfd fd{err_.get(), POLLIN, 0};
    (void)poll(&fd, 1, 1000);
  }
  const int status = WaitForProgram(pid_);
  std::vector<std::string> said = Said();
  if (status > 128)
    said.push_back("was ended by signal " + std::to_string(status - 128) +
                   (status - 128 == SIGKILL
                        ? ", by somebody or for lack of memory ('dmesg | grep "
                          "-i oom' tells)"
                        : "") +
                   "; what threads did from then on is not known: record again");
  else if (status != 0 && said.empty())
    said.push_back("ended with status " + std::to_string(status) +
                   " without a word; 'ingero check' tries what it needs");
  return said;
}

std::vector<std::string> Companion::Said() const {
  std::vector<std::string> lines;
  std::istringstream text(said_);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with(kName)) line.erase(0, kName.size());
    if (!line.empty() && line != "recording") lines.push_back(line);
  }
  return lines;
}

namespace {

bool SomebodyHolds(const Fd& lock) {
  if (flock(lock.get(), LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  flock(lock.get(), LOCK_UN);
  return false;
}

}  // namespace

bool CompanionRecordsInto(const std::string& dir) {
  auto lock = OpenFile(dir + kLock, O_RDONLY | O_NOFOLLOW);
  return lock.ok() && SomebodyHolds(*lock);
}

bool WaitForOthersCompanion(const std::string& dir) {
  auto lock = OpenFile(dir + kLock, O_RDONLY | O_NOFOLLOW);
  if (!lock.ok()) return false;
  const auto deadline = std::chrono::steady_clock::now() + kMostUntilOthers;
  while (SomebodyHolds(*lock)) {
    char text[64] = "";
    if (pread(lock->get(), text, sizeof(text) - 1, 0) > 0 &&
        std::string_view(text).find("recording") != std::string_view::npos)
      return true;
    // It holds it, whatever it does meanwhile.
    if (std::chrono::steady_clock::now() > deadline) return true;
    (void)poll(nullptr, 0, 20);
  }
  return false;
}

}  // namespace ingero::cli
