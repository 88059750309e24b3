#include "server/listener.h"

#include <errno.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <system_error>

namespace spry {
namespace {

// The kernel cuts it to its own limit (net.core.somaxconn).
constexpr int kBacklog = 4096;
constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

std::string Reason(int error) { return std::generic_category().message(error); }

void SetOption(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<Addresses> Resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.empty() ? nullptr : host.c_str(), "0", &hints, &list);
  if (error != 0) {
    return InvalidArgument(fmt::format("--host {}: {}", host,
                                       error == EAI_SYSTEM ? Reason(errno) : gai_strerror(error)));
  }
  return Addresses(list);
}

in_port_t& PortOf(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}

// Binds to one address; `port` of 0 becomes what the system chose. Returns errno.
int BindTcp(const addrinfo& info, bool alone, int& port, std::vector<Descriptor>& sockets) {
  Descriptor socket(::socket(info.ai_family, kSocketFlags, 0));
  if (socket.value() < 0) return errno;
  SetOption(socket.value(), SOL_SOCKET, SO_REUSEADDR, 1);
  // "::" alone takes IPv4 too; where a name has addresses of both kinds, each gets its own socket.
  if (info.ai_family == AF_INET6) {
    SetOption(socket.value(), IPPROTO_IPV6, IPV6_V6ONLY, alone ? 0 : 1);
  }
  sockaddr_storage address{};
  std::memcpy(&address, info.ai_addr, info.ai_addrlen);
  PortOf(address) = htons(static_cast<uint16_t>(port));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (bind(socket.value(), generic, info.ai_addrlen) != 0) return errno;
  if (listen(socket.value(), kBacklog) != 0) return errno;
  socklen_t size = sizeof address;
  if (getsockname(socket.value(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return errno;
  port = ntohs(PortOf(address));
  sockets.push_back(std::move(socket));
  return 0;
}

Result<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return InvalidArgument(fmt::format("--uds {}: the path has {} bytes; a socket's has at most {}",
                                       path, path.size(), sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// Removes a socket file left behind by a process that is gone. Empty when the path is free now,
// else why it is not.
std::string ClearStale(const std::string& path, const sockaddr_un& address) {
  struct stat file {};
  if (lstat(path.c_str(), &file) != 0) return errno == ENOENT ? "" : Reason(errno);
  if (!S_ISSOCK(file.st_mode)) return "there is a file there that is no socket";
  const Descriptor probe(socket(AF_UNIX, kSocketFlags, 0));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (probe.value() < 0) return Reason(errno);
  if (connect(probe.value(), generic, sizeof address) == 0) return "somebody listens there already";
  // A listener whose queue is full is busy, not gone.
  if (errno == EAGAIN) return "somebody listens there already";
  if (errno != ECONNREFUSED) return Reason(errno);
  return unlink(path.c_str()) == 0 ? "" : Reason(errno);
}

}  // namespace

Descriptor::~Descriptor() {
  if (value_ >= 0) close(value_);
}

Result<TcpListeners> ListenOnTcp(const std::string& host, int port) {
  if (port < 0 || port > 65535) {
    return InvalidArgument(fmt::format("--port {}: ports go from 0 (any free one) to 65535", port));
  }
  SPRY_ASSIGN_OR_RETURN(const Addresses addresses, Resolve(host));
  TcpListeners listeners{.port = port};
  int first_error = 0;
  for (const addrinfo* info = addresses.get(); info != nullptr; info = info->ai_next) {
    const bool alone = addresses->ai_next == nullptr;
    const int error = BindTcp(*info, alone, listeners.port, listeners.sockets);
    // A name may have an address of a kind that this machine does not use.
    const bool is_absent = error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
    if (error != 0 && first_error == 0) first_error = error;
    if (error != 0 && !is_absent) {
      listeners.sockets.clear();
      break;
    }
  }
  if (listeners.sockets.empty()) {
    return Unavailable(fmt::format(
        "cannot listen on {} port {}: {}{}", host, port, Reason(first_error),
        first_error == EADDRINUSE ? "; choose another --port, or 0 for any free one" : ""));
  }
  return listeners;
}

Result<UnixListener> UnixListener::Listen(const std::string& path) {
  SPRY_ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  if (const std::string taken = ClearStale(path, address); !taken.empty()) {
    return Unavailable(fmt::format("cannot listen on --uds {}: {}", path, taken));
  }
  UnixListener listener;
  listener.socket = Descriptor(::socket(AF_UNIX, kSocketFlags, 0));
  struct stat file {};
  if (listener.socket.value() < 0 ||
      bind(listener.socket.value(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
          0 ||
      listen(listener.socket.value(), kBacklog) != 0 || lstat(path.c_str(), &file) != 0) {
    return Unavailable(fmt::format("cannot listen on --uds {}: {}", path, Reason(errno)));
  }
  listener.path_ = path;
  listener.device_ = file.st_dev;
  listener.inode_ = file.st_ino;
  return listener;
}

UnixListener::UnixListener(UnixListener&& other) noexcept
    : socket(std::move(other.socket)),
      path_(std::exchange(other.path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

void UnixListener::RemoveFile() const {
  struct stat file {};
  if (path_.empty() || lstat(path_.c_str(), &file) != 0) return;
  if (file.st_dev == device_ && file.st_ino == inode_) unlink(path_.c_str());
}

}  // namespace spry
