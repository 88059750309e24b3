#include "tests/server/server_rig.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
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

std::string Answer::Field(std::string_view name) const {
  size_t begin = head.find("\r\n");
  while (begin != std::string::npos && begin + 2 < head.size()) {
    begin += 2;
    const size_t end = head.find("\r\n", begin);
    const std::string line = head.substr(begin, end - begin);
    if (line.size() > name.size() && line[name.size()] == ':' &&
        strncasecmp(line.data(), name.data(), name.size()) == 0) {
      return line.substr(line.find_first_not_of(' ', name.size() + 1));
    }
    begin = end;
  }
  return "";
}

Client::Client(int port, const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* list = nullptr;
  CHECK(getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) == 0);
  socket_ = ::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(socket_ >= 0);
  if (connect(socket_, list->ai_addr, list->ai_addrlen) != 0) Close();
  freeaddrinfo(list);
  const timeval patience{.tv_sec = kPatience.count()};
  if (socket_ >= 0) setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

Client::Client(const std::string& unix_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  unix_path.copy(address.sun_path, sizeof address.sun_path - 1);
  socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(socket_ >= 0);
  if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) Close();
}

void Client::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = Put(bytes);
    if (n <= 0) return;  // the server has had enough
    bytes.remove_prefix(n);
  }
}

void Client::Get(std::string_view path, std::string_view id) {
  Send(Request("GET", path, "", id.empty() ? "" : fmt::format("X-Request-Id: {}\r\n", id)));
}

ssize_t Client::Receive(char* to, size_t size) { return recv(socket_, to, size, 0); }

ssize_t Client::Put(std::string_view bytes) {
  return send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

bool Client::Fill() {
  char buffer[16 << 10];
  const ssize_t n = Receive(buffer, sizeof buffer);
  if (n > 0) received_.append(buffer, n);
  return n > 0;
}

std::string Client::TakeLine() {
  size_t end = 0;
  while ((end = received_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return "";
  }
  std::string line = received_.substr(0, end + 2);
  received_.erase(0, end + 2);
  return line;
}

Answer Client::ReadAnswer(bool has_body) {
  Answer answer;
  for (std::string line; !(line = TakeLine()).empty() && line != "\r\n";) answer.head += line;
  if (answer.head.size() < 12) return {};
  answer.status = std::stoi(answer.head.substr(9, 3));
  if (!has_body || answer.status == 100) return answer;
  if (answer.Field("Transfer-Encoding") == "chunked") {
    while (true) {
      const std::string line = TakeLine();
      const size_t size = line.empty() ? 0 : std::stoul(line, nullptr, 16);
      const std::string chunk = Read(size + 2);
      if (size == 0) break;
      answer.body += chunk.substr(0, size);
    }
  } else if (const std::string length = answer.Field("Content-Length"); !length.empty()) {
    answer.body = Read(std::stoul(length));
  } else {
    answer.body = ReadToEnd();
  }
  return answer;
}

std::string Client::Read(size_t count) {
  while (received_.size() < count && Fill()) {
  }
  std::string out = received_.substr(0, count);
  received_.erase(0, count);
  return out;
}

std::string Client::ReadToEnd() {
  while (Fill()) {
  }
  return std::exchange(received_, {});
}

bool Client::IsEnded() {
  char byte = 0;
  errno = 0;
  const ssize_t n = received_.empty() ? recv(socket_, &byte, 1, 0) : 1;
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

void Client::FinishSending() { shutdown(socket_, SHUT_WR); }

void Client::Close() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void Client::Reset() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  Close();
}

std::string Request(std::string_view method, std::string_view path, std::string_view body,
                    std::string_view fields) {
  std::string length;
  if (!body.empty()) length = fmt::format("Content-Length: {}\r\n", body.size());
  return fmt::format("{} {} HTTP/1.1\r\nHost: spry\r\n{}{}\r\n{}", method, path, fields, length,
                     body);
}

int OpenDescriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

}  // namespace spry
