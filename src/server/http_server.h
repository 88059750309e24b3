// Listens, reads requests and writes answers: HTTP/1.1 with keep-alive and pipelining refused, over
// TCP, TLS or a Unix socket. One I/O thread, the one that calls Run, carries every connection.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "server/http.h"

namespace spry {

struct HttpLimits {
  int64_t header_bytes = 16 << 10;
  int64_t body_bytes = int64_t{64} << 20;
  int64_t unsent_bytes = int64_t{1} << 20;  // of one connection
  int connections = 65536;
  std::chrono::seconds header_time{10};  // from the first byte of a request to the end of its head
  std::chrono::seconds body_time{60};
  std::chrono::seconds idle_time{75};    // between requests of a connection
  std::chrono::seconds write_time{60};   // without progress of a write
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address or a name; "::" and "0.0.0.0": every interface
  int port = 8000;                 // 0: any free one
  std::string unix_socket;         // --uds: a path, instead of host and port
  std::string tls_cert_file;       // --ssl-certfile and --ssl-keyfile, PEM; both or none
  std::string tls_key_file;
  HttpLimits limits;
};

class HttpServer {
 public:
  // Binds and listens. Errors name the address and what the system says.
  static Result<std::unique_ptr<HttpServer>> Listen(const HttpServerOptions& options,
                                                    HttpHandler handler);
  virtual ~HttpServer() = default;

  // "http://127.0.0.1:8000" or "unix:/run/spry.sock".
  virtual std::string address() const = 0;

  // Serves until Stop. Raises RLIMIT_NOFILE to its hard limit first.
  virtual void Run() = 0;

  // All of these are to be called on the I/O thread, or before Run.
  // Calls `ready` whenever the descriptor (an eventfd) can be read; the caller reads it.
  virtual void Watch(int descriptor, std::function<void()> ready) = 0;
  virtual void After(std::chrono::milliseconds delay, std::function<void()> then) = 0;
  virtual void OnSignal(int signal, std::function<void()> then) = 0;
  // No new connections; idle ones are closed, busy ones with their answer's end.
  virtual void StopAccepting() = 0;
  virtual int connections() const = 0;
  // Ends Run; what is unfinished is cut off.
  virtual void Stop() = 0;
};

}  // namespace spry
