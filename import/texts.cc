// SPDX-License-Identifier: Apache-2.0
#include "import/import.h"

namespace ingero::import {

const std::string Texts::kNone;

uint32_t Texts::Index(std::string_view text) {
  if (text.empty()) return 0;
  const auto [at, added] = index_.try_emplace(
      std::string(text), static_cast<uint32_t>(texts_.size()));
  if (added) texts_.push_back(&at->first);
  return at->second;
}

}  // namespace ingero::import
