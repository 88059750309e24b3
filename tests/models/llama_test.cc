// What devices fuse of a Llama.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/model.h"
#include "ops/attention/attention.h"
#include "ops/linear.h"
#include "tests/models/golden.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

Program TraceTiny(const Fusions& fusions) {
  ModelConfig config = TinyLlamaConfig();
  config.num_layers = 1;
  const Checkpoint checkpoint = DummyCheckpoint(config);
  auto program = TraceModel(config, *checkpoint.weights, {.max_length = 64}, fusions);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return *std::move(program);
}

std::vector<std::string> Names(const Program& program) {
  std::vector<std::string> names;
  for (const OpRecord& op : program.ops) names.emplace_back(OpName(op.id));
  return names;
}

constexpr Fusions kWriteKv = {.write_kv_into_attention = true};
constexpr Fusions kRope = {.write_kv_into_attention = true, .rope_into_attention = true};

TEST(Llama, RopeIsFoldedIntoTheAttentionThatHasItsKeys) {
  EXPECT_THAT(Names(TraceTiny(kWriteKv)), testing::IsSupersetOf({"rope", "attention"}));
  const Program program = TraceTiny(kRope);
  EXPECT_THAT(Names(program), testing::Not(testing::Contains("rope")));
  for (const OpRecord& op : program.ops) {
    if (op.id != OpId::kAttention) continue;
    EXPECT_EQ(op.inputs.size(), 3);
    EXPECT_EQ(op.params.As<AttentionParams>().rope.rotary_dim, TinyLlamaConfig().head_dim);
    EXPECT_EQ(program.weight(op.weights[op.weights.size() - 1]).columns,
              TinyLlamaConfig().head_dim);
  }
}

// Attention that reads the cache alone has keys from write_kv, which must be rotated by then.
TEST(Llama, RopeStaysWhereKeysAreWrittenByAnOpOfTheirOwn) {
  EXPECT_THAT(Names(TraceTiny({.rope_into_attention = true})), testing::Contains("rope"));
}

// Whoever else reads a query or key wants it rotated.
TEST(Llama, RopeStaysWhereSomebodyElseReadsWhatItRotates) {
  Program program = TraceTiny({});
  const auto rope = std::ranges::find(program.ops, OpId::kRope, &OpRecord::id);
  ASSERT_NE(rope, program.ops.end());
  OpRecord reader{
      .id = OpId::kActivation, .inputs = {rope->inputs[0]}, .outputs = {rope->inputs[0]}};
  program.ops.insert(program.ops.end() - 1, reader);
  FuseOps(program, kRope);
  EXPECT_THAT(Names(program), testing::Contains("rope"));
}

}  // namespace
}  // namespace spry
