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

// A number that a text begins with, above 0 and no longer than a week: -1 (v1)
// and "max" (v2) mean no limit.
std::optional<uint64_t> Microseconds(std::string_view text) {
  constexpr int64_t kMost = int64_t{7} * 86400 * 1000 * 1000;
  int64_t us = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), us);
  if (error != std::errc() || us <= 0 || us > kMost) return std::nullopt;
  return static_cast<uint64_t>(us);
}

struct Walk {
  const CpuController* controller;
  size_t directories = 0;
  std::vector<QuotaGroup> groups;

  std::optional<CpuQuota> QuotaAt(const std::string& folder) const {
    const auto read = [&](const char* name) {
      auto text = ReadWholeFile(folder + name);
      return text.ok() ? *text : std::string();
    };
    if (controller->v2) return ParseCpuMax(read("/cpu.max"));
    const std::string quota = read("/cpu.cfs_quota_us");
    // Most have none, and this walk is paid for every few seconds.
    if (quota.empty() || quota[0] == '-') return std::nullopt;
    return ParseCfsQuota(quota, read("/cpu.cfs_period_us"));
  }

  // `above`: id of the nearest cgroup above with a quota, or 0.
  void Visit(const std::string& path, uint64_t above) {
    if (++directories > kMaxDirectories || groups.size() >= kMaxGroups) return;
    const std::string at = controller->path + path;
    const std::optional<CpuQuota> quota = QuotaAt(at);
    struct stat st;
    if ((quota || above != 0) && stat(at.c_str(), &st) == 0) {
      const std::string name = controller->root + path;
      groups.push_back({st.st_ino, name.empty() ? "/" : name, above, quota,
                        at + "/cpu.stat"});
      if (quota) above = st.st_ino;
    }
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(at.c_str()),
                                                  closedir);
    if (!dir) return;
    while (const dirent* entry = readdir(dir.get()))
      if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
        Visit(path + "/" + entry->d_name, above);
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

std::optional<CpuQuota> ParseCpuMax(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == text.npos) return std::nullopt;
  return ParseCfsQuota(text, text.substr(space + 1));
}

std::optional<CpuQuota> ParseCfsQuota(std::string_view quota_us,
                                      std::string_view period_us) {
  const auto quota = Microseconds(quota_us), period = Microseconds(period_us);
  if (!quota || !period) return std::nullopt;
  return CpuQuota{*quota * 1000, *period * 1000};
}

std::optional<CpuController> FindCpuController(std::string_view mountinfo) {
  std::optional<CpuController> v2;
  std::istringstream in{std::string(mountinfo)};
  std::string line;
  while (std::getline(in, line)) {
    // id parent major:minor root mountpoint options ... - type source options
    std::istringstream fields(line);
    std::string field, root, mount, type, source, options;
    for (int i = 0; i < 3; ++i) fields >> field;
    fields >> root >> mount;
    if (root == "/") root.clear();
    while (fields >> field && field != "-") continue;
    fields >> type >> source >> options;
    if (type == "cgroup" && HasOption(options, "cpu"))
      return CpuController{mount, false, root};
    if (type == "cgroup2" && !v2) v2 = CpuController{mount, true, root};
  }
  return v2;
}

std::vector<QuotaGroup> FindQuotaGroups(const CpuController& controller) {
  Walk walk{&controller, 0, {}};
  walk.Visit("", 0);
  return std::move(walk.groups);
}

}  // namespace ingero::kernel_probe
