#include "app/flags.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "app/sampling_fields.h"

namespace spry {
namespace {

struct Parsed {
  DeviceFlags device;
  ModelFlags model;
  SamplingFields sampling;
  std::string error;  // empty: parsed
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed parsed;
  CLI::App parser;
  AddModelFlags(parser, parsed.model);
  AddDeviceFlags(parser, parsed.device);
  AddSamplingFlags(parser, parsed.sampling);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    parser.parse(reversed);
  } catch (const CLI::ParseError& error) {
    parsed.error = error.what();
  }
  return parsed;
}

TEST(FlagsTest, NothingSaidLeavesTheDefaults) {
  const Parsed p = Parse({"some/model"});
  ASSERT_EQ(p.error, "");
  EXPECT_EQ(p.model.model, "some/model");
  EXPECT_EQ(p.device.device, DeviceChoice::kAuto);
  EXPECT_TRUE(p.model.engine.prefix_caching);
  EXPECT_EQ(p.model.engine.runner.compute, std::nullopt);
  EXPECT_EQ(p.model.engine.runner.memory.max_rows, 0);
  EXPECT_EQ(p.model.engine.runner.memory.block_size, 16);
  EXPECT_EQ(p.model.checkpoint.load_format, LoadFormat::kAuto);
  EXPECT_EQ(p.model.checkpoint.quantization, std::nullopt);
  SamplingParams params;
  params.temperature = 0.25;
  ASSERT_TRUE(p.sampling.ApplyTo(params, /*tokenizer=*/nullptr).ok());
  EXPECT_EQ(params.temperature, 0.25);
}

TEST(FlagsTest, EachFlagReachesItsOption) {
  const Parsed p = Parse({"m",
                          "--device",
                          "null",
                          "--null-step-us",
                          "250",
                          "--threads",
                          "3",
                          "--isa",
                          "avx2",
                          "--graph-mode",
                          "piecewise",
                          "--splitting-ops",
                          "attention,sample",
                          "--dtype",
                          "bfloat16",
                          "--kv-cache-dtype",
                          "float32",
                          "--load-format",
                          "dummy",
                          "--quantization",
                          "q8_0",
                          "--seed",
                          "7",
                          "--max-model-len",
                          "100",
                          "--max-num-seqs",
                          "5",
                          "--max-num-batched-tokens",
                          "50",
                          "--kv-cache-memory-bytes",
                          "3M",
                          "--gpu-memory-utilization",
                          "0.5",
                          "--block-size",
                          "32",
                          "--no-enable-prefix-caching",
                          "--long-prefill-token-threshold",
                          "9",
                          "--run-ahead",
                          "8",
                          "--attention-backend",
                          "cpu-reference"});
  ASSERT_EQ(p.error, "");
  EXPECT_EQ(p.device.device, DeviceChoice::kNull);
  EXPECT_EQ(p.device.null_step_us, 250);
  EXPECT_EQ(p.device.cpu.threads, 3);
  EXPECT_EQ(p.device.cpu.isa, CpuIsa::kAvx2);
  EXPECT_EQ(p.device.graphs.mode, GraphMode::kPiecewise);
  EXPECT_EQ(p.device.graphs.splitting_ops, (std::vector{OpId::kAttention, OpId::kSample}));
  const EngineOptions& engine = p.model.engine;
  EXPECT_EQ(engine.runner.compute, DType::kBF16);
  EXPECT_EQ(engine.runner.kv, DType::kF32);
  EXPECT_EQ(p.model.checkpoint.load_format, LoadFormat::kDummy);
  EXPECT_EQ(p.model.checkpoint.quantization, DType::kQ8_0);
  EXPECT_EQ(p.model.seed, 7u);
  EXPECT_EQ(p.model.checkpoint.seed, 7u);
  EXPECT_EQ(engine.seed, 7u);
  EXPECT_EQ(engine.runner.memory.max_model_len, 100);
  EXPECT_EQ(engine.runner.memory.max_rows, 5);
  EXPECT_EQ(engine.runner.memory.max_step_tokens, 50);
  EXPECT_EQ(engine.runner.memory.kv_bytes, 3 << 20);
  EXPECT_EQ(engine.runner.memory.device_memory_share, 0.5);
  EXPECT_EQ(engine.runner.memory.block_size, 32);
  EXPECT_FALSE(engine.prefix_caching);
  EXPECT_EQ(engine.long_prefill_threshold, 9);
  EXPECT_EQ(engine.runner.memory.run_ahead, 8);
  EXPECT_EQ(engine.runner.attention_backend, "cpu-reference");
}

TEST(FlagsTest, SamplingFlagsGoOverTheModelsDefaults) {
  const Parsed p = Parse(
      {"m", "--temperature", "0", "--stop-token-ids", "5,6", "--ignore-eos", "--max-tokens", "3"});
  ASSERT_EQ(p.error, "");
  SamplingParams params = DefaultSampling({.temperature = 0.6, .top_p = 0.9, .top_k = 50});
  EXPECT_EQ(params.temperature, 0.6);
  ASSERT_TRUE(p.sampling.ApplyTo(params, /*tokenizer=*/nullptr).ok());
  EXPECT_EQ(params.temperature, 0.0);
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(params.top_k, 50);
  EXPECT_EQ(params.stop_token_ids, (std::vector<TokenId>{TokenId(5), TokenId(6)}));
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_EQ(params.max_tokens, 3);
}

TEST(FlagsTest, RuleFlagsGoOverTheModelsDefaults) {
  const Parsed p =
      Parse({"m", "--presence-penalty", "0.5", "--frequency-penalty", "-1.5", "--logit-bias",
             "7:-100,8:2.5", "--allowed-token-ids", "7,8,9", "--max-rule-slots", "0"});
  ASSERT_EQ(p.error, "");
  EXPECT_EQ(p.model.engine.runner.memory.max_rule_slots, 0);
  SamplingParams params = DefaultSampling({.repetition_penalty = 1.1});
  ASSERT_TRUE(p.sampling.ApplyTo(params, /*tokenizer=*/nullptr).ok());
  EXPECT_EQ(params.repetition_penalty, 1.1);  // the file's, as nobody said otherwise (B110)
  EXPECT_EQ(params.presence_penalty, 0.5);
  EXPECT_EQ(params.frequency_penalty, -1.5);
  EXPECT_EQ(params.logit_bias, (std::vector<LogitBias>{{TokenId(7), -100.0f}, {TokenId(8), 2.5f}}));
  EXPECT_EQ(params.allowed_token_ids, (std::vector<TokenId>{TokenId(7), TokenId(8), TokenId(9)}));
  const Parsed other = Parse({"m", "--repetition-penalty", "1"});
  ASSERT_TRUE(other.sampling.ApplyTo(params, /*tokenizer=*/nullptr).ok());
  EXPECT_EQ(params.repetition_penalty, 1.0);
}

TEST(FlagsTest, BadWordsNeedATokenizer) {
  const Parsed p = Parse({"m", "--bad-words", "one, two", "--bad-words", "three"});
  ASSERT_EQ(p.error, "");
  EXPECT_EQ(p.sampling.bad_words, (std::vector<std::string>{"one, two", "three"}));
  SamplingParams params;
  const Status status = p.sampling.ApplyTo(params, /*tokenizer=*/nullptr);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("bad_words"), std::string::npos);
}

