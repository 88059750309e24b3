// Leads each request to its handler by path and method, after the checks that all share: CORS and
// API keys. What it answers itself (401, 404, 405, preflights) is in OpenAI's form. Filled before
// the server runs, unchanged then.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "server/api_keys.h"
#include "server/http.h"

namespace spry {

struct RouterOptions {
  std::vector<std::string> api_keys;              // --api-key; none: open to all
  std::vector<std::string> allowed_origins{"*"};  // --allowed-origins
};

class Router {
 public:
  explicit Router(RouterOptions options);

  // `pattern` is an exact path, or ends in a parameter, which takes the rest of the path, slashes
  // included, and at least one character: "/v1/models/{id}". HEAD goes to GET's handler. What
  // `check`, if any, refuses does not come to the handler.
  void Add(std::string method, std::string_view pattern, HttpHandler handler,
           HttpHeadCheck check = {});

  // For the server: its handler, and what it asks when it has a request's head.
  void Handle(std::shared_ptr<HttpExchange> exchange) const;
  std::optional<HttpResponse> CheckHead(const HttpRequest& head) const;

 private:
  using Fields = std::vector<std::pair<std::string, std::string>>;
  struct Target {
    HttpHandler handler;
    HttpHeadCheck check;  // may be empty
  };
  struct Route {
    std::string prefix;  // the path, or what comes before its parameter
    bool has_parameter = false;
    std::map<std::string, Target, std::less<>> methods;
  };
  struct Way {
    const HttpHandler* handler = nullptr;
    std::string parameter;
  };

  const Route* Find(std::string_view path) const;
  // Where a request goes, or the answer that it gets without that.
  std::variant<Way, HttpResponse> Lead(const HttpRequest& request) const;
  bool IsListedOrigin(std::string_view origin) const;
  Fields CorsFields(const HttpRequest& request) const;
  HttpResponse AnswerPreflight(const HttpRequest& request) const;

  const ApiKeys keys_;
  const std::vector<std::string> allowed_origins_;
  const bool any_origin_;
  std::vector<Route> routes_;
};

}  // namespace spry
