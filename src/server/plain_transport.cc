#include <errno.h>
#include <sys/socket.h>

#include "server/transport.h"

namespace spry {
namespace {

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(int socket) : socket_(socket) {}

  IoState Handshake() override { return IoState::kDone; }

  IoOutcome Read(std::span<char> to) override {
    const ssize_t n = recv(socket_, to.data(), to.size(), 0);
    if (n > 0) return {.bytes = static_cast<size_t>(n)};
    return {.state = n == 0 ? IoState::kEnd : StateOfError(IoState::kWantRead)};
  }

  IoOutcome Write(std::string_view bytes) override {
    const ssize_t n = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) return {.bytes = static_cast<size_t>(n)};
    return {.state = StateOfError(IoState::kWantWrite)};
  }

  void FinishWriting() override { shutdown(socket_, SHUT_WR); }

 private:
  static IoState StateOfError(IoState when_blocked) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? when_blocked
                                                                     : IoState::kFailed;
  }

  const int socket_;
};

}  // namespace

std::unique_ptr<Transport> MakePlainTransport(int socket) {
  return std::make_unique<PlainTransport>(socket);
}

}  // namespace spry
