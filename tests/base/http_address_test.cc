// SPDX-License-Identifier: Apache-2.0
#include "base/http_address.h"

#include <gtest/gtest.h>

namespace ingero {
namespace {

TEST(HttpAddressTest, IsAHostAndAPort) {
  const auto address = ParseHttpAddress("127.0.0.1:8080");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, 8080);
  EXPECT_EQ(ParseHttpAddress("[::1]:0")->bare_host(), "::1");
  EXPECT_EQ(ParseHttpAddress("localhost:1")->bare_host(), "localhost");
  for (const char* bad :
       {"", "8080", "127.0.0.1", "127.0.0.1:", ":8080", "127.0.0.1:65536",
        "127.0.0.1:-1", "127.0.0.1:x", "127.0.0.1:80x"}) {
    const auto wrong = ParseHttpAddress(bad);
    ASSERT_FALSE(wrong.ok()) << bad;
    EXPECT_NE(wrong.status().message().find("is not an address"),
              std::string::npos);
  }
}

TEST(HttpAddressTest, KnowsWhatStaysOnThisMachine) {
  for (const char* here :
       {"127.0.0.1:1", "127.3.2.1:1", "localhost:1", "[::1]:1"})
    EXPECT_TRUE(ParseHttpAddress(here)->loopback()) << here;
  for (const char* beyond :
       {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "localhost.example:1"})
    EXPECT_FALSE(ParseHttpAddress(beyond)->loopback()) << beyond;
}

TEST(HttpAddressTest, TheHostOfAHeaderIsWithoutSchemeAndPort) {
  EXPECT_EQ(HostOf("http://localhost:3000"), "localhost");
  EXPECT_EQ(HostOf("[::1]:80"), "[::1]");
  EXPECT_EQ(HostOf("[::1"), "");
  EXPECT_EQ(HostOf("example.org"), "example.org");
  EXPECT_EQ(HostOf(""), "");
  EXPECT_FALSE(IsLoopbackName("localhost.example"));
}

TEST(HttpAddressTest, SecretsAreTheSameOrNot) {
  EXPECT_TRUE(SameSecret("abc", "abc"));
  for (const char* wrong : {"", "ab", "abcd", "abd", "Abc"}) {
    EXPECT_FALSE(SameSecret(wrong, "abc")) << wrong;
    EXPECT_FALSE(SameSecret("abc", wrong)) << wrong;
  }
}

}  // namespace
}  // namespace ingero
