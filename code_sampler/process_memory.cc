// SPDX-License-Identifier: Apache-2.0
#include "code_sampler/process_memory.h"

#include <sys/uio.h>

#include <cerrno>

namespace ingero::code_sampler {

Outcome ProcessMemory::Read(std::span<const Piece> pieces) {
  iovec here[kMaxPieces], there[kMaxPieces];
  if (pieces.size() > kMaxPieces) return Outcome::kNotThere;
  size_t bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    here[i] = {pieces[i].to, pieces[i].bytes};
    there[i] = {reinterpret_cast<void*>(pieces[i].at), pieces[i].bytes};
    bytes += pieces[i].bytes;
  }
  const ssize_t got = process_vm_readv(pid_, here, pieces.size(), there,
                                       pieces.size(), 0);
  if (got >= 0 && static_cast<size_t>(got) == bytes) return Outcome::kRead;
  if (got >= 0) return Outcome::kNotThere;
  return errno == ESRCH   ? Outcome::kGone
         : errno == EPERM ? Outcome::kDenied
                          : Outcome::kNotThere;
}

}  // namespace ingero::code_sampler
