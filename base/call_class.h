// SPDX-License-Identifier: Apache-2.0
// Names of the classes of CUDA calls, from the one list of wire.h.
#ifndef INGERO_BASE_CALL_CLASS_H_
#define INGERO_BASE_CALL_CLASS_H_

#include <cstdint>

#include "wire/wire.h"

namespace ingero {

// "launch", "copy-async", ...; nullptr: no such class.
constexpr const char* CallClassName(uint64_t value) {
  switch (value) {
#define X(id, number, name) \
  case number:              \
    return name;
    INGERO_CLASSES(X)
#undef X
  }
  return nullptr;
}

}  // namespace ingero

#endif  // INGERO_BASE_CALL_CLASS_H_
