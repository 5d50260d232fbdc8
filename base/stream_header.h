// SPDX-License-Identifier: Apache-2.0
// The header of a stream of coded blocks, for this process and host. What it
// says of them is read once.
//
// Threads: any.
#ifndef INGERO_BASE_STREAM_HEADER_H_
#define INGERO_BASE_STREAM_HEADER_H_

#include <cstdint>

#include "wire/wire.h"

namespace ingero {

// Own CLOCK_MONOTONIC minus the host's; 0 outside time namespaces.
int64_t MonotonicOffsetNs();
// The host's CLOCK_MONOTONIC.
uint64_t HostNowNs();

// `magic`: INGERO_MAGIC_*; `comm`: the recorder's name. Sealed.
ingero_stream_header MakeStreamHeader(uint64_t magic, const char* comm);

}  // namespace ingero

#endif  // INGERO_BASE_STREAM_HEADER_H_
