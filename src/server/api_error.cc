#include "server/api_error.h"

#include <new>
#include <utility>

#include "server/json_writer.h"

namespace spry {
namespace {

constexpr const char* kRetrySeconds = "1";

struct Names {
  std::string_view type;
  std::string_view code;  // empty: null
};

Names NamesOf(int status) {
  switch (status) {
    case 401: return {"invalid_request_error", "invalid_api_key"};
    case 429: return {"rate_limit_error", "rate_limit_exceeded"};
    case 503: return {"server_error", "service_unavailable"};
    default: return {status < 500 ? "invalid_request_error" : "server_error", ""};
  }
}

int HttpStatusOf(StatusCode code) {
  switch (code) {
    case StatusCode::kNotFound: return 404;
    case StatusCode::kResourceExhausted: return 429;
    case StatusCode::kUnavailable: return 503;
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnimplemented: return 400;
    default: return 500;
  }
}

// The engine's messages begin with the field: "min_tokens is 9; it must be ...".
std::string FieldOf(const Status& status) {
  const std::string_view message = status.message();
  const std::string_view word = message.substr(0, message.find(' '));
  const std::string_view rest = message.substr(word.size());
  const bool field = status.code() == StatusCode::kInvalidArgument &&
                     (rest.starts_with(" is ") || rest.starts_with(" has "));
  return std::string(field ? word : std::string_view());
}

}  // namespace

ApiError BadRequest(std::string message, std::string param) {
  return {.status = 400, .message = std::move(message), .param = std::move(param)};
}

ApiError ToApiError(const Status& status, std::string param) {
  return {.status = HttpStatusOf(status.code()),
          .message = status.message(),
          .param = param.empty() ? FieldOf(status) : std::move(param)};
}

ApiError ToApiError(const std::exception& failure) {
  if (dynamic_cast<const std::bad_alloc*>(&failure) != nullptr) {
    return {.status = 503, .message = "memory is short; try again later"};
  }
  return {.status = 500, .message = failure.what()};
}

void WriteError(const ApiError& error, std::string& out) {
  const Names names = NamesOf(error.status);
  const std::string_view code = error.code.empty() ? names.code : std::string_view(error.code);
  JsonWriter json(out);
  const auto text_or_null = [&](std::string_view key, std::string_view value) {
    json.Key(key);
    value.empty() ? json.Null() : json.String(value);
  };
  json.BeginObject();
  json.Key("error");
  json.BeginObject();
  json.Key("message");
  json.String(error.message);
  json.Key("type");
  json.String(names.type);
  text_or_null("param", error.param);
  text_or_null("code", code);
  json.EndObject();
  json.EndObject();
}

HttpResponse ErrorAnswer(int status, std::string message) {
  return ErrorAnswer({.status = status, .message = std::move(message)});
}

HttpResponse ErrorAnswer(const ApiError& error) {
  HttpResponse response{.status = error.status, .refusal = error.message};
  if (error.status == 429 || error.status == 503) {
    response.fields.emplace_back("Retry-After", kRetrySeconds);
  }
  WriteError(error, response.body);
  return response;
}

}  // namespace spry
