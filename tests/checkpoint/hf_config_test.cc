#include "checkpoint/hf_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/checkpoint_files.h"

namespace spry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Llama with the fields that a config must have; `more` may repeat none of them.
std::string LlamaJson(std::string_view more) {
  return fmt::format(
      R"({{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":32,)"
      R"("hidden_size":16,"intermediate_size":24,"num_hidden_layers":2,)"
      R"("num_attention_heads":4{}{}}})",
      more.empty() ? "" : ",", more);
}

Result<ModelConfig> Read(std::string_view json) {
  const TemporaryFolder folder;
  return ReadHfConfig(folder.Write("config.json", json));
}

std::string ReadError(std::string_view json) {
  const Result<ModelConfig> config = Read(json);
  if (config.ok()) return "accepted";
  EXPECT_THAT(config.status().message(), HasSubstr("config.json"));
  return config.status().message();
}

TEST(HfConfig, ReadsTransformers5) {
  const auto read = ReadHfConfig(Golden("tiny-llama/config.json"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->architecture, "LlamaForCausalLM");
  EXPECT_EQ(read->dtype, DType::kBF16);
  EXPECT_EQ(read->vocab_size, 32);
  EXPECT_EQ(read->hidden_size, 16);
  EXPECT_EQ(read->intermediate_size, 24);
  EXPECT_EQ(read->num_layers, 2);
  EXPECT_EQ(read->num_heads, 4);
  EXPECT_EQ(read->num_kv_heads, 2);
  EXPECT_EQ(read->head_dim, 8);
  EXPECT_EQ(read->max_position, 256);
  EXPECT_EQ(read->norm_epsilon, 1e-6);
  EXPECT_FALSE(read->tied_embeddings);
  EXPECT_EQ(read->activation, "silu");
  EXPECT_EQ(read->rope_theta, 500000.0);
  EXPECT_FALSE(read->rope_interleaved);
  EXPECT_EQ(read->rope_scaling.kind, RopeScaling::Kind::kLlama3);
  EXPECT_EQ(read->rope_scaling.factor, 8.0);
  EXPECT_EQ(read->rope_scaling.low_freq_factor, 1.0);
  EXPECT_EQ(read->rope_scaling.high_freq_factor, 4.0);
  EXPECT_EQ(read->rope_scaling.original_max_position, 64.0);
  EXPECT_EQ(read->bos_token, TokenId(1));
  EXPECT_THAT(read->eos_tokens, ElementsAre(TokenId(2)));
}

TEST(HfConfig, ReadsTransformers4) {
  const auto read = Read(LlamaJson(
      R"("torch_dtype":"float16","rope_theta":100000,"rope_scaling":null,"num_key_value_heads":1,)"
      R"("rms_norm_eps":1e-05,"tie_word_embeddings":true,"attention_bias":true,"mlp_bias":true,)"
      R"("max_position_embeddings":8192,"bos_token_id":null,"eos_token_id":[3,5],)"
      R"("head_dim":null)"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->dtype, DType::kF16);
  EXPECT_EQ(read->rope_theta, 100000.0);
  EXPECT_EQ(read->rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(read->num_kv_heads, 1);
  EXPECT_EQ(read->head_dim, 4);
  EXPECT_EQ(read->norm_epsilon, 1e-5);
  EXPECT_EQ(read->max_position, 8192);
  EXPECT_TRUE(read->tied_embeddings);
  EXPECT_TRUE(read->attention_bias);
  EXPECT_TRUE(read->output_bias);
  EXPECT_TRUE(read->mlp_bias);
  EXPECT_EQ(read->bos_token, std::nullopt);
  EXPECT_THAT(read->eos_tokens, ElementsAre(TokenId(3), TokenId(5)));
}

TEST(HfConfig, LlamaDefaults) {
  const auto read = Read(LlamaJson(""));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->dtype, DType::kF32);
  EXPECT_EQ(read->num_kv_heads, 4);
  EXPECT_EQ(read->head_dim, 4);
  EXPECT_EQ(read->norm_epsilon, 1e-6);
  EXPECT_EQ(read->rope_theta, 10000.0);
  EXPECT_EQ(read->max_position, 2048);
  EXPECT_FALSE(read->tied_embeddings);
  EXPECT_FALSE(read->attention_bias);
  EXPECT_THAT(read->eos_tokens, IsEmpty());
}

TEST(HfConfig, ReadsOpt) {
  const auto read = ReadHfConfig(Golden("tiny-opt/config.json"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->architecture, "OPTForCausalLM");
  EXPECT_EQ(read->dtype, DType::kF16);
  EXPECT_EQ(read->intermediate_size, 32);
  EXPECT_EQ(read->num_kv_heads, 4);
  EXPECT_EQ(read->max_position, 16);
  EXPECT_EQ(read->norm_epsilon, 1e-5);
  EXPECT_TRUE(read->tied_embeddings);
  EXPECT_TRUE(read->attention_bias);
  EXPECT_TRUE(read->output_bias);
  EXPECT_TRUE(read->mlp_bias);
  EXPECT_EQ(read->activation, "relu");
  EXPECT_TRUE(read->do_layer_norm_before);
  EXPECT_FALSE(read->remove_final_layer_norm);
  EXPECT_EQ(read->word_embed_proj_dim, 16);

  const auto older =
      Read(R"({"architectures":["OPTForCausalLM"],"vocab_size":32,"hidden_size":16,"ffn_dim":32,)"
           R"("num_hidden_layers":1,"num_attention_heads":4,"word_embed_proj_dim":8,)"
           R"("do_layer_norm_before":false,"_remove_final_layer_norm":true,"enable_bias":false})");
  ASSERT_TRUE(older.ok()) << older.status().message();
  EXPECT_TRUE(older->tied_embeddings);  // OPT's default
  EXPECT_FALSE(older->do_layer_norm_before);
  EXPECT_TRUE(older->remove_final_layer_norm);
  EXPECT_FALSE(older->mlp_bias);
  EXPECT_EQ(older->word_embed_proj_dim, 8);
  EXPECT_THAT(
      ReadError(
          R"({"architectures":["OPTForCausalLM"],"vocab_size":32,"hidden_size":16,"ffn_dim":32,)"
          R"("num_hidden_layers":1,"num_attention_heads":4,)"
          R"("layer_norm_elementwise_affine":false})"),
      HasSubstr("\"layer_norm_elementwise_affine\" is 'false', expected true"));
}

TEST(HfConfig, ReadsTheModelsOfTheBenchmarks) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           std::filesystem::path(SPRY_SOURCE_DIR) / "bench/models")) {
    if (!entry.is_directory()) continue;
    const auto read = ReadHfConfig(entry.path() / "config.json");
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->head_dim * read->num_heads, read->hidden_size) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 5);
}

