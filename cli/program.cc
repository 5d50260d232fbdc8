// SPDX-License-Identifier: Apache-2.0
#include "cli/program.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/file.h"

namespace ingero::cli {
namespace {

constexpr size_t kMaxTextBytes = 1 << 20;

bool IsFile(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

Result<std::array<Fd, 2>> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return Status::Errno("pipe", errno);
  return std::array<Fd, 2>{Fd(fds[0]), Fd(fds[1])};
}

}  // namespace

Result<ProgramResult> RunProgram(const std::vector<std::string>& argv,
                                 const std::vector<std::string>& environment,
                                 unsigned seconds) {
  INGERO_ASSIGN_OR_RETURN(auto out, MakePipe());
  INGERO_ASSIGN_OR_RETURN(auto err, MakePipe());
  // Written only where it cannot be executed.
  INGERO_ASSIGN_OR_RETURN(auto failed, MakePipe());
  std::vector<char*> words;
  for (const std::string& word : argv)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);

  const pid_t child = fork();
  if (child < 0) return Status::Errno("fork", errno);
  if (child == 0) {
    dup2(out[1].get(), STDOUT_FILENO);
    dup2(err[1].get(), STDERR_FILENO);
    for (const std::string& entry : environment) {
      const size_t equals = entry.find('=');
      setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
    }
    alarm(seconds);
    execv(words[0], words.data());
    const int error = errno;
    (void)!write(failed[1].get(), &error, sizeof(error));
    _exit(127);
  }
  for (auto* pipe : {&out, &err, &failed}) (*pipe)[1].reset();

  ProgramResult result;
  std::array<pollfd, 2> fds{pollfd{out[0].get(), POLLIN, 0},
                            pollfd{err[0].get(), POLLIN, 0}};
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
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  int error = 0;
  if (read(failed[0].get(), &error, sizeof(error)) == sizeof(error))
    return Status::Errno("starting " + argv[0], error);
  result.exit_status =
      WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
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
  const std::string name = "/ingero-kprobe";
  if (std::string path = OwnFolder() + name; IsFile(path)) return path;
  const char* path_variable = std::getenv("PATH");
  std::istringstream folders(path_variable == nullptr ? "" : path_variable);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::string path = folder + name;
        !folder.empty() && access(path.c_str(), X_OK) == 0)
      return path;
  return "";
}

}  // namespace ingero::cli
