// SPDX-License-Identifier: Apache-2.0
#include "kernel_probe/xid_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace ingero::kernel_probe {
namespace {

constexpr size_t kMaxLine = 256;
// A flood in the log must not hold up the clock samples.
constexpr int kMaxRecords = 10'000;

}  // namespace

std::optional<Xid> ParseXid(std::string_view record) {
  const size_t text = record.find(';');
  if (text == record.npos) return std::nullopt;
  record.remove_prefix(text + 1);
  record = record.substr(0, record.find('\n'));
  if (!record.starts_with("NVRM: Xid (")) return std::nullopt;
  const size_t number = record.find("): ");
  if (number == record.npos) return std::nullopt;
  Xid xid;
  const char* begin = record.data() + number + 3;
  if (std::from_chars(begin, record.data() + record.size(), xid.number).ec !=
      std::errc())
    return std::nullopt;
  xid.line = record.substr(0, kMaxLine);
  return xid;
}

Result<XidLog> XidLog::Open(const std::string& path) {
  auto fd = OpenFile(path, O_RDONLY | O_NONBLOCK);
  if (!fd.ok()) return fd.status();
  if (lseek(fd->get(), 0, SEEK_END) < 0)
    return Status::Errno("going to the end of " + path, errno);
  return XidLog(std::move(*fd));
}

std::vector<Xid> XidLog::Read() {
  std::vector<Xid> found;
  char record[8192];  // a record is at most this long
  for (int i = 0; i < kMaxRecords; ++i) {
    const ssize_t n = read(fd_.get(), record, sizeof(record));
    // EPIPE: records were overwritten before they were read; it goes on with
    // the oldest that is there.
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;
    if (n <= 0) break;
    if (auto xid = ParseXid({record, static_cast<size_t>(n)}))
      found.push_back(std::move(*xid));
  }
  return found;
}

}  // namespace ingero::kernel_probe
