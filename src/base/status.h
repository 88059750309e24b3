// Errors as values. A Status is a canonical code and a message of one line that says what was
// found, what was expected and what to do. The server maps codes to HTTP one to one, so choose the
// code by who can act: the caller (kInvalidArgument, kNotFound, kUnimplemented), time
// (kResourceExhausted, kUnavailable) or us (kInternal). No exceptions leave our code; what a
// library throws is caught where it is called.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace spry {

enum class StatusCode {
  kOk,
  kInvalidArgument,    // the request or the file is wrong as it stands (400)
  kNotFound,           // a named thing does not exist (404)
  kUnimplemented,      // right in itself, but spry does not serve it (400)
  kResourceExhausted,  // a limit is reached; may succeed later (429)
  kUnavailable,        // shutting down or not ready (503)
  kInternal,           // our fault, or the machine's (500)
};

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

inline Status InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
inline Status NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
inline Status Unimplemented(std::string message) {
  return {StatusCode::kUnimplemented, std::move(message)};
}
inline Status ResourceExhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
inline Status Unavailable(std::string message) {
  return {StatusCode::kUnavailable, std::move(message)};
}
inline Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

// A T, or the Status that says why there is none. Reading the value of a failed Result is a
// programmer's error and stops the process.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}  // NOLINT: implicit, so that `return value;` works
  Result(Status status) : state_(std::move(status)) {  // NOLINT: likewise
    CHECK(!std::get<Status>(state_).ok());
  }

  bool ok() const { return std::holds_alternative<T>(state_); }
  const Status& status() const {
    static const Status kOk;
    return ok() ? kOk : std::get<Status>(state_);
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  T& value() {
    CHECK(ok());
    return std::get<T>(state_);
  }
  const T& value() const {
    CHECK(ok());
    return std::get<T>(state_);
  }

  std::variant<Status, T> state_;
};

}  // namespace spry

#define SPRY_CONCAT_INNER(a, b) a##b
#define SPRY_CONCAT(a, b) SPRY_CONCAT_INNER(a, b)

// SPRY_RETURN_IF_ERROR(Load());
#define SPRY_RETURN_IF_ERROR(expression)                                        \
  do {                                                                          \
    if (auto spry_status = (expression); !spry_status.ok()) return spry_status; \
  } while (false)

// SPRY_ASSIGN_OR_RETURN(Config config, ReadConfig(path));
#define SPRY_ASSIGN_OR_RETURN(declaration, expression) \
  SPRY_ASSIGN_OR_RETURN_INNER(SPRY_CONCAT(spry_result_, __LINE__), declaration, expression)
#define SPRY_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                        \
  if (!result.ok()) return result.status();                          \
  declaration = *std::move(result)