// B103: both spellings, both generations; an unknown kind is an error.
TEST(HfConfig, RopeScalingIsNeverDropped) {
  constexpr char kFactors[] = R"("factor":8,"low_freq_factor":1,"high_freq_factor":4,)"
                              R"("original_max_position_embeddings":64)";
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    for (const char* spelling : {"rope_type", "type"}) {
      const auto with_kind = [&](std::string_view kind) {
        return LlamaJson(fmt::format(R"("{}":{{"{}":"{}",{}}})", key, spelling, kind, kFactors));
      };
      const auto llama3 = Read(with_kind("llama3"));
      ASSERT_TRUE(llama3.ok()) << llama3.status().message();
      EXPECT_EQ(llama3->rope_scaling.kind, RopeScaling::Kind::kLlama3);
      EXPECT_EQ(llama3->rope_scaling.original_max_position, 64.0);
      const auto linear = Read(with_kind("linear"));
      ASSERT_TRUE(linear.ok()) << linear.status().message();
      EXPECT_EQ(linear->rope_scaling.kind, RopeScaling::Kind::kLinear);
      EXPECT_EQ(linear->rope_scaling.factor, 8.0);
      EXPECT_THAT(ReadError(with_kind("yarn")),
                  AllOf(HasSubstr(spelling), HasSubstr("yarn"),
                        HasSubstr("expected default, linear or llama3")));
    }
  }
  EXPECT_THAT(ReadError(LlamaJson(R"("rope_scaling":{"type":"linear"})")),
              HasSubstr("rope_scaling: \"factor\" is missing"));
  EXPECT_THAT(ReadError(LlamaJson(R"("rope_parameters":{"rope_type":"llama3","factor":8,)"
                                  R"("low_freq_factor":4,"high_freq_factor":4,)"
                                  R"("original_max_position_embeddings":64})")),
              HasSubstr("\"high_freq_factor\" is '4', expected more than low_freq_factor"));
}

// B109: the head size is the config's own when it has one.
TEST(HfConfig, HeadDimIsObeyed) {
  const auto wide = Read(LlamaJson(R"("head_dim":8)"));
  ASSERT_TRUE(wide.ok()) << wide.status().message();
  EXPECT_EQ(wide->head_dim, 8);
  EXPECT_THAT(ReadError(LlamaJson(R"("head_dim":7)")), HasSubstr("head size is 7"));
}

TEST(HfConfig, RefusesByName) {
  EXPECT_THAT(ReadError(R"({"architectures":["Qwen3ForCausalLM"]})"),
              HasSubstr("architecture 'Qwen3ForCausalLM', supported: LlamaForCausalLM, OPTFor"));
  EXPECT_THAT(ReadError(R"({"model_type":"llama"})"), HasSubstr("\"architectures\" is missing"));
  EXPECT_THAT(ReadError(LlamaJson(R"("hidden_act":"mish")")),
              HasSubstr("\"hidden_act\" is '\"mish\"', expected silu"));
  EXPECT_THAT(ReadError(LlamaJson(R"("dtype":"float64")")), HasSubstr("\"dtype\" is '\"float64\""));
  EXPECT_THAT(ReadError(LlamaJson(R"("partial_rotary_factor":0.5)")),
              HasSubstr("\"partial_rotary_factor\" is '0.5', expected 1"));
}

