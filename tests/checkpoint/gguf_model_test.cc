#include "checkpoint/gguf_model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/gguf_vocab.h"
#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/heap_meter.h"

namespace spry {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Result<Checkpoint> Open(const TinyGguf& file) {
  const TemporaryFolder folder;
  return OpenCheckpoint(folder.Write("model.gguf", file.Bytes()), {});
}

std::string OpenError(const TinyGguf& file) {
  const Result<Checkpoint> opened = Open(file);
  return opened.ok() ? "accepted" : opened.status().message();
}

TEST(GgufModel, ReadsTheConfig) {
  const auto opened = OpenCheckpoint(Golden("types.gguf"), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->format, "gguf");
  const ModelConfig& config = opened->config;
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.dtype, DType::kBF16);
  EXPECT_EQ(config.vocab_size, 24);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 32);
  EXPECT_EQ(config.num_layers, 1);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_position, 512);
  EXPECT_FLOAT_EQ(static_cast<float>(config.norm_epsilon), 1e-5f);
  EXPECT_EQ(config.rope_theta, 50000.0);
  EXPECT_TRUE(config.rope_interleaved);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.bos_token, std::nullopt);
  EXPECT_THAT(config.eos_tokens, ElementsAre(TokenId(2), TokenId(0)));  // eos, then eot
}

TEST(GgufModel, ReadsTheVocabulary) {
  const auto opened = OpenCheckpoint(Golden("types.gguf"), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const VocabSource& vocab = *opened->vocab;
  ASSERT_EQ(vocab.pieces.size(), 24u);
  EXPECT_EQ(vocab.pieces[10], "\u0120ab");
  ASSERT_EQ(vocab.merges.size(), 4u);
  EXPECT_EQ(vocab.merges[2], (std::pair<std::string, std::string>("\u0120a", "b")));
  ASSERT_EQ(vocab.added_tokens.size(), 4u);
  EXPECT_EQ(vocab.added_tokens[2].content, "<|im_end|>");
  EXPECT_TRUE(vocab.added_tokens[2].special);
  EXPECT_EQ(vocab.added_tokens[3].id, TokenId(3));
  EXPECT_FALSE(vocab.added_tokens[3].special);  // user defined
  EXPECT_EQ(vocab.eos, TokenId(2));
  EXPECT_THAT(vocab.end_of_turn, ElementsAre(TokenId(0)));
  EXPECT_EQ(vocab.chat_template, "{{ messages[0].content }}");
}

// What keeps opening SmolLM2 (49,152 tokens, 48,900 merges) at a few milliseconds.
TEST(GgufModel, AVocabularyCostsNoAllocationForEachToken) {
  constexpr int kTokens = 49152;
  std::vector<std::string> tokens(kTokens);
  std::vector<std::string> merges(kTokens);
  for (int i = 0; i < kTokens; ++i) {
    tokens[i] = fmt::format("t{}", i);
    merges[i] = fmt::format("l{} r{}", i, i);
  }
  const GgufBytes bytes = std::move(GgufBytes()
                                        .Head(0, 4)
                                        .KeyText("tokenizer.ggml.model", "gpt2")
                                        .KeyText("tokenizer.ggml.pre", "gpt-2")
                                        .KeyTexts("tokenizer.ggml.tokens", tokens)
                                        .KeyTexts("tokenizer.ggml.merges", merges));
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.Write("vocab.gguf", bytes.bytes());
  ResetHeapMeter();
  const Result<GgufFile> file = ReadGguf(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const Result<VocabSource> vocab = GgufVocab(file->metadata);
  ASSERT_TRUE(vocab.ok()) << vocab.status().message();
  EXPECT_LT(HeapRequests(), 1000);
  EXPECT_EQ(vocab->pieces.back(), "t49151");
  EXPECT_EQ(vocab->merges.back().second, "r49151");
}

// B011: an absent key is no id, not llama.cpp's 11.
TEST(GgufModel, AbsentIdsAreAbsent) {
  const auto opened = Open(TinyGguf());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->vocab->bos, std::nullopt);
  EXPECT_EQ(opened->vocab->eos, std::nullopt);
  EXPECT_FALSE(opened->vocab->add_bos);
  EXPECT_EQ(opened->config.bos_token, std::nullopt);
  EXPECT_THAT(opened->config.eos_tokens, IsEmpty());
  EXPECT_THAT(OpenError({.more_keys = {{"tokenizer.ggml.bos_token_id", 4}}}),
              HasSubstr("\"tokenizer.ggml.bos_token_id\" is 4, expected an integer from 0 to 3"));
}

TEST(GgufModel, DefaultsAreThoseOfLlamaCpp) {
  const ModelConfig config = Open(TinyGguf())->config;
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.rope_scaling.kind, RopeScaling::Kind::kNone);
  EXPECT_EQ(config.rope_attention_factor, 1.0);
}

// A block_count that is too small left layers out without a word, and the text was wrong.
TEST(GgufModel, EveryLayerOfTheFileIsCounted) {
  std::string bytes = ReadBytes(Golden("types.gguf"));
  for (size_t at = bytes.find("blk.0."); at != std::string::npos; at = bytes.find("blk.0.", at)) {
    bytes[at + 4] = '1';
  }
  const TemporaryFolder folder;
  EXPECT_THAT(
      OpenCheckpoint(folder.Write("model.gguf", bytes), {}).status().message(),
      AllOf(HasSubstr("tensor 'blk.1."), HasSubstr("is of layer 1, but llama.block_count is 1")));
}

