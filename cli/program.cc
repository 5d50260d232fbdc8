// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file.h"
#include "cli/stop.h"

namespace ingero::cli {
namespace {

constexpr size_t kMaxTextBytes = 1 << 20;

bool IsFile(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

// Of a script, as the kernel takes it from "#!PATH ARGUMENT" (execve(2)); "" of
// another file, or where it can't be read.
std::string InterpreterOf(const std::string& path) {
  std::ifstream file(path);
  std::string line(256, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (!line.starts_with("#!")) return "";
  line = line.substr(2, line.find('\n') - 2);
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == line.npos) return "";
  return line.substr(begin, line.find_first_of(" \t", begin) - begin);
}

}  // namespace

Result<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Status::Errno("pipe", errno);
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

int ExitStatusOf(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

int WaitForProgram(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return ExitStatusOf(status);
}

Result<pid_t> StartProgram(const std::vector<std::string>& argv,
                           const StartOptions& options) {
  // Written only where it cannot be executed.
  INGERO_ASSIGN_OR_RETURN(Pipe failed, MakePipe());
  std::vector<char*> words;
  for (const std::string& word : argv)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);

  const pid_t child = fork();
  if (child < 0) return Status::Errno("fork", errno);
  if (child == 0) {
    if (options.own_group) setpgid(0, 0);
    if (options.in >= 0) dup2(options.in, STDIN_FILENO);
    if (options.out >= 0) dup2(options.out, STDOUT_FILENO);
    if (options.err >= 0) dup2(options.err, STDERR_FILENO);
    for (const std::string& entry : options.environment) {
      const size_t equals = entry.find('=');
      setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
    }
    if (options.signal_mask != nullptr)
      sigprocmask(SIG_SETMASK, options.signal_mask, nullptr);
    RestoreFileSizeSignal();
    alarm(options.seconds);
    execvp(words[0], words.data());
    const int error = errno;
    (void)!write(failed.write.get(), &error, sizeof(error));
    _exit(127);
  }
  failed.write.reset();
  int error = 0;
  ssize_t n;
  do {
    n = read(failed.read.get(), &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  if (n != sizeof(error)) return child;
  WaitForProgram(child);
  return Status::Errno("starting " + argv[0], error);
}

Result<ProgramResult> RunProgram(const std::vector<std::string>& argv,
                                 const std::vector<std::string>& environment,
                                 unsigned seconds) {
  INGERO_ASSIGN_OR_RETURN(Pipe out, MakePipe());
  INGERO_ASSIGN_OR_RETURN(Pipe err, MakePipe());
  StartOptions options;
  options.environment = environment;
  options.out = out.write.get();
  options.err = err.write.get();
  options.seconds = seconds;
  INGERO_ASSIGN_OR_RETURN(const pid_t child, StartProgram(argv, options));
  out.write.reset();
  err.write.reset();

  ProgramResult result;
  std::array<pollfd, 2> fds{pollfd{out.read.get(), POLLIN, 0},
                            pollfd{err.read.get(), POLLIN, 0}};
  std::string* texts[] = {&result.out, &result.err};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < fds.size(); ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char chunk[4096];
      const ssize_t n = read(fds[i].fd, chunk, sizeof(chunk));
      if (n > 0 && texts[i]->size() < kMaxTextBytes)
        texts[i]->append(chunk, static_cast<size_t>(n));
      else if (n == 0 || (n < 0 && errno != EINTR))
        fds[i].fd = -1;
    }
  }
  result.exit_status = WaitForProgram(child);
  return result;
}

std::string OwnFolder() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  if (n <= 0) return "";
  const std::string_view text(path, static_cast<size_t>(n));
  return std::string(text.substr(0, text.rfind('/')));
}

std::string ShimBesideUs() {
  for (const char* folder : {"/../" INGERO_LIBDIR "/", "/../lib/"})
    if (const std::string path = OwnFolder() + folder + kShim; IsFile(path))
      return std::filesystem::path(path).lexically_normal().string();
  return "";
}

std::string FindCompanion() {
  const std::string name = "ingero-kprobe";
  if (std::string path = OwnFolder() + "/" + name; IsFile(path)) return path;
  return FindInPath(name);
}

DemoProgram FindDemoProgram() {
  const std::string own = OwnFolder();
  for (const auto& [folder, libraries] :
       {std::pair("/../" INGERO_LIBDIR "/ingero/demo", ""),
        std::pair("/../lib/ingero/demo", ""),
        std::pair("", "/../lib/fake_cuda")}) {  // a build tree
    const std::string path = own + folder + "/starve_sim";
    if (IsFile(path))
      return {std::filesystem::path(path).lexically_normal().string(),
              std::filesystem::path(own + folder + libraries)
                  .lexically_normal().string()};
  }
  return {};
}

std::string FindInPath(const std::string& name) {
  const auto runs = [](const std::string& path) {
    return IsFile(path) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return runs(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/bin:/usr/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::string file = (folder.empty() ? "." : folder) + "/" + name;
        !name.empty() && runs(file))
      return file;
  return "";
}

std::string WhyNotRun(const std::string& name, bool* there) {
  if (const std::string path = FindInPath(name); !path.empty()) {
    const std::string interpreter = InterpreterOf(path);
    if (interpreter.empty() || !FindInPath(interpreter).empty()) return "";
    *there = true;
    return fmt::format(
        "{}: its first line names {}, which {}; mend that line, or name the "
        "interpreter before the script",
        name, interpreter,
        access(interpreter.c_str(), F_OK) == 0 ? "is no program that can be run"
                                               : "is not there");
  }
  *there = name.find('/') != std::string::npos &&
           access(name.c_str(), F_OK) == 0;
  return name + (*there ? ": is no program that can be run; name an "
                          "executable file, or the interpreter before a script"
                        : ": there is no such program; give its path, or a "
                          "name that is in PATH");
}

}  // namespace ingero::cli
