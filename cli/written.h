// SPDX-License-Identifier: Apache-2.0
// What a command says of a file that it has written.
#ifndef INGERO_CLI_WRITTEN_H_
#define INGERO_CLI_WRITTEN_H_

#include <string>
#include <string_view>

#include "cli/io.h"

namespace ingero::cli {

// One line on io.err, with the size of a regular file; nothing of "-".
void SayWritten(const Io& io, std::string_view where, const std::string& path,
                std::string_view more = "");

}  // namespace ingero::cli

#endif  // INGERO_CLI_WRITTEN_H_
