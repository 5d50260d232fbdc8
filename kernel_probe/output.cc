// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/output.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "kernel_probe/clock.h"

namespace ingero::kernel_probe {
namespace {

constexpr const char* kLockName = "ingero-kprobe.lock";

TraceDir Folder(const std::string& dir) {
  TraceDir folder = DefaultTraceDir();
  if (dir.empty()) return folder;
  std::error_code ignored;
  folder.path = std::filesystem::absolute(dir, ignored).lexically_normal();
  // "x/" would make the last component that must not be a link "x/".
  while (folder.path.size() > 1 && folder.path.back() == '/')
    folder.path.pop_back();
  folder.note.clear();
  // A folder that is there keeps its owner.
  struct stat st;
  if (lstat(folder.path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)) {
    folder.uid = st.st_uid;
    folder.gid = st.st_gid;
  }
  return folder;
}

Status GiveTo(int fd, const std::string& name, const TraceDir& dir) {
  if (geteuid() == 0 && fchown(fd, dir.uid, dir.gid) != 0)
    return Status::Errno("giving " + dir.path + "/" + name + " to uid " +
                             std::to_string(dir.uid),
                         errno);
  return {};
}

}  // namespace

Result<Output> OpenOutput(const std::string& dir, bool make_dir) {
  Output out;
  out.dir = Folder(dir);
  INGERO_RETURN_IF_ERROR(make_dir ? CreateTraceDir(out.dir)
                                  : CheckTraceDir(out.dir));
  INGERO_ASSIGN_OR_RETURN(
      Fd folder,
      OpenFile(out.dir.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));

  INGERO_ASSIGN_OR_RETURN(out.lock,
                          OpenFileAt(folder.get(), out.dir.path, kLockName,
                                     O_RDWR | O_CREAT | O_NOFOLLOW));
  // `ingero run` holds it for an instant, to see whether somebody does.
  int taken = -1;
  for (int attempt = 0; attempt < 5 && taken != 0; ++attempt) {
    if (attempt > 0) usleep(10'000);
    taken = flock(out.lock.get(), LOCK_EX | LOCK_NB);
  }
  if (taken != 0) {
    char pid[16] = "";
    const ssize_t n = pread(out.lock.get(), pid, sizeof(pid) - 1, 0);
    return Status::Error(
        "another ingero-kprobe" +
        (n > 0 ? " (pid " + std::to_string(std::atol(pid)) + ")"
               : std::string()) +
        " already records into " + out.dir.path +
        "; end it first, or record into another folder (--dir, INGERO_DIR)");
  }
  INGERO_RETURN_IF_ERROR(GiveTo(out.lock.get(), kLockName, out.dir));
  const std::string pid = std::to_string(getpid());
  if (ftruncate(out.lock.get(), 0) == 0)
    (void)WriteAllAt(out.lock.get(), pid, 0);

  const std::string name =
      "kernel-" + std::to_string(NowNs()) + "-" + pid + ".ingero";
  out.path = out.dir.path + "/" + name;
  INGERO_ASSIGN_OR_RETURN(out.file,
                          OpenFileAt(folder.get(), out.dir.path, name,
                                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW));
  INGERO_RETURN_IF_ERROR(GiveTo(out.file.get(), name, out.dir));
  return out;
}

void TellRecording(const Output& output) {
  const std::string text = std::to_string(getpid()) + "\nrecording\n";
  (void)WriteAllAt(output.lock.get(), text, 0);
}

}  // namespace ingero::kernel_probe
