// A server on a thread of its own with a handler for tests.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/http.h"
#include "server/http_server.h"
#include "tests/server_rig/client.h"

namespace spry {

// What it answers:
//   /echo      the method, the path and the body, at once
//   /big       8 MB, at once
//   /stream    a stream that the test drives through its exchange
//   /hold      nothing: the test answers through the exchange
//   /ticks     a stream of 60 lines "tick N" in steps of 1 ms
//   /drop      forgets its exchange
// The exchanges of /stream and /hold are kept under the request's X-Request-Id.
class ServerRig {
 public:
  explicit ServerRig(HttpServerOptions options = {});
  // With a handler of the test's own.
  ServerRig(HttpServerOptions options, HttpHandler handler);
  ~ServerRig();

  // Runs on the I/O thread; returns when it has.
  void OnLoop(const std::function<void(HttpServer&)>& work);

  int port() const { return port_; }
  std::string address() const { return address_; }
  int connections();

  // Of /stream and /hold; waits until it is there.
  std::shared_ptr<HttpExchange> Exchange(const std::string& id);
  void Forget(const std::string& id);
  int left() const { return left_; }
  // True when `left` clients have left, within ten seconds.
  bool AwaitLeft(int count) const;
  // True when `count` connections are open, within ten seconds.
  bool AwaitConnections(int count);

 private:
  void Start(HttpServerOptions options, HttpHandler handler);
  void Handle(const std::shared_ptr<HttpExchange>& exchange);
  void Tick(const std::shared_ptr<HttpExchange>& exchange, int number);

  std::unique_ptr<HttpServer> server_;
  std::string address_;
  int port_ = 0;
  int event_ = -1;
  std::mutex mutex_;
  std::vector<std::function<void()>> work_;
  std::map<std::string, std::shared_ptr<HttpExchange>> exchanges_;  // of the I/O thread
  std::atomic<int> left_{0};
  std::thread thread_;
};

int OpenDescriptors();

}  // namespace spry
