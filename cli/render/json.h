// SPDX-License-Identifier: Apache-2.0
// Pieces of JSON that more than one command prints. Times are integers, ns.
#ifndef INGERO_CLI_RENDER_JSON_H_
#define INGERO_CLI_RENDER_JSON_H_

#include <nlohmann/json.hpp>

#include "analysis/report.h"

namespace ingero::cli {

using Json = nlohmann::ordered_json;  // keeps the order of writing

// "runtime", "driver" or "library".
const char* NameOf(analysis::Layer layer);

// `process`: who called, as the command says who a process is.
Json OperationJson(const analysis::Operation& operation,
                   const analysis::Function& function, Json process);

}  // namespace ingero::cli

#endif  // INGERO_CLI_RENDER_JSON_H_
