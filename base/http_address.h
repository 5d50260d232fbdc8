// SPDX-License-Identifier: Apache-2.0
// Where an HTTP server of ours listens, and who may ask it: what `ingero mcp
// --http` and `ingero-kprobe --metrics` share. Pure functions.
#ifndef INGERO_BASE_HTTP_ADDRESS_H_
#define INGERO_BASE_HTTP_ADDRESS_H_

#include <string>
#include <string_view>

#include "base/status.h"

namespace ingero {

struct HttpAddress {
  std::string host;
  int port = 0;  // 0: any that is free
  bool loopback() const;
  // As the socket functions take it: without the brackets of an IPv6 address.
  std::string bare_host() const;
};
// "127.0.0.1:8080", "[::1]:8080", "localhost:0".
Result<HttpAddress> ParseHttpAddress(std::string_view text);

// "http://localhost:3000" -> "localhost"; "[::1]:80" -> "[::1]".
std::string_view HostOf(std::string_view text);
// A Host or Origin that a browser sends for this machine, and for no name that
// a site has pointed here.
bool IsLoopbackName(std::string_view host);
// Takes as long for a right beginning as for a wrong one.
bool SameSecret(std::string_view a, std::string_view b);

}  // namespace ingero

#endif  // INGERO_BASE_HTTP_ADDRESS_H_
