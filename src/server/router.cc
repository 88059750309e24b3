#include "server/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "server/api_error.h"
#include "server/foreign_paths.h"

namespace spry {
namespace {

// Paths that begin so need an API key, where there are keys.
constexpr std::string_view kGuarded[] = {"/v1", "/tokenize", "/detokenize", "/reset_prefix_cache",
                                         "/server_info"};
constexpr std::string_view kPreflightMethods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";
constexpr std::string_view kPreflightSeconds = "600";

bool IsGuarded(std::string_view path) {
  return std::ranges::any_of(kGuarded,
                             [&](std::string_view prefix) { return path.starts_with(prefix); });
}

std::string WhyNotAllowed(std::string_view authorization) {
  if (authorization.empty()) {
    return "this server needs an API key; send it as \"Authorization: Bearer KEY\"";
  }
  if (!ApiKeys::KeyOf(authorization)) {
    return "\"Bearer \" is missing before the API key; send it as \"Authorization: Bearer KEY\"";
  }
  return "the API key in the Authorization field is not one of this server's";
}

// %XX becomes its byte; a % that no two digits follow stays.
std::string Decoded(std::string_view path) {
  std::string out;
  out.reserve(path.size());
  while (!path.empty()) {
    unsigned char byte = 0;
    const char* digits_end = path.data() + 3;
    if (path[0] == '%' && path.size() >= 3 &&
        std::from_chars(path.data() + 1, digits_end, byte, 16).ptr == digits_end) {
      out += static_cast<char>(byte);
      path.remove_prefix(3);
    } else {
      out += path[0];
      path.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace

Router::Router(RouterOptions options)
    : keys_(options.api_keys),
      allowed_origins_(std::move(options.allowed_origins)),
      any_origin_(std::ranges::find(allowed_origins_, "*") != allowed_origins_.end()) {}

void Router::Add(std::string method, std::string_view pattern, HttpHandler handler,
                 HttpHeadCheck check) {
  const size_t parameter = pattern.find('{');
  const std::string_view prefix = pattern.substr(0, parameter);
  const bool has_parameter = parameter != std::string_view::npos;
  CHECK(!has_parameter || pattern.ends_with('}'));
  const auto is_same = [&](const Route& route) {
    return route.prefix == prefix && route.has_parameter == has_parameter;
  };
  auto route = std::ranges::find_if(routes_, is_same);
  if (route == routes_.end()) {
    routes_.push_back({.prefix = std::string(prefix), .has_parameter = has_parameter});
    route = routes_.end() - 1;
  }
  route->methods[std::move(method)] = {.handler = std::move(handler), .check = std::move(check)};
}

// An exact path comes before a parameter. There are few routes, so looking through them is fast.
const Router::Route* Router::Find(std::string_view path) const {
  const Route* found = nullptr;
  for (const Route& route : routes_) {
    if (!route.has_parameter && route.prefix == path) return &route;
    if (route.has_parameter && path.size() > route.prefix.size() &&
        path.starts_with(route.prefix)) {
      found = &route;
    }
  }
  return found;
}

bool Router::IsListedOrigin(std::string_view origin) const {
  return std::ranges::find(allowed_origins_, origin) != allowed_origins_.end();
}

Router::Fields Router::CorsFields(const HttpRequest& request) const {
  Fields fields;
  const std::string& origin = request.origin;
  if (any_origin_) {
    if (!origin.empty()) fields.emplace_back("Access-Control-Allow-Origin", "*");
    return fields;
  }
  // The answer differs by origin, so a cache must keep one for each, whoever asks first.
  fields.emplace_back("Vary", "Origin");
  if (!origin.empty() && IsListedOrigin(origin)) {
    fields.emplace_back("Access-Control-Allow-Origin", origin);
  }
  return fields;
}

HttpResponse Router::AnswerPreflight(const HttpRequest& request) const {
  if (!any_origin_ && !IsListedOrigin(request.origin)) {
    return ErrorAnswer(
        400, fmt::format("the origin {} is not allowed; see --allowed-origins", request.origin));
  }
  HttpResponse response{.content_type = "text/plain; charset=utf-8", .body = "OK"};
  response.fields = {{"Access-Control-Allow-Methods", std::string(kPreflightMethods)},
                     {"Access-Control-Max-Age", std::string(kPreflightSeconds)}};
  // Named, for a "*" would not include Authorization.
  if (!request.preflight_headers.empty()) {
    response.fields.emplace_back("Access-Control-Allow-Headers", request.preflight_headers);
  }
  return response;
}

std::variant<Router::Way, HttpResponse> Router::Lead(const HttpRequest& request) const {
  if (request.method == "OPTIONS" && !request.origin.empty() && !request.preflight_method.empty()) {
    return AnswerPreflight(request);
  }
  // The guard looks at the path that routes are found by, or "/%761/models" would slip past it.
  const std::string path = Decoded(request.path);
  if (IsGuarded(path) && !keys_.Allow(request.authorization)) {
    HttpResponse response = ErrorAnswer(401, WhyNotAllowed(request.authorization));
    response.fields.emplace_back("WWW-Authenticate", "Bearer");
    return response;
  }
  const Route* const route = Find(path);
  if (route == nullptr) {
    const std::string_view instead = InsteadOf(path);
    return ErrorAnswer(
        404, fmt::format("there is no {} here{}{}", path, instead.empty() ? "" : "; ", instead));
  }
  auto method = route->methods.find(request.method);
  if (method == route->methods.end() && request.method == "HEAD") {
    method = route->methods.find("GET");
  }
  if (method == route->methods.end()) {
    std::string allowed;
    for (const auto& [name, target] : route->methods) {
      allowed += (allowed.empty() ? "" : ", ") + name;
      if (name == "GET" && !route->methods.contains("HEAD")) allowed += ", HEAD";
    }
    HttpResponse response = ErrorAnswer(
        405, fmt::format("{} does not take {}; it takes {}", path, request.method, allowed));
    response.fields.emplace_back("Allow", allowed);
    return response;
  }
  const Target& target = method->second;
  if (target.check) {
    if (std::optional<HttpResponse> refusal = target.check(request)) return *std::move(refusal);
  }
  return Way{.handler = &target.handler,
             .parameter = route->has_parameter ? path.substr(route->prefix.size()) : ""};
}

std::optional<HttpResponse> Router::CheckHead(const HttpRequest& head) const {
  auto led = Lead(head);
  auto* answer = std::get_if<HttpResponse>(&led);
  if (answer == nullptr) return {};
  std::ranges::move(CorsFields(head), std::back_inserter(answer->fields));
  return std::move(*answer);
}

void Router::Handle(std::shared_ptr<HttpExchange> exchange) const {
  HttpRequest& request = exchange->request();
  for (auto& [name, value] : CorsFields(request)) {
    exchange->AddField(std::move(name), std::move(value));
  }
  auto led = Lead(request);
  if (auto* answer = std::get_if<HttpResponse>(&led)) return exchange->Send(std::move(*answer));
  auto& way = std::get<Way>(led);
  request.parameter = std::move(way.parameter);
  (*way.handler)(std::move(exchange));
}

}  // namespace spry
