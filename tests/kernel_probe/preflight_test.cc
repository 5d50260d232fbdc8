// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/preflight.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace ingero::kernel_probe {
namespace {

constexpr uint64_t kSysAdmin = uint64_t{1} << 21;
constexpr uint64_t kPerfmon = uint64_t{1} << 38;
constexpr uint64_t kBpf = uint64_t{1} << 39;

class PreflightTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) / "ingero_preflight";
    std::filesystem::remove_all(root_);
    Write("sys/kernel/btf/vmlinux", "btf");
    system_.capabilities = kSysAdmin;
    system_.release = "6.1.0-18-amd64";
    system_.root = root_.string();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::string Why() {
    const Status s = CheckSystem(system_);
    if (s.ok()) return "";
    EXPECT_EQ(s.message().find('\n'), std::string::npos) << s.message();
    return s.message();
  }
  bool WhySays(const char* word) {
    return Why().find(word) != std::string::npos;
  }

  std::filesystem::path root_;
  System system_;
};

TEST_F(PreflightTest, AllThereIsOk) {
  EXPECT_EQ(Why(), "");
  system_.capabilities = kBpf | kPerfmon;
  EXPECT_EQ(Why(), "");
}

TEST_F(PreflightTest, NamesTheMissingCapability) {
  system_.capabilities = 0;
  EXPECT_TRUE(WhySays("CAP_BPF and CAP_PERFMON"));
  EXPECT_TRUE(WhySays("sudo ingero-kprobe"));
  system_.capabilities = kBpf;
  EXPECT_TRUE(WhySays("(CAP_PERFMON missing)"));
  system_.capabilities = kPerfmon;
  EXPECT_TRUE(WhySays("(CAP_BPF missing)"));
}

TEST_F(PreflightTest, RefusesKernelsBelowTheFloor) {
  for (const char* old : {"5.10.0-28-amd64", "5.14.21", "4.19.0"}) {
    system_.release = old;
    EXPECT_TRUE(WhySays("5.15 or newer")) << old;
  }
  for (const char* fine : {"5.15.0-91-generic", "6.0", "10.2.1"}) {
    system_.release = fine;
    EXPECT_EQ(Why(), "") << fine;
  }
}

TEST_F(PreflightTest, MissingOrEmptyBtfIsNamed) {
  Write("sys/kernel/btf/vmlinux", "");
  EXPECT_TRUE(WhySays("CONFIG_DEBUG_INFO_BTF"));
  std::filesystem::remove(root_ / "sys/kernel/btf/vmlinux");
  EXPECT_TRUE(WhySays("CONFIG_DEBUG_INFO_BTF"));
}

TEST_F(PreflightTest, OnlyConfidentialityLockdownForbids) {
  Write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
  EXPECT_EQ(Why(), "");
  Write("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
  EXPECT_TRUE(WhySays("locked down"));
}

}  // namespace
}  // namespace ingero::kernel_probe