// B098: quantised weights are named, not guessed at.
TEST(HfConfig, RefusesQuantizationByName) {
  EXPECT_THAT(
      ReadError(
          LlamaJson(R"("quantization_config":{"quant_method":"compressed-tensors",)"
                    R"("format":"float-quantized",)"
                    R"("config_groups":{"group_0":{"weights":{"num_bits":8,"type":"float"}}}})")),
      HasSubstr("quant_method 'compressed-tensors', format 'float-quantized', 8-bit 'float' "
                "weights, supported: unquantised safetensors, or GGUF"));
  EXPECT_THAT(ReadError(LlamaJson(R"("quantization_config":{"quant_method":"new"})")),
              HasSubstr("quant_method 'new'"));
  EXPECT_EQ(ReadError(LlamaJson(R"("quantization_config":null)")), "accepted");
}

TEST(HfConfig, ChecksEveryNumber) {
  EXPECT_THAT(ReadError(LlamaJson(R"("num_key_value_heads":3)")),
              HasSubstr("4 attention heads cannot share 3 key/value heads evenly"));
  EXPECT_THAT(ReadError(LlamaJson(R"("num_key_value_heads":0)")),
              HasSubstr("\"num_key_value_heads\" is '0', expected an integer from 1 to 65536"));
  EXPECT_THAT(ReadError(LlamaJson(R"("rms_norm_eps":-1)")), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(ReadError(LlamaJson(R"("eos_token_id":32)")),
              HasSubstr("\"eos_token_id\" is '32', expected an integer from 0 to 31"));
  EXPECT_THAT(ReadError(LlamaJson(R"("bos_token_id":-1)")), HasSubstr("bos_token_id"));
  EXPECT_THAT(ReadError(LlamaJson(R"("hidden_size":17)")),
              HasSubstr("'hidden_size' is there twice"));
  EXPECT_THAT(ReadError("{}"), HasSubstr("\"architectures\" is missing"));
  EXPECT_THAT(ReadError("[]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(ReadError("{"), HasSubstr("is not valid JSON"));
  for (const char* size : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                           "num_attention_heads"}) {
    std::string json = LlamaJson("");
    const size_t key = json.find(fmt::format("\"{}\"", size));
    const size_t value = json.find(':', key) + 1;
    std::string wrong = json;
    wrong.insert(value, "9999999999");
    EXPECT_THAT(ReadError(wrong), AllOf(HasSubstr(size), HasSubstr("expected an integer from 1")));
    json[key + 1] = '_';
    EXPECT_THAT(ReadError(json), HasSubstr(fmt::format("\"{}\" is missing", size)));
  }
}

// B056: every end id of the generation config ends generation.
TEST(GenerationConfig, AddsAllEndIds) {
  ModelConfig config;
  config.vocab_size = 32;
  config.eos_tokens = {TokenId(3), TokenId(7)};
  ASSERT_TRUE(AddGenerationConfig(Golden("tiny-llama/generation_config.json"), config).ok());
  EXPECT_THAT(config.eos_tokens, ElementsAre(TokenId(3), TokenId(7), TokenId(2)));
  EXPECT_EQ(config.sampling_defaults.temperature, 0.6);
  EXPECT_EQ(config.sampling_defaults.top_p, 0.9);
  EXPECT_EQ(config.sampling_defaults.top_k, std::nullopt);
}

TEST(GenerationConfig, ReadsAndChecksDefaults) {
  const TemporaryFolder folder;
  const auto read = [&](std::string_view json) {
    ModelConfig config;
    config.vocab_size = 32;
    const Status status = AddGenerationConfig(folder.Write("generation_config.json", json), config);
    return std::pair(status.message(), config);
  };
  const auto [error, config] =
      read(R"({"top_k":40,"min_p":0.05,"repetition_penalty":1.1,"temperature":null})");
  EXPECT_EQ(error, "");
  EXPECT_EQ(config.sampling_defaults.top_k, 40);
  EXPECT_EQ(config.sampling_defaults.min_p, 0.05);
  EXPECT_EQ(config.sampling_defaults.repetition_penalty, 1.1);
  EXPECT_EQ(config.sampling_defaults.temperature, std::nullopt);
  EXPECT_THAT(read(R"({"top_p":1.5})").first,
              HasSubstr("generation_config.json: \"top_p\" is '1.5', expected a number from"));
  EXPECT_THAT(read(R"({"temperature":"hot"})").first, HasSubstr("\"temperature\" is '\"hot\"'"));
  EXPECT_THAT(read(R"({"eos_token_id":[2,99]})").first, HasSubstr("from 0 to 31, or a list"));
  ModelConfig untouched;
  EXPECT_TRUE(AddGenerationConfig(folder.path() / "absent.json", untouched).ok());
}

}  // namespace
}  // namespace spry
