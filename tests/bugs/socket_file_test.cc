// A server that a signal ended while its model was loading left its Unix socket's file behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tests/app/serve_run.h"
#include "tests/server_rig/server_rig.h"

namespace spry {
namespace {

using ::testing::HasSubstr;
using SocketFile = ServeRun;

// Loading stands still: the chat template is a pipe that nobody writes to.
TEST_F(SocketFile, GoesWithASignalWhileTheModelLoads) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const ProgramResult run = Shell(fmt::format(
        "rm -f pipe; mkfifo pipe; set -m; \"$SPRY\" serve m --load-format dummy --device null "
        "--uds here.sock --chat-template pipe & "
        "for i in $(seq 1000); do [ -S here.sock ] && break; sleep 0.01; done; sleep 0.2; "
        "kill -{} $!; wait $!",
        signal));
    EXPECT_EQ(run.exit_code, 128 + signal) << run.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "here.sock"));
  }
}

TEST_F(SocketFile, GoesWhenTheModelCannotBeLoaded) {
  EXPECT_EQ(Spry("serve nowhere --device null --uds here.sock").exit_code, 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "here.sock"));
}

// Who listens and does not come to accepting is there all the same.
TEST_F(SocketFile, OfABusyListenerStays) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder_ / "busy.sock";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int busy = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(busy, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(busy, 0), 0);
  std::vector<std::unique_ptr<Client>> waiting;
  waiting.push_back(std::make_unique<Client>(path));  // fills the queue
  EXPECT_TRUE(waiting.back()->is_connected());
  const auto server = HttpServer::Listen({.unix_socket = path}, [](const auto&) {});
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.status().message(), HasSubstr("somebody listens there already"));
  close(busy);
}

}  // namespace
}  // namespace spry
