// SPDX-License-Identifier: Apache-2.0
// The outcome of an operation: ok, or one line that says what, where, why and
// what to do. Add context on the way up: `return s.In("open x.ingero")`.
#ifndef INGERO_BASE_STATUS_H_
#define INGERO_BASE_STATUS_H_

#include <cstdlib>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ingero {

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  static Status Error(std::string message) {
    Status s;
    s.message_ = std::move(message);
    return s;
  }
  // "what: strerror(errno_value)".
  static Status Errno(std::string_view what, int errno_value);

  bool ok() const { return !message_.has_value(); }
  // REQUIRES: !ok()
  const std::string& message() const { return *message_; }
  // Prefixes "where: ". No change to ok.
  Status In(std::string_view where) && {
    if (message_) message_ = std::string(where) + ": " + *message_;
    return std::move(*this);
  }

 private:
  std::optional<std::string> message_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}       // NOLINT: implicit
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  // REQUIRES: ok()
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define INGERO_CONCAT_(a, b) a##b
#define INGERO_CONCAT(a, b) INGERO_CONCAT_(a, b)
// Returns from the enclosing function if `expr` (a Status) is an error.
#define INGERO_RETURN_IF_ERROR(expr)                         \
  do {                                                       \
    if (::ingero::Status ingero_status_ = (expr);            \
        !ingero_status_.ok())                                \
      return ingero_status_;                                 \
  } while (0)
// INGERO_ASSIGN_OR_RETURN(auto fd, Open(path));
#define INGERO_ASSIGN_OR_RETURN(lhs, expr) \
  INGERO_ASSIGN_OR_RETURN_(INGERO_CONCAT(ingero_result_, __LINE__), lhs, expr)
#define INGERO_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return tmp.status();            \
  lhs = std::move(*tmp)

// Always on: an invariant whose breach would make the output a lie.
#define INGERO_CHECK(condition)                                            \
  do {                                                                     \
    if (!(condition)) [[unlikely]]                                         \
      ::ingero::CheckFailed(__FILE__, __LINE__, #condition);               \
  } while (0)

[[noreturn]] inline void CheckFailed(const char* file, int line,
                                     const char* condition) {
  std::fprintf(stderr, "ingero: internal error: %s:%d: %s\n", file, line,
               condition);
  std::abort();
}

}  // namespace ingero

#endif  // INGERO_BASE_STATUS_H_
