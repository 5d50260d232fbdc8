// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <system_error>

namespace ingero {

Status Status::Errno(std::string_view what, int errno_value) {
  // generic_category().message() is strerror() without its shared buffer.
  return Error(std::string(what) + ": " +
               std::generic_category().message(errno_value));
}

}  // namespace ingero
