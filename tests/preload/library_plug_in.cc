// SPDX-License-Identifier: Apache-2.0
// A plug-in that is linked to the simulated libraries.
#include "library_calls.h"

namespace {
const Functions kTable = {
#define X(name) ::name,
    LIBRARY_FUNCTIONS(X)
#undef X
};
}  // namespace

extern "C" {
__attribute__((visibility("default"))) const Functions* plug_in_table() {
  return &kTable;
}
__attribute__((visibility("default"))) void plug_in_call(int seed) {
  void* handle = nullptr;
  EXPECT(cublasCreate_v2(&handle) == 0);
  EXPECT(cublasSgemm_v2(handle, seed + 2) == 0);
  EXPECT(cudnnGetVersion() == 0x123456789abcdef);
}
}