TEST(GgufModel, NamesTheMissingKey) {
  for (const char* key :
       {"general.architecture", "llama.context_length", "llama.embedding_length",
        "llama.block_count", "llama.feed_forward_length", "llama.attention.head_count",
        "llama.attention.layer_norm_rms_epsilon", "tokenizer.ggml.model", "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges"}) {
    EXPECT_THAT(OpenError({.without_key = key}), HasSubstr(fmt::format("\"{}\" is missing", key)));
  }
}

TEST(GgufModel, HeadSizeMayBeStated) {
  const auto opened = Open({.more_keys = {{"llama.attention.key_length", 6},
                                          {"llama.attention.value_length", 6},
                                          {"llama.rope.dimension_count", 6}}});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->config.head_dim, 6);
  EXPECT_THAT(OpenError({.more_keys = {{"llama.rope.dimension_count", 2}}}),
              HasSubstr("\"llama.rope.dimension_count\" is 2, expected 4, the size of a head"));
  EXPECT_THAT(OpenError({.more_keys = {{"llama.attention.head_count_kv", 3}}}),
              HasSubstr("2 attention heads cannot share 3 key/value heads evenly"));
}

TEST(GgufModel, LinearScaling) {
  const auto opened = Open({.more_keys = {{"llama.rope.scaling.factor", 4}}});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->config.rope_scaling.kind, RopeScaling::Kind::kLinear);
  EXPECT_EQ(opened->config.rope_scaling.factor, 4.0);
}

// Without original_context_length the context that the model was made for is the original one.
TEST(GgufModel, LongRope) {
  const auto keys = [] { return GgufBytes().KeyText("llama.rope.scaling.type", "longrope"); };
  const auto plain = Open({.other_keys = keys(), .other_key_count = 1});
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->config.rope_scaling.kind, RopeScaling::Kind::kLongRope);
  EXPECT_EQ(plain->config.rope_scaling.factor, 1.0);
  EXPECT_EQ(plain->config.rope_scaling.original_max_position, 64.0);
  EXPECT_EQ(plain->config.rope_attention_factor, 1.0);
  GgufBytes more = keys();
  more.KeyU32("llama.rope.scaling.original_context_length", 16)
      .KeyF32("llama.rope.scaling.attn_factor", 1.25f);
  const auto stated = Open({.other_keys = more, .other_key_count = 3});
  ASSERT_TRUE(stated.ok()) << stated.status().message();
  EXPECT_EQ(stated->config.rope_scaling.original_max_position, 16.0);
  EXPECT_EQ(stated->config.rope_attention_factor, 1.25);
  GgufBytes yarn = std::move(GgufBytes().KeyText("llama.rope.scaling.type", "yarn"));
  EXPECT_THAT(
      OpenError({.other_keys = yarn, .other_key_count = 1}),
      HasSubstr("\"llama.rope.scaling.type\" is 'yarn', expected none, linear or longrope"));
}

// llama.cpp reads these keys as a number or as one for each layer.
TEST(GgufModel, NumbersForEachLayerMustAgree) {
  constexpr char kKey[] = "llama.attention.head_count_kv";
  const auto open = [&](const std::vector<uint32_t>& values) {
    return Open({.other_keys = std::move(GgufBytes().KeyU32s(kKey, values)), .other_key_count = 1});
  };
  const auto same = open({1, 1, 1});
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_EQ(same->config.num_kv_heads, 1);
  EXPECT_THAT(
      open({1, 2}).status().message(),
      HasSubstr("head_count_kv\" is 1 and 2 in different layers, expected the same in all"));
  EXPECT_THAT(open({}).status().message(), HasSubstr("expected an integer from 1"));
  EXPECT_THAT(open({0, 0}).status().message(), HasSubstr("expected an integer from 1"));
}

TEST(GgufModel, RefusesWhatItDoesNotServe) {
  EXPECT_THAT(OpenError({.architecture = "qwen3"}),
              HasSubstr("general.architecture 'qwen3', supported: llama"));
  EXPECT_THAT(OpenError({.more_keys = {{"llama.expert_count", 8}}}),
              HasSubstr("mixture of 8 experts"));
}

TEST(GgufModel, NamesAreThoseOfHuggingFace) {
  EXPECT_EQ(HuggingFaceName("output.weight"), "lm_head.weight");
  EXPECT_EQ(HuggingFaceName("output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(HuggingFaceName("token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(HuggingFaceName("blk.11.attn_q.bias"), "model.layers.11.self_attn.q_proj.bias");
  EXPECT_EQ(HuggingFaceName("blk.0.ffn_norm.weight"),
            "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(HuggingFaceName("blk.0.attn_norm.weight"), "model.layers.0.input_layernorm.weight");
  EXPECT_EQ(HuggingFaceName("rope_freqs.weight"), "rope_freqs.weight");
  EXPECT_EQ(HuggingFaceName("blk.0.new_thing.weight"), "blk.0.new_thing.weight");
  EXPECT_EQ(HuggingFaceName("blk.weight"), "blk.weight");
  EXPECT_EQ(HuggingFaceName("nodots"), "nodots");
}

}  // namespace
}  // namespace spry
