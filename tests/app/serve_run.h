// spry serve as a process of its own, over a tiny model on the null device, with its log at hand.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/app/program_run.h"
#include "tests/server_rig/client.h"

namespace spry {

class ServeRun : public ProgramTest {
 protected:
  ServeRun() { MakeModel("m"); }
  ~ServeRun() override {
    if (server_ <= 0) return;
    kill(server_, SIGKILL);
    waitpid(server_, nullptr, 0);
  }

  void Serve(const std::string& flags = "") {
    const std::string command =
        "exec '" SPRY_PROGRAM
        "' serve m --load-format dummy --device null --null-step-us 20000 --port 0 " +
        flags;
    std::filesystem::remove(folder_ / "log");
    server_ = fork();
    ASSERT_GE(server_, 0);
    if (server_ == 0) {
      const int log = open((folder_ / "log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      const bool moved = chdir(folder_.c_str()) == 0 && dup2(log, STDERR_FILENO) >= 0;
      if (moved) execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    const std::string address = "address=http://127.0.0.1:";
    ASSERT_TRUE(AwaitLog(address));
    port_ = std::stoi(Log().substr(Log().find(address) + address.size()));
  }

  std::string Log() { return ReadText(folder_ / "log"); }
  bool AwaitLog(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (Log().find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  }

  void Signal() { ASSERT_EQ(kill(server_, SIGTERM), 0); }
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(server_, &status, 0), server_);
    server_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  static void Post(Client& client, const std::string& body) {
    client.Send(RequestText("POST", "/v1/completions", body, "Content-Type: application/json\r\n"));
  }

  pid_t server_ = -1;
  int port_ = 0;
};

}  // namespace spry
