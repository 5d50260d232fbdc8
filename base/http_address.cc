// SPDX-License-Identifier: Apache-2.0
#include "base/http_address.h"

#include <algorithm>
#include <charconv>

namespace ingero {

bool HttpAddress::loopback() const {
  // All of 127/8; digits and dots, since a name that begins so is anywhere.
  return IsLoopbackName(host) ||
         (host.starts_with("127.") &&
          host.find_first_not_of("0123456789.") == host.npos);
}

std::string HttpAddress::bare_host() const {
  return host.starts_with('[') && host.ends_with(']')
             ? host.substr(1, host.size() - 2)
             : host;
}

Result<HttpAddress> ParseHttpAddress(std::string_view text) {
  HttpAddress address;
  const size_t colon = text.rfind(':');
  address.host = text.substr(0, colon);
  const std::string_view port =
      colon == text.npos ? "" : text.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (address.host.empty() || port.empty() || error != std::errc() ||
      end != port.data() + port.size() || address.port < 0 ||
      address.port > 65535)
    return Status::Error(std::string("'").append(text) +
                         "' is not an address; write for example "
                         "127.0.0.1:8080 or [::1]:0");
  return address;
}

std::string_view HostOf(std::string_view text) {
  if (const size_t scheme = text.find("://"); scheme != text.npos)
    text.remove_prefix(scheme + 3);
  if (text.starts_with('['))
    return text.substr(0, std::min(text.find(']') + 1, text.size()));
  return text.substr(0, std::min(text.find(':'), text.size()));
}

bool IsLoopbackName(std::string_view host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1" ||
         host == "[::1]";
}

bool SameSecret(std::string_view a, std::string_view b) {
  unsigned char different = a.size() != b.size();
  for (size_t i = 0; i < a.size() && !b.empty(); ++i)
    different |= static_cast<unsigned char>(a[i] ^ b[i % b.size()]);
  return different == 0;
}

}  // namespace ingero
