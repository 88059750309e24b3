// Where the server listens: addresses, Unix sockets, TLS; signals and descriptors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "tests/server/tls_client.h"
#include "tests/server_rig/server_rig.h"
#include "tests/support/cpu_time.h"
#include "tests/support/temporary_folder.h"

namespace spry {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string ListenError(const HttpServerOptions& options) {
  const auto server = HttpServer::Listen(options, [](const auto&) {});
  return server.ok() ? "" : server.status().message();
}

TEST(Listen, Addresses) {
  for (const auto& [host, client_host, address] :
       {std::tuple{"127.0.0.1", "127.0.0.1", "http://127.0.0.1:"},
        std::tuple{"::1", "::1", "http://[::1]:"}, std::tuple{"0.0.0.0", "127.0.0.1", "http://0."},
        std::tuple{"localhost", "127.0.0.1", "http://localhost:"},
        std::tuple{"::", "127.0.0.1", "http://[::]:"}, std::tuple{"::", "::1", "http://[::]:"}}) {
    SCOPED_TRACE(host);
    ServerRig rig({.host = host});
    EXPECT_THAT(rig.address(), ::testing::StartsWith(address));
    Client client(rig.port(), client_host);
    ASSERT_TRUE(client.is_connected());
    client.Get("/echo");
    EXPECT_EQ(client.ReadAnswer().status, 200);
  }
}

TEST(Listen, ErrorsNameTheAddressAndTheReason) {
  ServerRig rig;
  EXPECT_EQ(
      ListenError({.port = rig.port()}),
      fmt::format("cannot listen on 127.0.0.1 port {}: Address already in use; choose another "
                  "--port, or 0 for any free one",
                  rig.port()));
  EXPECT_THAT(ListenError({.host = "203.0.113.7", .port = 0}),
              HasSubstr("203.0.113.7 port 0: Cannot assign requested address"));
  EXPECT_THAT(ListenError({.host = "no such host", .port = 0}), HasSubstr("--host no such host: "));
  EXPECT_THAT(ListenError({.port = 65536}), HasSubstr("--port 65536"));
}

TEST(Listen, ThePortIsFreeAtOnceAgain) {
  int port = 0;
  Client client = [&] {
    ServerRig rig;
    port = rig.port();
    Client connected(port);
    connected.Send(RequestText("GET", "/echo", "", "Connection: close\r\n"));
    EXPECT_EQ(connected.ReadAnswer().status, 200);
    return Client(port);
  }();
  EXPECT_EQ(ListenError({.port = port}), "");
}

TEST(Listen, UnixSocket) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "spry.sock";
  {
    ServerRig rig({.unix_socket = path});
    EXPECT_EQ(rig.address(), "unix:" + path);
    Client client(path);
    client.Get("/echo");
    EXPECT_EQ(client.ReadAnswer().status, 200);
    EXPECT_THAT(ListenError({.unix_socket = path}), HasSubstr("somebody listens there already"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Listen, UnixSocketLeftBehindIsReplaced) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "spry.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int stale = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(stale);
  ASSERT_TRUE(std::filesystem::exists(path));
  {
    ServerRig rig({.unix_socket = path});
    Client client(path);
    client.Get("/echo");
    EXPECT_EQ(client.ReadAnswer().status, 200);
    // Another file in its place is not the server's to remove.
    std::filesystem::remove(path);
    folder.Write("spry.sock", "mine");
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_THAT(ListenError({.unix_socket = path}), HasSubstr("a file there that is no socket"));
  EXPECT_THAT(ListenError({.unix_socket = folder.path() / "no" / "dir"}),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(ListenError({.unix_socket = "/tmp/" + std::string(200, 'x')}),
              HasSubstr("has at most 107"));
}

TEST(Listen, Tls) {
  const TemporaryFolder folder;
  const TlsFiles files = MakeCertificate(folder, "a", KeyKind::kEc);
  ServerRig rig({.tls_cert_file = files.cert, .tls_key_file = files.key});
  EXPECT_THAT(rig.address(), ::testing::StartsWith("https://127.0.0.1:"));
  for (const int version : {kTls12, kTls13}) {
    TlsClient client(rig.port(), version, version);
    ASSERT_TRUE(client.has_handshake());
    const std::string body(300000, 'b');
    client.Send(RequestText("POST", "/echo", body));
    EXPECT_TRUE(client.ReadAnswer().body == "POST /echo " + body);
    client.Send(RequestText("GET", "/big") + RequestText("GET", "/ticks"));
    EXPECT_TRUE(client.ReadAnswer().body == std::string(8 << 20, 'b'));
    EXPECT_THAT(client.ReadAnswer().body, ::testing::EndsWith("tick 59\n"));
  }
  EXPECT_FALSE(TlsClient(rig.port(), kTls11, kTls11).has_handshake());

  // A client that speaks no TLS, or leaves, harms nobody.
  Client plain(rig.port());
  plain.Get("/echo");
  EXPECT_THAT(plain.ReadToEnd(), ::testing::Not(HasSubstr("200")));
  auto leaves = std::make_unique<TlsClient>(rig.port(), kTls12, kTls13);
  leaves->Send(RequestText("GET", "/hold", "", "X-Request-Id: tls\r\n"));
  rig.Exchange("tls");
  leaves.reset();
  EXPECT_TRUE(rig.AwaitLeft(1));
  plain.Close();
  EXPECT_TRUE(rig.AwaitConnections(0));
}

TEST(Listen, TlsHandshakesTimeOut) {
  const TemporaryFolder folder;
  const TlsFiles files = MakeCertificate(folder, "a", KeyKind::kEc);
  ServerRig rig({.tls_cert_file = files.cert,
                 .tls_key_file = files.key,
                 .limits = {.header_time = milliseconds(100)}});
  Client silent(rig.port());
  EXPECT_TRUE(silent.IsEnded());
}

TEST(Listen, TlsErrorsNameFileAndReason) {
  const TemporaryFolder folder;
  const TlsFiles a = MakeCertificate(folder, "a", KeyKind::kEc);
  const TlsFiles b = MakeCertificate(folder, "b", KeyKind::kEc);
  const TlsFiles rsa = MakeCertificate(folder, "rsa", KeyKind::kRsa);
  const std::string no_pem = folder.Write("text", "hello\n");
  const auto error = [&](const std::string& cert, const std::string& key) {
    return ListenError({.port = 0, .tls_cert_file = cert, .tls_key_file = key});
  };
  EXPECT_EQ(error(a.cert, ""), "--ssl-certfile and --ssl-keyfile go together; one is missing");
  EXPECT_EQ(error("/no/such", a.key), "--ssl-certfile /no/such: No such file or directory");
  EXPECT_EQ(error(a.cert, "/no/such"), "--ssl-keyfile /no/such: No such file or directory");
  EXPECT_THAT(error(no_pem, a.key),
              HasSubstr("--ssl-certfile " + no_pem + " holds no certificate "));
  for (const std::string& file : {no_pem, a.cert}) {
    EXPECT_THAT(error(a.cert, file), HasSubstr("--ssl-keyfile " + file + " holds no private key "));
  }
  for (const std::string& key : {b.key, rsa.key}) {
    EXPECT_EQ(error(a.cert, key),
              fmt::format("--ssl-keyfile {} is not the key of the certificate in {}", key, a.cert));
  }
}

// Without descriptors the server waits for some, and does not spin.
TEST(Listen, NoDescriptorsLeft) {
  ServerRig rig;
  Client before(rig.port());
  before.Get("/echo");
  EXPECT_EQ(before.ReadAnswer().status, 200);
  double cpu_begin = 0;
  rig.OnLoop([&](HttpServer&) { cpu_begin = ThreadCpuSeconds(); });

  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t raised = limit.rlim_cur;
  Client waiting(rig.port());  // is accepted
  waiting.Get("/echo");
  EXPECT_EQ(waiting.ReadAnswer().status, 200);
  std::vector<std::unique_ptr<Client>> more;
  const int highest = dup(0);
  limit.rlim_cur = highest + 1;  // room for one client's socket, none for the server's
  setrlimit(RLIMIT_NOFILE, &limit);
  close(highest);
  Client starved(rig.port());
  starved.Get("/echo");
  before.Get("/echo");  // those who are in are served
  EXPECT_EQ(before.ReadAnswer().status, 200);
  std::this_thread::sleep_for(milliseconds(300));
  double cpu = 0;
  rig.OnLoop([&](HttpServer&) { cpu = ThreadCpuSeconds() - cpu_begin; });
  EXPECT_LT(cpu, 0.1);
  EXPECT_EQ(rig.connections(), 2);
  limit.rlim_cur = raised;
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(starved.ReadAnswer().status, 200);
}

TEST(Listen, DescriptorLimitIsRaised) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = 256;
  setrlimit(RLIMIT_NOFILE, &limit);
  {
    ServerRig rig;
    rig.OnLoop([](HttpServer&) {});
    getrlimit(RLIMIT_NOFILE, &limit);
    EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
  }
  limit.rlim_cur = before;
  setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(Listen, SignalsAndTimers) {
  ServerRig rig;
  std::atomic<int> signals{0};
  std::atomic<bool> late{false};
  rig.OnLoop([&](HttpServer& server) {
    server.OnSignal(SIGUSR1, [&] { ++signals; });
    server.After(milliseconds(50), [&] { late = true; });
  });
  EXPECT_FALSE(late);
  for (int i = 1; i <= 2; ++i) {
    kill(getpid(), SIGUSR1);
    while (signals < i) std::this_thread::sleep_for(milliseconds(1));
  }
  while (!late) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(signals, 2);
}

// With an open stream, yet nothing to do.
TEST(Listen, IdleIsAsleep) {
  ServerRig rig;
  Client client(rig.port());
  client.Get("/stream", "idle");
  rig.Exchange("idle");
  double begin = 0;
  double end = 0;
  rig.OnLoop([&](HttpServer&) { begin = ThreadCpuSeconds(); });
  std::this_thread::sleep_for(milliseconds(300));
  rig.OnLoop([&](HttpServer&) { end = ThreadCpuSeconds(); });
  EXPECT_LT(end - begin, 0.003);  // 1 %
  rig.Forget("idle");
}

}  // namespace
}  // namespace spry
