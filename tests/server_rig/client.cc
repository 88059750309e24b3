#include "tests/server_rig/client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/check.h"

namespace spry {
namespace {

constexpr int kPatienceSeconds = 10;

}  // namespace

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
  const timeval patience{.tv_sec = kPatienceSeconds};
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
  Send(RequestText("GET", path, "", id.empty() ? "" : fmt::format("X-Request-Id: {}\r\n", id)));
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

std::string RequestText(std::string_view method, std::string_view path, std::string_view body,
                        std::string_view fields) {
  std::string length;
  if (!body.empty()) length = fmt::format("Content-Length: {}\r\n", body.size());
  return fmt::format("{} {} HTTP/1.1\r\nHost: spry\r\n{}{}\r\n{}", method, path, fields, length,
                     body);
}

}  // namespace spry
