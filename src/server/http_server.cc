#include "server/http_server.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/connection.h"
#include "server/listener.h"

namespace spry {
namespace {

namespace asio = boost::asio;

using Executor = asio::io_context::executor_type;
using Stream = asio::posix::basic_stream_descriptor<Executor>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Executor>;

constexpr int kAcceptsAtOnce = 64;  // then others have their turn
// Descriptors for everything that is no connection: model files, the log, devices.
constexpr int64_t kReservedDescriptors = 64;
// Connections over the limit that are told so at one time; further ones are just closed.
constexpr int kRefusalsAtOnce = 64;
// Until descriptors or memory may be free again.
constexpr std::chrono::milliseconds kAcceptPause{100};
// A peer whose machine is gone sends nothing, not even an end: found within 30 + 3 x 10 s.
constexpr int kKeepAliveIdleSeconds = 30;
constexpr int kKeepAliveIntervalSeconds = 10;
constexpr int kKeepAliveProbes = 3;

// Where connections come in.
struct Entrance {
  Entrance(asio::io_context& io, int listening)
      : socket(io.get_executor(), listening), pause(io.get_executor()) {}
  Stream socket;
  Timer pause;
  bool waits = false;  // for a connection, or for the pause's end
};

void SetTcpOptions(int socket) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes);
}

// Returns how many descriptors there may be.
int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    rlimit raised = limit;
    raised.rlim_cur = raised.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT32_MAX));
}

// One call that finds no memory must not be the last: it is made again when there is more to do.
void CallSafely(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception&) {
  }
}

// Calls `ready` whenever the caller's descriptor can be read.
class Watcher : public std::enable_shared_from_this<Watcher> {
 public:
  Watcher(asio::io_context& io, int descriptor, std::function<void()> ready)
      : stream_(io.get_executor(), descriptor), ready_(std::move(ready)) {}
  ~Watcher() { stream_.release(); }

  void Await() {
    if (waits_) return;
    stream_.async_wait(Stream::wait_read, [self = shared_from_this()](const auto& error) {
      self->waits_ = false;
      if (error) return;
      CallSafely(self->ready_);
      self->Await();
    });
    waits_ = true;
  }

 private:
  Stream stream_;
  const std::function<void()> ready_;
  bool waits_ = false;
};

// Calls `then` at each signal.
class Catcher : public std::enable_shared_from_this<Catcher> {
 public:
  Catcher(asio::io_context& io, int signal, std::function<void()> then)
      : signals_(io, signal), then_(std::move(then)) {}

  void Await() {
    if (waits_) return;
    signals_.async_wait([self = shared_from_this()](const auto& error, int) {
      self->waits_ = false;
      if (error) return;
      CallSafely(self->then_);
      self->Await();
    });
    waits_ = true;
  }

 private:
  asio::signal_set signals_;
  const std::function<void()> then_;
  bool waits_ = false;
};

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const HttpServerOptions& options, HttpHandler handler) {
    set_.limits = options.limits;
    set_.bodies = std::make_shared<BodyBudget>(options.limits.all_bodies_bytes);
    set_.answers = std::make_shared<BodyBudget>(options.limits.all_answers_bytes);
    set_.handler = std::move(handler);
    set_.check_head = options.check_head;
    set_.on_refused = options.on_refused;
    set_.on_cut = options.on_cut;
  }

  ~HttpServerImpl() override { CloseConnections(); }

  Status Open(const HttpServerOptions& options);

  std::string address() const override { return address_; }
  void RemoveSocketFile() const override {
    if (unix_listener_) unix_listener_->RemoveFile();
  }
  void Run() override;
  void Watch(int descriptor, std::function<void()> ready) override;
  void After(std::chrono::milliseconds delay, std::function<void()> then) override;
  void OnSignal(int signal, std::function<void()> then) override;
  void StopAccepting() override;
  int connections() const override { return static_cast<int>(set_.open.size()); }
  void Stop() override { set_.io.stop(); }

 private:
  void AwaitConnection(const std::shared_ptr<Entrance>& entrance);
  void PauseAccepting(const std::shared_ptr<Entrance>& entrance);
  void AcceptFrom(const std::shared_ptr<Entrance>& entrance);
  void Welcome(Descriptor socket);
  void CloseConnections();
  void AwaitEverything();

  // The event loop goes after all that waits on it, what connections rest on after the loop, which
  // keeps them until their last waits are dropped.
  std::unique_ptr<TlsContext> tls_;
  ConnectionSet set_;
  std::optional<UnixListener> unix_listener_;
  std::vector<std::shared_ptr<Entrance>> entrances_;
  std::vector<std::shared_ptr<Watcher>> watchers_;
  std::vector<std::shared_ptr<Catcher>> catchers_;
  std::string address_;
  bool is_tcp_ = true;
};

