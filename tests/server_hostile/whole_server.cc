#include "tests/server_hostile/whole_server.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "server/http_server.h"
#include "server/router.h"
#include "tests/server_rig/api_rig.h"

namespace spry {
namespace {

constexpr std::chrono::milliseconds kLook{5};
constexpr std::chrono::seconds kPatience{20};

RigOptions Options() {
  return {.max_model_len = 512, .max_rows = 32, .max_queue = 4096, .kv_blocks = 2048};
}

}  // namespace

class WholeServer::Parts {
 public:
  Parts() : api_(Options()) {
    for (Endpoints::Endpoint& endpoint : api_.endpoints().List()) {
      router_.Add(endpoint.method, endpoint.pattern, std::move(endpoint.handler),
                  std::move(endpoint.check));
    }
    auto http = HttpServer::Listen(
        {.port = 0,
         .check_head = [this](const HttpRequest& head) { return router_.CheckHead(head); }},
        [this](auto exchange) { router_.Handle(std::move(exchange)); });
    CHECK(http.ok());
    http_ = *std::move(http);
    const std::string address = http_->address();
    port_ = std::stoi(address.substr(address.rfind(':') + 1));
    http_->Watch(api_.engine().output_event(), [this] { api_.endpoints().OnEngineReady(); });
    Look();
    thread_ = std::thread([this] { http_->Run(); });
  }
  ~Parts() {
    stop_ = true;
    thread_.join();
  }

  int port() const { return port_; }
  int held() const { return held_; }

 private:
  // On the I/O thread.
  void Look() {
    if (stop_) return http_->Stop();
    held_ = http_->connections() + api_.endpoints().running() + api_.engine().live();
    http_->After(kLook, [this] { Look(); });
  }

  ApiRig api_;
  Router router_{RouterOptions{}};
  std::unique_ptr<HttpServer> http_;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> held_{0};  // connections, and what the endpoints and the engine hold
  std::thread thread_;
};

WholeServer::WholeServer() : parts_(std::make_unique<Parts>()) {}
WholeServer::~WholeServer() = default;
int WholeServer::port() const { return parts_->port(); }

bool WholeServer::AwaitQuiet() const {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::this_thread::sleep_for(4 * kLook);  // held() is of the last look
  while (parts_->held() != 0) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

}  // namespace spry
