#include "server/error_response.h"

#include <fmt/format.h>

namespace spry {
namespace {

std::string_view TypeOf(int status) {
  switch (status) {
    case 400: return "BadRequestError";
    case 401: return "AuthenticationError";
    case 403: return "PermissionDeniedError";
    case 404: return "NotFoundError";
    case 405: return "MethodNotAllowedError";
    case 408: return "RequestTimeoutError";
    case 413: return "PayloadTooLargeError";
    case 417: return "ExpectationFailedError";
    case 429: return "RateLimitError";
    case 431: return "HeaderTooLargeError";
    case 501: return "NotImplementedError";
    case 503: return "ServiceUnavailableError";
    default: return status < 500 ? "BadRequestError" : "InternalServerError";
  }
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte >= 0x80) {
      out += "\\ufffd";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

HttpResponse ErrorResponse(int status, std::string_view message) {
  HttpResponse response{.status = status};
  response.body =
      fmt::format(R"({{"error":{{"message":"{}","type":"{}","param":null,"code":{}}}}})",
                  Escaped(message), TypeOf(status), status);
  return response;
}

}  // namespace spry