Status HttpServerImpl::Open(const HttpServerOptions& options) {
  const int64_t descriptors = RaiseDescriptorLimit();
  if (descriptors <= kReservedDescriptors) {
    return ResourceExhausted(fmt::format(
        "the limit on open files (ulimit -n) is {}; the server needs {} and one for each "
        "connection: raise it",
        descriptors, kReservedDescriptors));
  }
  set_.limits.connections = static_cast<int>(
      std::min<int64_t>(descriptors - kReservedDescriptors, set_.limits.connections));
  if (options.tls_cert_file.empty() != options.tls_key_file.empty()) {
    const bool has_cert = !options.tls_cert_file.empty();
    return InvalidArgument(
        fmt::format("{} is missing; --ssl-certfile and --ssl-keyfile go together",
                    has_cert ? "--ssl-keyfile" : "--ssl-certfile"));
  }
  if (!options.tls_cert_file.empty()) {
    SPRY_ASSIGN_OR_RETURN(tls_, TlsContext::Load(options.tls_cert_file, options.tls_key_file));
  }
  std::vector<Descriptor> sockets;
  if (options.unix_socket.empty()) {
    SPRY_ASSIGN_OR_RETURN(TcpListeners listeners, ListenOnTcp(options.host, options.port));
    const bool is_ipv6 = options.host.find(':') != std::string::npos;
    address_ = fmt::format(fmt::runtime(is_ipv6 ? "{}://[{}]:{}" : "{}://{}:{}"),
                           tls_ != nullptr ? "https" : "http", options.host, listeners.port);
    sockets = std::move(listeners.sockets);
  } else {
    SPRY_ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Listen(options.unix_socket));
    unix_listener_.emplace(std::move(listener));
    sockets.push_back(std::move(unix_listener_->socket));
    address_ = "unix:" + options.unix_socket;
    is_tcp_ = false;
  }
  for (Descriptor& socket : sockets) {
    entrances_.push_back(std::make_shared<Entrance>(set_.io, socket.value()));
    socket.Release();
    AwaitConnection(entrances_.back());
  }
  return {};
}

void HttpServerImpl::Run() {
  const auto work = asio::make_work_guard(set_.io);
  for (bool running = true; running;) {
    try {
      AwaitEverything();
      set_.io.run();
      running = false;
    } catch (const std::exception&) {
      // The loop's own memory ran out. A connection it was about is lost; the rest goes on.
    }
  }
  CloseConnections();
}

// Whatever does not wait, for want of memory, does from now on.
void HttpServerImpl::AwaitEverything() {
  for (const auto& entrance : entrances_) AwaitConnection(entrance);
  for (const auto& watcher : watchers_) watcher->Await();
  for (const auto& catcher : catchers_) catcher->Await();
}

void HttpServerImpl::CloseConnections() {
  while (!set_.open.empty()) std::shared_ptr(set_.open.begin()->second)->Close();
}

void HttpServerImpl::AwaitConnection(const std::shared_ptr<Entrance>& entrance) {
  if (entrance->waits) return;
  entrance->socket.async_wait(Stream::wait_read, [this, entrance](const auto& error) {
    entrance->waits = false;
    if (!error && entrance->socket.is_open()) AcceptFrom(entrance);
  });
  entrance->waits = true;
}

// Too many descriptors, or too little memory: the connections wait in the kernel, and so do we.
void HttpServerImpl::PauseAccepting(const std::shared_ptr<Entrance>& entrance) {
  entrance->pause.expires_after(kAcceptPause);
  entrance->pause.async_wait([this, entrance](const auto& error) {
    entrance->waits = false;
    if (!error && entrance->socket.is_open()) AwaitConnection(entrance);
  });
  entrance->waits = true;
}

void HttpServerImpl::AcceptFrom(const std::shared_ptr<Entrance>& entrance) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Descriptor socket(
        accept4(entrance->socket.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.value() < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return PauseAccepting(entrance);
      }
      // Else there is none left, or one was gone again already: the next wait will tell.
      break;
    }
    try {
      Welcome(std::move(socket));
    } catch (const std::exception&) {
      return PauseAccepting(entrance);
    }
  }
  AwaitConnection(entrance);
}

void HttpServerImpl::Welcome(Descriptor socket) {
  const int limit = set_.limits.connections;
  if (connections() >= limit + kRefusalsAtOnce) return;
  if (is_tcp_) SetTcpOptions(socket.value());
  std::unique_ptr<Transport> transport =
      tls_ != nullptr ? tls_->Accept(socket.value()) : MakePlainTransport(socket.value());
  if (transport == nullptr) return;
  const auto connection = std::make_shared<Connection>(set_, socket.value(), std::move(transport));
  socket.Release();
  set_.open.emplace(connection.get(), connection);
  if (connections() <= limit) {
    connection->Start();
  } else {
    connection->StartRefusing(
        ErrorAnswer(503, fmt::format("all {} connections are in use; try again later", limit)));
  }
}

void HttpServerImpl::Watch(int descriptor, std::function<void()> ready) {
  watchers_.push_back(std::make_shared<Watcher>(set_.io, descriptor, std::move(ready)));
  watchers_.back()->Await();
}

void HttpServerImpl::After(std::chrono::milliseconds delay, std::function<void()> then) {
  const auto timer = std::make_shared<Timer>(set_.io.get_executor());
  timer->expires_after(delay);
  timer->async_wait([timer, then = std::move(then)](const auto& error) {
    if (!error) then();
  });
}

void HttpServerImpl::OnSignal(int signal, std::function<void()> then) {
  catchers_.push_back(std::make_shared<Catcher>(set_.io, signal, std::move(then)));
  catchers_.back()->Await();
}

void HttpServerImpl::StopAccepting() {
  for (const auto& entrance : entrances_) {
    boost::system::error_code ignored;
    entrance->socket.close(ignored);
    entrance->pause.cancel();
  }
  entrances_.clear();
  unix_listener_.reset();
  set_.draining = true;
  std::vector<std::shared_ptr<Connection>> connections;
  for (const auto& [key, connection] : set_.open) connections.push_back(connection);
  for (const auto& connection : connections) connection->FinishSoon();
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const HttpServerOptions& options,
                                                       HttpHandler handler) {
  try {
    auto server = std::make_unique<HttpServerImpl>(options, std::move(handler));
    SPRY_RETURN_IF_ERROR(server->Open(options));
    return std::unique_ptr<HttpServer>(std::move(server));
  } catch (const std::exception& e) {
    return Internal(fmt::format("the server cannot be set up: {}", e.what()));
  }
}

}  // namespace spry
