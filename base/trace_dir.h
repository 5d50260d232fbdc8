// SPDX-License-Identifier: Apache-2.0
// Where streams and stores live. The shim has the same rules in C
// (preload/session.c); tests/base/trace_dir_test.cc compares the two.
//
//   $INGERO_DIR, else ${XDG_STATE_HOME:-~/.local/state}/ingero; on a network
//   file system a private /tmp/ingero-UID. Under sudo the calling user's
//   folder (SUDO_UID's home), files owned by that user.
#ifndef INGERO_BASE_TRACE_DIR_H_
#define INGERO_BASE_TRACE_DIR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace ingero {

struct TraceDir {
  std::string path;
  uint32_t uid = 0, gid = 0;  // owner that new files get
  std::string note;  // "" or why another folder than usual was taken
};

// The folder that a recorder writes to. Does not create it.
TraceDir DefaultTraceDir();
// The folders that merge reads: DefaultTraceDir(); where INGERO_DIR or
// XDG_STATE_HOME chose it, also the one without them, since sudo drops both;
// under sudo, the caller's and root's own. No duplicates.
std::vector<std::string> DefaultTraceDirs();
// Creates it (0700, owner as given) and its parents. Refuses a symbolic link
// as its last component, or one owned by another user.
Status CreateTraceDir(const TraceDir& dir);
// The last of these alone: nothing is made.
Status CheckTraceDir(const TraceDir& dir);

}  // namespace ingero

#endif  // INGERO_BASE_TRACE_DIR_H_
