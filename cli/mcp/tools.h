// SPDX-License-Identifier: Apache-2.0
// What the MCP server offers: tools, resources and a prompt over one store.
// To add a tool: a function in tools.cc and its row in MakeOffer().
//
// The figures are those of `ingero explain --json` and `ingero query`; nothing
// is computed here.
#ifndef INGERO_CLI_MCP_TOOLS_H_
#define INGERO_CLI_MCP_TOOLS_H_

#include <chrono>
#include <memory>
#include <string>

#include "cli/mcp/protocol.h"

namespace ingero::cli::mcp {

// An answer's JSON stays below this, so that with its text form, which repeats
// it, it is under 60 kB.
inline constexpr size_t kMaxAnswerBytes = 24'000;

// db: a store, "" = the newest at each call. The store is opened when it is
// first asked, and again when it was replaced or has grown. most: time for one
// question; they are answered one after another.
Offer MakeOffer(const std::string& db, std::chrono::seconds most);

}  // namespace ingero::cli::mcp

#endif  // INGERO_CLI_MCP_TOOLS_H_
