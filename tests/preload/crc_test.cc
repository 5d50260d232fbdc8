// SPDX-License-Identifier: Apache-2.0
// The shim's CRCs are those that the readers compute.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/crc32c.h"
#include "base/stream_check.h"

extern "C" {
#include "preload/crc32c.h"
}

namespace ingero {
namespace {

TEST(ShimCrc, AgreesWithTheReaders) {
  std::mt19937_64 random(3);
  std::string bytes;
  for (size_t n = 0; n <= 400; ++n) {
    const uint32_t crc = Crc32c(bytes);
    EXPECT_EQ(ingero_crc32c(bytes.data(), n, 0), crc) << n;
    EXPECT_EQ(ingero_crc32c_portable(bytes.data(), n, 0), crc) << n;
    const size_t cut = n / 3;
    EXPECT_EQ(ingero_crc32c(bytes.data() + cut, n - cut,
                            ingero_crc32c(bytes.data(), cut, 0)),
              crc);
    if (n % 8 == 0) {
      EXPECT_EQ(ingero_records_crc(bytes.data(), n), RecordsCrc(bytes)) << n;
    }
    bytes.push_back(static_cast<char>(random()));
  }
}

}  // namespace
}  // namespace ingero
