// SPDX-License-Identifier: Apache-2.0
// MCP's streamable HTTP: POST /mcp with one message, the answer as JSON. There
// is no stream from the server (GET gives 405): nothing is sent unasked.
// https://modelcontextprotocol.io/specification/2025-11-25/basic/transports
//
// Browsers: a page's Origin and the Host that was asked must be this machine,
// so that no site can reach the server through a name that it points here.
#ifndef INGERO_CLI_MCP_HTTP_H_
#define INGERO_CLI_MCP_HTTP_H_

#include <functional>
#include <string>

#include "base/http_address.h"
#include "base/status.h"
#include "cli/mcp/protocol.h"

namespace ingero::cli::mcp {

// Serves until SIGINT or SIGTERM. token: "" = none is asked for; needed where
// the address is not loopback. ready: told the URL once it can be asked.
Status ServeHttp(const Offer& offer, const HttpAddress& address,
                 const std::string& token,
                 const std::function<void(const std::string& url)>& ready);

}  // namespace ingero::cli::mcp

#endif  // INGERO_CLI_MCP_HTTP_H_
