// SPDX-License-Identifier: Apache-2.0
// Files and folders in the making: gone again where what makes them fails, or
// where a signal ends the process meanwhile (SIGKILL apart).
//
// Threads: any. Memory: a path each; what is beyond kMostLeftovers at a time is
// removed at its end, not at a signal.
#ifndef INGERO_BASE_LEFTOVER_H_
#define INGERO_BASE_LEFTOVER_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "base/status.h"

namespace ingero {

inline constexpr size_t kMostLeftovers = 16;

// Removes `path` at its end unless Keep() was said.
class Leftover {
 public:
  enum Kind { kFile, kFolder };  // a folder goes with all in it
  Leftover() = default;          // of nothing
  // A file: before it is made, since a signal may come at any time; that there
  // is none does no harm. REQUIRES: a folder was made by whoever says this.
  Leftover(std::string path, Kind kind);
  Leftover(Leftover&& other) noexcept
      : path_(std::move(other.path_)),
        kind_(other.kind_),
        slot_(std::exchange(other.slot_, -1)) {}
  Leftover& operator=(Leftover&& other) noexcept;
  ~Leftover();
  // It is whole: it stays from here on.
  void Keep() { Forget(); }
  // REQUIRES: neither kept nor of nothing
  const std::string& path() const { return *path_; }

 private:
  void Forget();
  std::unique_ptr<const std::string> path_;  // null = nothing to remove
  Kind kind_ = kFile;
  int slot_ = -1;
};

// The folder, made; of nothing where there is one already.
Result<Leftover> MakeNewFolder(const std::string& path, mode_t mode);
// A new private folder "PREFIX.xxxxxx".
Result<Leftover> MakeScratchFolder(const std::string& prefix);
// The same in $TMPDIR, else /tmp.
Result<Leftover> MakeScratchFolderInTmp(const std::string& name);

// Removes those that there are; whether there was one. For handlers of signals
// that end the process, and safe there.
bool RemoveLeftovers();

}  // namespace ingero

#endif  // INGERO_BASE_LEFTOVER_H_
