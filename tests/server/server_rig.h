// A server on a thread of its own with a handler for tests, and a client of plain sockets.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "server/http.h"
#include "server/http_server.h"

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

struct Answer {
  int status = 0;  // 0: the connection ended first
  std::string head;
  std::string body;  // chunks put together

  // Of a header field; empty when absent.
  std::string Field(std::string_view name) const;
};

class Client {
 public:
  explicit Client(int port, const std::string& host = "127.0.0.1");
  explicit Client(const std::string& unix_path);
  virtual ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool is_connected() const { return socket_ >= 0; }
  void Send(std::string_view bytes);
  // A GET without further fields.
  void Get(std::string_view path, std::string_view id = "");
  Answer ReadAnswer(bool has_body = true);
  // The next `count` bytes or what comes before the end.
  std::string Read(size_t count);
  std::string ReadToEnd();
  // True when the server ends or resets the connection with nothing more sent.
  bool IsEnded();
  void FinishSending();
  void Close();
  void Reset();  // by RST

 protected:
  virtual ssize_t Receive(char* to, size_t size);
  virtual ssize_t Put(std::string_view bytes);
  int socket() const { return socket_; }

 private:
  bool Fill();
  std::string TakeLine();

  int socket_ = -1;
  std::string received_;
};

std::string Request(std::string_view method, std::string_view path, std::string_view body = "",
                    std::string_view fields = "");

int OpenDescriptors();

}  // namespace spry
