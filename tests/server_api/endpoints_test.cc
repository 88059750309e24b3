#include <gtest/gtest.h>

#include "tests/server_rig/api_rig.h"

namespace spry {
namespace {

json::object Get(ApiRig& rig, std::string path) {
  const auto exchange = rig.Send("GET", std::move(path), "");
  EXPECT_EQ(exchange->answer().status, 200);
  return json::parse(exchange->answer().body).as_object();
}

TEST(EndpointsTest, ModelsAreListedByEveryName) {
  ApiRig rig;
  const json::object list = Get(rig, "/v1/models");
  EXPECT_EQ(list.at("object"), "list");
  const json::value expected = {{"id", "org/tiny"},    {"object", "model"}, {"created", 1700000000},
                                {"owned_by", "spry"},  {"root", "tiny"},    {"parent", nullptr},
                                {"max_model_len", 128}};
  EXPECT_EQ(list.at("data").at(1), expected);
  EXPECT_EQ(json::value(Get(rig, "/v1/models/org/tiny")), expected);
  const auto unknown = rig.Send("GET", "/v1/models/x", "");
  EXPECT_EQ(unknown->answer().status, 404);
  EXPECT_EQ(json::parse(unknown->answer().body).at("error").at("code"), "model_not_found");
}

TEST(EndpointsTest, TokenizeAndBack) {
  ApiRig rig;
  const json::object tokens =
      rig.Ask("/tokenize", R"({"prompt":"hé","return_token_strs":true,"model":"tiny"})");
  EXPECT_EQ(json::value(tokens), json::parse(R"({"count":3,"max_model_len":128,
      "tokens":[104,195,169],"token_strs":["h","\ufffd","\ufffd"]})"));
  EXPECT_EQ(rig.Ask("/detokenize", R"({"tokens":[104,195,169,256]})").at("prompt"), "hé<s>");
  EXPECT_EQ(rig.Ask("/tokenize", R"({"prompt":""})").at("count"), 0);
  EXPECT_EQ(rig.Refusal("/detokenize", R"({"tokens":[4000]})").at("param"), "tokens");
  EXPECT_EQ(rig.Refusal("/detokenize", "{}").at("param"), "tokens");
  EXPECT_EQ(rig.Refusal("/tokenize", "{}").at("param"), "prompt");
  rig.Refusal("/tokenize", R"({"prompt":"a","model":"b"})", 404);
}

TEST(EndpointsTest, DrainingTurnsNewWorkAway) {
  ApiRig rig;
  EXPECT_EQ(rig.Send("GET", "/health", "")->answer().status, 200);
  EXPECT_EQ(rig.Send("GET", "/ping", "")->answer().status, 200);
  const auto running =
      rig.Send("POST", "/v1/completions", R"({"prompt":[300],"max_tokens":50,"stream":true})");
  rig.endpoints().StartDraining();
  EXPECT_EQ(rig.Send("GET", "/health", "")->answer().status, 503);
  const auto refused = rig.Send("POST", "/v1/completions", R"({"prompt":[300]})");
  EXPECT_EQ(refused->answer().status, 503);
  EXPECT_FALSE(refused->answer().fields.empty());
  rig.Run(*running);
  EXPECT_EQ(running->Events().size(), 51u);
  EXPECT_EQ(rig.endpoints().running(), 0);
}

TEST(EndpointsTest, ThePrefixCacheIsForgottenOnlyWhenNobodyUsesIt) {
  ApiRig rig({.step_millis = 1});
  const std::string prompt = R"("prompt":"a long prompt of several blocks",)";
  const auto running =
      rig.Send("POST", "/v1/completions", "{" + prompt + R"("max_tokens":90,"stream":true})");
  rig.Turn();
  EXPECT_EQ(rig.Post("/reset_prefix_cache", "")->answer().status, 503);
  rig.Run(*running);
  EXPECT_EQ(rig.Post("/reset_prefix_cache", "")->answer().body, R"({"reset":true})");
  const json::object answer = rig.Ask("/v1/completions", "{" + prompt + R"("max_tokens":1})");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens_details").at("cached_tokens"), 0);
}

TEST(EndpointsTest, VersionAndInfo) {
  ApiRig rig;
  EXPECT_EQ(json::value(Get(rig, "/version")), json::parse(R"({"version":"1.2.3"})"));
  const json::object info = Get(rig, "/server_info");
  EXPECT_EQ(info.at("device"), "null");
  EXPECT_EQ(info.at("limits").at("max_num_seqs"), 8);
  EXPECT_EQ(info.at("flags"), json::parse(R"({"--port":"1"})"));
}

TEST(EndpointsTest, ThePageLoadsNothingFromElsewhere) {
  ApiRig rig;
  const auto page = rig.Send("GET", "/", "");
  EXPECT_EQ(page->answer().content_type, "text/html; charset=utf-8");
  const std::string& html = page->answer().body;
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  EXPECT_TRUE(html.ends_with("</html>\n"));
  EXPECT_EQ(html.find("http://"), std::string::npos);
  EXPECT_EQ(html.find("https://"), std::string::npos);
  EXPECT_EQ(page->answer().fields[0].first, "Content-Security-Policy");
}

TEST(EndpointsTest, MetricsHaveVllmsNames) {
  ApiRig rig;
  rig.Ask("/v1/completions", R"({"prompt":[300,301],"max_tokens":5,"n":2})");
  const std::string text = rig.Send("GET", "/metrics", "")->answer().body;
  const std::string labels = R"(engine="0",model_name="tiny")";
  const std::string finish = R"(engine="0",finished_reason="length",model_name="tiny")";
  const std::vector<std::string> lines = {
      "vllm:prompt_tokens_total{" + labels + "} 2\n",
      "vllm:generation_tokens_total{" + labels + "} 10\n",
      "vllm:num_requests_running{" + labels + "} 0\n",
      "vllm:time_to_first_token_seconds_count{" + labels + "} 1\n",
      "vllm:inter_token_latency_seconds_count{" + labels + "} 8\n",
      "vllm:e2e_request_latency_seconds_count{" + labels + "} 1\n",
      "vllm:request_queue_time_seconds_count{" + labels + "} 1\n",
      "vllm:request_prefill_time_seconds_count{" + labels + "} 1\n",
      "vllm:request_decode_time_seconds_count{" + labels + "} 1\n",
      "vllm:request_inference_time_seconds_count{" + labels + "} 1\n",
      // Two choices: a prompt of two tokens, then four steps of one.
      "vllm:iteration_tokens_total_sum{" + labels + "} 12\n",
      "vllm:cache_config_info{block_size=\"8\",engine=\"0\",model_name=\"tiny\","
      "num_gpu_blocks=\"2048\"} 1\n",
      "vllm:request_success_total{" + finish + "} 1\n",
      "vllm:request_prompt_tokens_bucket{" + labels + ",le=\"2\"} 1\n"};
  for (const std::string& line : lines) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

// The second request waits for the only row.
TEST(EndpointsTest, ARequestsTimeIsToldInParts) {
  ApiRig rig({.step_millis = 5, .max_rows = 1});
  const auto first =
      rig.Send("POST", "/v1/completions", R"({"prompt":[300],"max_tokens":20,"stream":true})");
  const auto second =
      rig.Send("POST", "/v1/completions", R"({"prompt":[301],"max_tokens":10,"stream":true})");
  rig.Run(*first);
  rig.Run(*second);
  ASSERT_EQ(rig.ended().size(), 2u);
  EXPECT_LT(rig.ended()[0].report.queue_seconds.value(), 0.05);
  const RequestReport& report = rig.ended()[1].report;
  EXPECT_GE(report.queue_seconds.value(), 19 * 0.005);
  EXPECT_GE(report.prefill_seconds.value(), 0.005);
  EXPECT_LT(report.prefill_seconds.value(), 0.095);
  EXPECT_GE(report.decode_seconds, 8 * 0.005);
  EXPECT_DOUBLE_EQ(report.first_token_seconds.value(),
                   report.prompt_seconds + *report.queue_seconds + *report.prefill_seconds);
  EXPECT_GE(report.total_seconds, *report.first_token_seconds + report.decode_seconds);
}

}  // namespace
}  // namespace spry
