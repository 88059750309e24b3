// Memory that can't be had, at each allocation that a request makes on the I/O thread in turn: that
// request gets an answer (503 or 500, never a 400) or its connection ends, and the next one is
// served.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "server/router.h"
#include "tests/server_memory/failing_memory.h"
#include "tests/server_rig/api_rig.h"
#include "tests/server_rig/server_rig.h"

namespace spry {
namespace {

class Memory : public ::testing::Test {
 protected:
  Memory()
      : rig_({.check_head = [this](const HttpRequest& head) { return router_.CheckHead(head); }},
             [this](auto exchange) { router_.Handle(std::move(exchange)); }) {
    rig_.OnLoop([this](HttpServer& server) {
      for (Endpoints::Endpoint& endpoint : api_.endpoints().List()) {
        router_.Add(endpoint.method, endpoint.pattern, std::move(endpoint.handler),
                    std::move(endpoint.check));
      }
      server.Watch(api_.engine().output_event(), [this] { api_.endpoints().OnEngineReady(); });
      server.Watch(api_.worker().done_event(), [this] { api_.endpoints().OnWorkerReady(); });
    });
  }

  // On the I/O thread.
  void Arm(int64_t after, int64_t failures) {
    rig_.OnLoop([=](HttpServer&) { memory_failures = {.after = after, .left = failures}; });
  }
  // Returns whether a failure came.
  bool Disarm(int64_t failures) {
    bool came = false;
    rig_.OnLoop([&](HttpServer&) {
      came = memory_failures.left < failures;
      memory_failures = {};
    });
    return came;
  }

  bool AwaitQuiet() {
    for (int i = 0; i < 2000; ++i) {
      int held = 0;
      rig_.OnLoop([&](HttpServer& server) {
        held = api_.endpoints().running() + api_.engine().live() + server.connections();
      });
      if (held == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  int Ask(const std::string& body) {
    Client client(rig_.port());
    client.Send(RequestText("POST", "/v1/completions", body,
                            "Content-Type: application/json\r\nConnection: close\r\n"));
    return client.ReadAnswer().status;
  }

  void FailEverywhere(const std::string& body) {
    for (const int64_t failures : {1, 5}) {
      int refused = 0, cut = 0;
      for (int64_t after = 0;; ++after) {
        Arm(after, failures);
        const int status = Ask(body);
        const bool came = Disarm(failures);
        ASSERT_TRUE(status == 200 || status >= 500 || status == 0) << after << ": " << status;
        refused += status >= 500;
        cut += status == 0;
        ASSERT_TRUE(AwaitQuiet()) << after;
        if (!came) break;
      }
      EXPECT_GE(refused, failures == 1 ? 20 : 0);  // an error's own text needs some, too
      EXPECT_GT(refused + cut, 30);
      EXPECT_EQ(Ask(body), 200);
    }
  }

  ApiRig api_;
  Router router_{RouterOptions{}};
  ServerRig rig_;
};

TEST_F(Memory, OfWholeAnswers) {
  FailEverywhere(R"({"prompt":"hello","max_tokens":4,"n":2,"echo":true,"logprobs":2})");
}

TEST_F(Memory, OfStreams) {
  FailEverywhere(
      R"({"prompt":"hello","max_tokens":4,"stream":true,"n":2,"return_token_ids":true})");
}

TEST_F(Memory, OfRequestsThatTheWorkerReads) {
  FailEverywhere(
      fmt::format(R"({{"prompt":[300],"max_tokens":4,"ignored":"{}"}})", std::string(20'000, 'x')));
}

}  // namespace
}  // namespace spry
