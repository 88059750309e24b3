#include "ops/attention/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

AttentionBackend Backend(std::string_view name) {
  return {.name = name, .activations = {DType::kBF16}, .kvs = {DType::kBF16}, .head_dims = {64}};
}

constexpr AttentionConfig kConfig{
    .activation = DType::kBF16, .kv = DType::kBF16, .head_dim = 64, .v_head_dim = 64};

TEST(AttentionBackend, TheFirstThatServesIsTaken) {
  AttentionBackend ungrouped = Backend("ungrouped");
  ungrouped.grouped_heads = false;
  const AttentionBackend backends[] = {ungrouped, Backend("any")};
  AttentionConfig config = kConfig;
  EXPECT_EQ(*SelectAttentionBackend(backends, config, ""), 0);
  config.grouped_heads = true;
  EXPECT_EQ(*SelectAttentionBackend(backends, config, ""), 1);
}

TEST(AttentionBackend, ARefusalHasAllReasons) {
  AttentionBackend backend = Backend("narrow");
  backend.grouped_heads = false;
  AttentionConfig config = kConfig;
  config.activation = DType::kF32;
  config.head_dim = 80;
  config.block_size = 512;
  config.grouped_heads = config.window = config.soft_cap = config.alibi = config.sinks = true;
  const Status refused = SelectAttentionBackend({&backend, 1}, config, "narrow").status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("narrow: activations are float32, it takes bfloat16"),
                    HasSubstr("the head size is 80, it takes 64"),
                    HasSubstr("the block size is 512, it takes powers of two from 8 to 256"),
                    HasSubstr("query heads share KV heads, it takes as many of both"),
                    HasSubstr("no sliding window"), HasSubstr("no soft cap"), HasSubstr("no alibi"),
                    HasSubstr("no sinks")));
}

}  // namespace
}  // namespace spry
