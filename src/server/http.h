// HTTP as the handlers see it: a request that has arrived whole, and an exchange to answer it
// through. Plain types, so that few files meet the HTTP library. Everything here lives on the
// server's one I/O thread. A handler that throws costs its request an error: 503 for memory that
// can't be had, else 500. Exchanges do not throw: without memory they cut their client off.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/body_budget.h"

namespace spry {

struct HttpRequest {
  std::string method;        // "GET"
  std::string path;          // as sent, without the query; the router decodes its %XX
  std::string parameter;     // what {id} of the route's pattern stood for: the router's to set
  std::string body;          // at most HttpLimits::body_bytes
  BodyLease lease;           // of the memory for bodies: goes where the body goes
  std::string content_type;  // header fields: empty when absent, the first where there are several
  std::string authorization;
  std::string origin;
  std::string preflight_method;   // Access-Control-Request-Method
  std::string preflight_headers;  // Access-Control-Request-Headers
  std::string request_id;  // X-Request-Id, printable ASCII, at most 128 bytes; else one of ours
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> fields;  // further header fields
  std::string refusal = {};  // why the request is refused, for the log; empty: it is not, or has a
                             // line already
};

// One request and its answer: either Send once, or StartStream, any number of Append and Flush, and
// EndStream. Calls after the client has left do nothing. An exchange that is dropped unanswered
// answers 500; one that is dropped in a stream cuts the connection.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // The handler may move out of it, so that a long stream does not keep its request's body.
  virtual HttpRequest& request() = 0;

  // A header field that goes with whatever answer follows.
  virtual void AddField(std::string name, std::string value) = 0;

  virtual void Send(HttpResponse response) = 0;

  // Status and header of an answer that comes in pieces (chunked). Goes with the first Flush.
  virtual void StartStream(HttpResponse head) = 0;
  // Buffers. A client that does not take what was flushed is cut off: it has left. See HttpLimits.
  virtual void Append(std::string_view bytes) = 0;
  // Hands what was appended to the connection, as one write.
  virtual void Flush() = 0;
  virtual void EndStream() = 0;

  // Why the server has cut the client off, or is about to; empty: it has not.
  virtual std::string_view cut() const = 0;

  // Called once, from the event loop and never from within a call above, when the client has left
  // before the answer's end. Replaces what was set before.
  virtual void OnLeave(std::function<void()> left) = 0;
};

using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

// The answer to a request that is refused as soon as its head is known (no body yet), or nothing.
using HttpHeadCheck = std::function<std::optional<HttpResponse>(const HttpRequest& head)>;

}  // namespace spry