TEST(FlagsTest, WrongValuesAreRefusedByName) {
  const std::vector<std::vector<std::string>> cases = {
      {"--logit-bias", "7"},
      {"--logit-bias", "a:1"},
      {"--logit-bias", "7:x"},
      {"--max-rule-slots", "-1"},
      {"--device", "gpu"},
      {"--isa", "sse"},
      {"--dtype", "fp32"},
      {"--kv-cache-dtype", "int3"},
      {"--threads", "0"},
      {"--threads", "1025"},

      {"--max-model-len", "1"},
      {"--max-num-seqs", "-1"},
      {"--max-num-batched-tokens", "x"},
      {"--block-size", "4"},
      {"--kv-cache-memory-bytes", "12Q"},
      {"--run-ahead", "65"},
      {"--gpu-memory-utilization", "1.5"},
      {"--graph-mode", "pieces"},
      {"--null-step-us", "-1"},
      {"--load-format", "fast"},
      {"--long-prefill-token-threshold", "-1"},
      {"--seed", "-1"},
      {"--splitting-ops", "attention,softmax"},
      {"--temperature", "-1"},
      {"--temperature", "nan"},
      {"--top-p", "0"},
      {"--min-p", "1.5"},
      {"--top-k", "-2"},
      {"--max-tokens", "-1"},
      {"--min-tokens", "-1"},
      {"--repetition-penalty", "0"},
      {"--presence-penalty", "3"},
      {"--frequency-penalty", "-3"},
      {"--logit-bias", "7:101"},
      {"--logit-bias", "-7:1"},
      {"--stop-token-ids", "-5"},
      {"--allowed-token-ids", "5,-5"},
  };
  for (const std::vector<std::string>& flag : cases) {
    std::vector<std::string> arguments = {"m"};
    arguments.insert(arguments.end(), flag.begin(), flag.end());
    EXPECT_NE(Parse(arguments).error.find(flag[0]), std::string::npos)
        << flag[0] << " " << flag[1] << ": '" << Parse(arguments).error << "'";
  }
}

TEST(FlagsTest, BytesTakeBinarySuffixes) {
  EXPECT_EQ(*ParseBytes("4096"), 4096);
  EXPECT_EQ(*ParseBytes("2K"), 2048);
  EXPECT_EQ(*ParseBytes("3M"), 3 << 20);
  EXPECT_EQ(*ParseBytes("5G"), int64_t{5} << 30);
  for (const char* wrong :
       {"", "K", "-1", "0", "1.5G", "1 G", "1KB", "9999999999G", "99999999999999999999"}) {
    EXPECT_FALSE(ParseBytes(wrong).ok()) << wrong;
  }
}

}  // namespace
}  // namespace spry
