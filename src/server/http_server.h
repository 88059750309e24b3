// Listens, reads requests and writes answers: HTTP/1.1 with keep-alive over TCP, TLS or a Unix
// socket. One I/O thread, the one that calls Run, carries every connection. Pipelined requests are
// answered one after another, in order.
//
// Who has left: a client that closes or resets its connection, and also one that only closes its
// sending side (shutdown(SHUT_WR), `nc -N`) while an answer is being made. That is what nginx and
// uvicorn take it for; a client that must wait for a long answer keeps its side open. What such a
// client is to get from a handler that answers at once, it gets.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "server/http.h"

namespace spry {

struct HttpLimits {
  int64_t header_bytes = 16 << 10;
  int64_t body_bytes = int64_t{16} << 20;
  int64_t all_bodies_bytes = int64_t{256} << 20;  // of all connections together
  int64_t all_answers_bytes = int64_t{256}
                              << 20;             // that wait for their readers, but for small ones
  int64_t unsent_bytes = int64_t{1} << 20;       // of one connection; more has less time
  int connections = 65536;                       // at most what RLIMIT_NOFILE leaves room for
  std::chrono::milliseconds header_time{10000};  // from a request's first byte to its head's end
  std::chrono::milliseconds body_time{60000};    // from there to the body's end
  std::chrono::milliseconds idle_time{75000};    // before a connection's first request, and between
  // How long a client may take nothing of its answer, and how long while more than unsent_bytes of
  // it wait. Who takes a little is not cut off, however large the answer is.
  std::chrono::milliseconds write_time{60000};
  std::chrono::milliseconds stall_time{10000};
};

// For the log. Texts live as long as the call.
struct HttpRefusal {
  std::string_view method;  // empty, as the path, when the head was not understood
  std::string_view path;
  int status = 0;
  std::string_view why;
  std::string_view request_id;
};

// Likewise: a client that was cut off behind the end of its answer. (In the midst of one, see
// HttpExchange::cut.)
struct HttpCut {
  std::string_view request_id;
  int64_t unsent = 0;  // bytes
  std::string_view why;
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address or a name; "::" and "0.0.0.0": every interface
  int port = 8000;                 // 0: any free one
  std::string unix_socket;         // --uds: a path, instead of host and port
  std::string tls_cert_file;       // --ssl-certfile and --ssl-keyfile, PEM; both or none
  std::string tls_key_file;
  HttpLimits limits;
  // Asked before a body is waited for; may be empty. What it refuses costs no memory, and its
  // connection ends. Requests that came whole go to the handler, which has to check for itself.
  HttpHeadCheck check_head;
  std::function<void(const HttpRefusal&)> on_refused;  // may be empty
  std::function<void(const HttpCut&)> on_cut;          // likewise
};

class HttpServer {
 public:
  // Raises RLIMIT_NOFILE to its hard limit, binds and listens. Errors name the address and what the
  // system says.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpServerOptions& options,
                                                    HttpHandler handler);
  virtual ~HttpServer() = default;

  // "http://127.0.0.1:8000" or "unix:/run/spry.sock".
  virtual std::string address() const = 0;

  // For a process that is about to end by a signal: a Unix socket's file goes. Any thread's.
  virtual void RemoveSocketFile() const = 0;

  // Serves until Stop.
  virtual void Run() = 0;

  // All of these are to be called on the I/O thread, or before Run.
  // Calls `ready` whenever the descriptor (an eventfd) can be read; `ready` reads it. The
  // descriptor stays the caller's and must outlive this.
  virtual void Watch(int descriptor, std::function<void()> ready) = 0;
  virtual void After(std::chrono::milliseconds delay, std::function<void()> then) = 0;
  virtual void OnSignal(int signal, std::function<void()> then) = 0;
  // No new connections; idle ones are closed, busy ones with their answer's end.
  virtual void StopAccepting() = 0;
  virtual int connections() const = 0;
  // Ends Run, which cuts off what is unfinished: those clients count as having left.
  virtual void Stop() = 0;
};

}  // namespace spry
