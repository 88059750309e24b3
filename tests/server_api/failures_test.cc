// The device is lost while requests run: each is told, in the form that its answer has by then.
#include <gtest/gtest.h>

#include <future>

#include "device/cpu/cpu_device.h"
#include "device/null/null_device.h"
#include "tests/server_api/failing_device.h"
#include "tests/server_rig/api_rig.h"

namespace spry {
namespace {

RigOptions FailsAt(uint64_t step, std::promise<void>& when) {
  RigOptions options;
  options.device =
      std::make_unique<FailingDevice>(MakeNullDevice({}), step, when.get_future().share());
  return options;
}

RigOptions FailsAt(uint64_t step) {
  std::promise<void> at_once;
  at_once.set_value();
  return FailsAt(step, at_once);
}

TEST(FailuresTest, AStreamEndsWithTheErrorAndDone) {
  std::promise<void> streams;
  ApiRig rig(FailsAt(5, streams));
  const auto exchange = rig.Send("POST", "/v1/completions",
                                 R"({"prompt":[300],"max_tokens":50,"n":2,"stream":true})");
  while (!exchange->streams()) rig.Turn();
  streams.set_value();
  rig.Run(*exchange);
  const std::vector<std::string> events = exchange->Events();
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(exchange->answer().status, 200);
  EXPECT_EQ(events.back(), "[DONE]");
  const json::value error = json::parse(events[events.size() - 2]).at("error");
  EXPECT_EQ(error.at("type"), "server_error");
  EXPECT_NE(View(error.at("message")).find("fell out"), std::string_view::npos);
  EXPECT_EQ(rig.ended().back().finish, "error");
  EXPECT_EQ(rig.endpoints().running(), 0);
}

TEST(FailuresTest, BeforeItsFirstTokenAStreamIsRefusedWithAStatus) {
  ApiRig rig(FailsAt(0));
  for (const char* stream : {"true", "false"}) {
    const auto exchange =
        rig.Post("/v1/completions", std::string(R"({"prompt":[300],"stream":)") + stream + "}");
    EXPECT_FALSE(exchange->streams());
    EXPECT_TRUE(exchange->answer().status == 500 || exchange->answer().status == 503);
  }
}

// The server is stopped before they end: a stream, one that waits for its first token, a whole
// answer, and a request that is still being read.
TEST(FailuresTest, WhatIsCutIsTold) {
  ApiRig rig({.step_millis = 1, .max_rows = 1});
  const auto stream =
      rig.Send("POST", "/v1/completions", R"({"prompt":[300],"max_tokens":90,"stream":true})");
  while (!stream->streams()) rig.Turn();
  const auto waiting =
      rig.Send("POST", "/v1/completions", R"({"prompt":[300],"max_tokens":90,"stream":true})");
  const auto whole = rig.Send("POST", "/v1/completions", R"({"prompt":[300],"max_tokens":90})");
  const auto large =
      rig.Send("POST", "/v1/completions", "{\"prompt\":\"" + std::string(20000, 'a') + "\"}");
  const auto reset = rig.Send("POST", "/reset_prefix_cache", "");
  EXPECT_EQ(rig.endpoints().running(), 5);
  rig.endpoints().FailAll();
  EXPECT_EQ(rig.endpoints().running(), 0);
  const std::vector<std::string> events = stream->Events();
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_EQ(json::parse(events[events.size() - 2]).at("error").at("code"), "service_unavailable");
  EXPECT_TRUE(stream->done());
  for (const auto& exchange : {waiting, whole, large, reset}) {
    EXPECT_FALSE(exchange->streams());
    EXPECT_EQ(exchange->answer().status, 503);
  }
  EXPECT_EQ(rig.ended().size(), 3u);
  rig.Turn();  // what engine and worker still say finds nobody
}

TEST(FailuresTest, AServerWithoutDeviceIsNotHealthy) {
  ApiRig rig(FailsAt(2));
  EXPECT_EQ(rig.Post("/v1/completions", R"({"prompt":[300]})")->answer().status, 500);
  EXPECT_EQ(rig.Send("GET", "/health", "")->answer().status, 503);
  EXPECT_EQ(rig.Post("/v1/completions", R"({"prompt":[300]})")->answer().status, 503);
}

// Rules that leave nothing to choose are the request's fault, not the server's.
TEST(FailuresTest, RulesThatLeaveNothingAreABadRequest) {
  RigOptions options;
  options.device = *MakeCpuDevice({.threads = 1});
  ApiRig rig(std::move(options));
  const json::object error = rig.Refusal(
      "/v1/completions",
      R"({"prompt":[300],"allowed_token_ids":[301],"stop_token_ids":[301],"min_tokens":2})");
  EXPECT_EQ(error.at("type"), "invalid_request_error");
  EXPECT_NE(View(error.at("message")).find("no token to choose"), std::string_view::npos);
  rig.Ask("/v1/completions", R"({"prompt":[300],"max_tokens":1})");
}

}  // namespace
}  // namespace spry
