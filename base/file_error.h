// SPDX-License-Identifier: Apache-2.0
// What is said where a file can't be read or written: what, why, what to do.
#ifndef INGERO_BASE_FILE_ERROR_H_
#define INGERO_BASE_FILE_ERROR_H_

#include <string>

#include "base/status.h"

namespace ingero {

// "open PATH: WHY", and what to do where the reason tells.
Status CannotOpen(const std::string& path, int error);
// "cannot write PATH: WHY; WHAT TO DO".
Status CannotWrite(const std::string& path, int error);

// The same of a folder that holds recordings, or is to: which to name instead.
Status CannotUseFolder(const std::string& path, int error);

// The last part of each: "; free some space ...". ReadAdvice may be "".
const char* ReadAdvice(int error);
const char* WriteAdvice(int error);

}  // namespace ingero

#endif  // INGERO_BASE_FILE_ERROR_H_
