// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel_probe/companion.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>

namespace ingero::test {

uint64_t NowNs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(t.tv_nsec);
}

std::string KprobePath() {
  const char* path = std::getenv("INGERO_KPROBE");
  return path != nullptr ? path : INGERO_KPROBE;
}

std::string WhyNoCompanion() {
  if (geteuid() != 0) return "needs root (BPF)";
  if (access("/sys/kernel/btf/vmlinux", R_OK) != 0)
    return "this kernel has no BTF";
  // As in tests/can_load_bpf.py.
  struct stat pids;
  if (stat("/proc/self/ns/pid", &pids) == 0 && pids.st_ino != 0xEFFFFFFC)
    return "pids of this pid namespace are not those of the kernel";
  return "";
}

Companion::Companion() {
  char name[] = "/tmp/ingero-kprobe-test-XXXXXX";
  dir_ = mkdtemp(name);
}

Companion::~Companion() {
  if (pid_ > 0) End(SIGKILL);
  std::filesystem::remove_all(dir_);
}

bool Companion::Start(std::vector<std::string> args, uid_t uid) {
  const std::string ready = dir_ + "/ready", words = dir_ + "/words";
  args.insert(args.begin(), {KprobePath(), "--dir", dir_ + "/trace",
                             "--ready-file", ready});
  unlink(ready.c_str());  // of one that was killed
  const uint64_t begin = NowNs();
  pid_ = fork();
  if (pid_ == 0) {
    const int fd = open(words.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, STDERR_FILENO);
    if (uid != 0 && (setgroups(0, nullptr) != 0 || setgid(uid) != 0 ||
                     setuid(uid) != 0))
      _exit(99);
    std::vector<char*> argv;
    for (std::string& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(98);
  }
  for (;;) {
    if (access(ready.c_str(), F_OK) == 0) {
      start_seconds_ = static_cast<double>(NowNs() - begin) / 1e9;
      return true;
    }
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info,
               WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == pid_)
      return false;
    usleep(2000);
  }
}

int Companion::End(int signal) {
  if (signal != 0) kill(pid_, signal);
  const int status = Wait(pid_);
  pid_ = -1;
  return status;
}

std::string Companion::said() const {
  auto text = ReadWholeFile(dir_ + "/words");
  return text.ok() ? *text : "";
}

std::string Companion::StreamPath() const {
  std::string newest;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(dir_ + "/trace", error))
    if (entry.path().filename().string().starts_with("kernel-"))
      newest = std::max(newest, entry.path().string());
  return newest;
}

void PinToCpu(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

pid_t Fork(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  return pid;
}

int Wait(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ingero::test
