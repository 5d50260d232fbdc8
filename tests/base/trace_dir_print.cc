// SPDX-License-Identifier: Apache-2.0
// Prints where the readers look and who owns it: for trace_dir_agrees_test.py.
#include <cstdio>

#include "base/trace_dir.h"

int main() {
  const ingero::TraceDir dir = ingero::DefaultTraceDir();
  std::printf("%s\n%u\n", dir.path.c_str(), dir.uid);
}
