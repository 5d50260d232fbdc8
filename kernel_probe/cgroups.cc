// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/cgroups.h"

#include <dirent.h>
#include <sys/stat.h>

#include <charconv>
#include <memory>
#include <sstream>

#include "base/file.h"

namespace ingero::kernel_probe {
namespace {

constexpr size_t kMaxDirectories = 8192;
constexpr size_t kMaxGroups = 512;

bool HasOption(std::string_view options, std::string_view wanted) {
  while (!options.empty()) {
    const size_t at = options.find(',');
    if (options.substr(0, at) == wanted) return true;
    options.remove_prefix(at == std::string_view::npos ? options.size()
                                                       : at + 1);
  }
  return false;
}

struct Walk {
  const CpuController* controller;
  size_t directories = 0;
  std::vector<QuotaGroup> groups;

  // `quota`: the path of the nearest cgroup above with a quota, or nullptr.
  void Visit(const std::string& path, const std::string* quota) {
    if (++directories > kMaxDirectories || groups.size() >= kMaxGroups) return;
    const std::string at = controller->path + path;
    auto limit = ReadWholeFile(
        at + (controller->v2 ? "/cpu.max" : "/cpu.cfs_quota_us"));
    if (limit.ok() && IsQuota(*limit)) quota = &path;
    struct stat st;
    if (quota != nullptr && stat(at.c_str(), &st) == 0)
      groups.push_back(
          {st.st_ino, *quota, controller->path + *quota + "/cpu.stat"});
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(at.c_str()),
                                                  closedir);
    if (!dir) return;
    while (const dirent* entry = readdir(dir.get()))
      if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
        Visit(path + "/" + entry->d_name, quota);
  }
};

}  // namespace

std::optional<CpuStat> ParseCpuStat(std::string_view text) {
  CpuStat stat;
  bool found = false;
  std::istringstream in{std::string(text)};
  std::string key;
  uint64_t value;
  while (in >> key >> value) {
    if (key == "nr_periods") stat.periods = value, found = true;
    if (key == "nr_throttled") stat.throttled = value;
    if (key == "throttled_time") stat.throttled_ns = value;         // v1
    if (key == "throttled_usec") stat.throttled_ns = value * 1000;  // v2
  }
  if (!found) return std::nullopt;
  return stat;
}

bool IsQuota(std::string_view text) {
  int64_t us;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), us);
  return error == std::errc() && us > 0;  // v1: -1, v2: "max"
}

std::optional<CpuController> FindCpuController(std::string_view mountinfo) {
  std::optional<CpuController> v2;
  std::istringstream in{std::string(mountinfo)};
  std::string line;
  while (std::getline(in, line)) {
    // id parent major:minor root mountpoint options ... - type source options
    std::istringstream fields(line);
    std::string field, mount, type, source, options;
    for (int i = 0; i < 4; ++i) fields >> field;
    fields >> mount;
    while (fields >> field && field != "-") continue;
    fields >> type >> source >> options;
    if (type == "cgroup" && HasOption(options, "cpu"))
      return CpuController{mount, false};
    if (type == "cgroup2" && !v2) v2 = CpuController{mount, true};
  }
  return v2;
}

std::vector<QuotaGroup> FindQuotaGroups(const CpuController& controller) {
  Walk walk{&controller, 0, {}};
  walk.Visit("", nullptr);
  return std::move(walk.groups);
}

}  // namespace ingero::kernel_probe
