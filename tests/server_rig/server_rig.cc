#include "tests/server_rig/server_rig.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "base/check.h"

namespace spry {
namespace {

constexpr int kTicks = 60;
constexpr std::chrono::seconds kPatience{10};

template <typename F>
bool Eventually(F condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

ServerRig::ServerRig(HttpServerOptions options) {
  Start(std::move(options), [this](const std::shared_ptr<HttpExchange>& e) { Handle(e); });
}

ServerRig::ServerRig(HttpServerOptions options, HttpHandler handler) {
  Start(std::move(options), std::move(handler));
}

void ServerRig::Start(HttpServerOptions options, HttpHandler handler) {
  options.port = 0;
  auto server = HttpServer::Listen(options, std::move(handler));
  if (!server.ok()) fmt::print(stderr, "{}\n", server.status().message());
  CHECK(server.ok());
  server_ = *std::move(server);
  address_ = server_->address();
  if (options.unix_socket.empty()) port_ = std::stoi(address_.substr(address_.rfind(':') + 1));
  event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  server_->Watch(event_, [this] {
    uint64_t count = 0;
    CHECK(read(event_, &count, sizeof count) == sizeof count);
    std::vector<std::function<void()>> work;
    {
      const std::lock_guard lock(mutex_);
      work.swap(work_);
    }
    for (const auto& item : work) item();
  });
  thread_ = std::thread([this] { server_->Run(); });
}

ServerRig::~ServerRig() {
  OnLoop([this](HttpServer& server) {
    exchanges_.clear();
    server.Stop();
  });
  thread_.join();
  server_.reset();
  close(event_);
}

void ServerRig::OnLoop(const std::function<void(HttpServer&)>& work) {
  std::promise<void> done;
  {
    const std::lock_guard lock(mutex_);
    work_.push_back([&] {
      work(*server_);
      done.set_value();
    });
  }
  const uint64_t one = 1;
  CHECK(write(event_, &one, sizeof one) == sizeof one);
  done.get_future().wait();
}

int ServerRig::connections() {
  int count = 0;
  OnLoop([&](HttpServer& server) { count = server.connections(); });
  return count;
}

std::shared_ptr<HttpExchange> ServerRig::Exchange(const std::string& id) {
  std::shared_ptr<HttpExchange> found;
  const bool there = Eventually([&] {
    OnLoop([&](HttpServer&) {
      if (const auto it = exchanges_.find(id); it != exchanges_.end()) found = it->second;
    });
    return found != nullptr;
  });
  CHECK(there);
  return found;
}

void ServerRig::Forget(const std::string& id) {
  OnLoop([&](HttpServer&) { exchanges_.erase(id); });
}

bool ServerRig::AwaitLeft(int count) const {
  return Eventually([&] { return left_ >= count; });
}

bool ServerRig::AwaitConnections(int count) {
  return Eventually([&] { return connections() == count; });
}

void ServerRig::Handle(const std::shared_ptr<HttpExchange>& exchange) {
  HttpRequest& request = exchange->request();
  if (request.path == "/hold" || request.path == "/stream") {
    if (request.path == "/stream") {
      exchange->StartStream({.content_type = "text/event-stream"});
      exchange->Flush();
    }
    const std::string id = request.request_id;
    exchanges_[id] = exchange;
    exchange->OnLeave([this, id] {
      ++left_;
      exchanges_.erase(id);
    });
  } else if (request.path == "/ticks") {
    exchange->StartStream({.content_type = "text/event-stream"});
    Tick(exchange, 0);
  } else if (request.path == "/big") {
    exchange->Send({.content_type = "text/plain", .body = std::string(8 << 20, 'b')});
  } else if (request.path != "/drop") {
    exchange->Send({.content_type = "text/plain",
                    .body = request.method + " " + request.path + " " + request.body});
  }
}

void ServerRig::Tick(const std::shared_ptr<HttpExchange>& exchange, int number) {
  if (number == kTicks) return exchange->EndStream();
  exchange->Append(fmt::format("tick {}\n", number));
  exchange->Flush();
  server_->After(std::chrono::milliseconds(1),
                 [this, exchange, number] { Tick(exchange, number + 1); });
}

int OpenDescriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

}  // namespace spry
