// The forms of OPT that the goldens do not show: what devices fuse, names without prefixes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models/model.h"
#include "ops/linear.h"
#include "tests/models/golden.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_models.h"

namespace spry {
namespace {

namespace fs = std::filesystem;

// What the CUDA device has.
constexpr Fusions kAllFusions = {.norm_into_linear = true, .write_kv_into_attention = true};

// "layer_norm", "linear", "linear+norm", "linear+residual" ...
std::vector<std::string> Ops(const ModelConfig& config, const Fusions& fusions) {
  const Checkpoint checkpoint = DummyCheckpoint(config);
  const auto program = TraceModel(config, *checkpoint.weights, {.max_length = 64}, fusions);
  EXPECT_TRUE(program.ok()) << program.status().message();
  std::vector<std::string> names;
  for (const OpRecord& op : program->ops) {
    std::string name(OpName(op.id));
    if (op.id == OpId::kLinear) {
      const LinearParams params = op.params.As<LinearParams>();
      if (params.norm != NormKind::kNone) name += "+norm";
      if (params.activation != Activation::kNone) name += "+act";
      if (params.has_residual) name += "+residual";
    }
    names.push_back(name);
  }
  return names;
}

ModelConfig PostNormConfig() {
  ModelConfig config = TinyPostNormOptConfig();
  config.num_layers = 1;
  return config;
}

// After a sum its norm is both the next linear's input and the next sum's other operand: it must
// stay an op of its own.
TEST(Opt, PostNormsAreNotFoldedIntoTheLinearsThatReadThem) {
  EXPECT_THAT(Ops(PostNormConfig(), kAllFusions),
              testing::ElementsAre("stage", "embed", "embed", "linear+residual", "linear",
                                   "attention", "linear+residual", "layer_norm", "linear+act",
                                   "linear+residual", "layer_norm", "gather_samples", "linear",
                                   "linear", "sample", "advance"));
  ModelConfig before = PostNormConfig();
  before.do_layer_norm_before = true;
  EXPECT_THAT(
      Ops(before, kAllFusions),
      testing::ElementsAre("stage", "embed", "embed", "linear+residual", "linear+norm", "attention",
                           "linear+residual", "linear+norm+act", "linear+residual",
                           "gather_samples", "linear+norm", "linear", "sample", "advance"));
}

// The sums after a post-norm take what the norm wrote, not what it read.
TEST(Opt, ResidualsOfPostNormsComeFromTheNorm) {
  const ModelConfig config = TinyPostNormOptConfig();
  const Checkpoint checkpoint = DummyCheckpoint(config);
  const auto program = TraceModel(config, *checkpoint.weights, {.max_length = 64}, kAllFusions);
  ASSERT_TRUE(program.ok()) << program.status().message();
  const OpRecord* norm = nullptr;
  int residuals = 0;
  for (const OpRecord& op : program->ops) {
    if (op.id == OpId::kLayerNorm) norm = &op;
    const bool residual = op.id == OpId::kLinear && op.params.As<LinearParams>().has_residual;
    if (!residual || norm == nullptr) continue;
    EXPECT_EQ(op.inputs[1].buffer, norm->outputs[0].buffer);
    ++residuals;
  }
  EXPECT_EQ(residuals, 2 * config.num_layers - 1);  // before the first norm it is the embedding
}

void Replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

// B100: the published opt-350m names its tensors "decoder. ..."; one saved from the decoder alone
// has neither prefix.
TEST(Opt, NamesMayLackAnyPrefix) {
  for (const std::string prefix : {"model.decoder.", "decoder.", ""}) {
    const TemporaryFolder folder;
    fs::copy(GoldenFolder("opt-350m") / "config.json", folder.path() / "config.json");
    std::ifstream in(GoldenFolder("opt-350m") / "model.safetensors", std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    const size_t length = bytes.find("}}") + 2;
    Replace(bytes, "\"model.decoder.", "\"" + prefix);
    const size_t header = bytes.find("}}") + 2;
    bytes.insert(header, std::string(length - header, ' '));
    std::ofstream(folder.path() / "model.safetensors", std::ios::binary) << bytes;
    const auto checkpoint = OpenCheckpoint(folder.path(), {});
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto program = TraceModel(checkpoint->config, *checkpoint->weights, {.max_length = 64});
    EXPECT_TRUE(program.ok()) << program.status().message();
  }
}

TEST(Opt, AMissingProjectionIsNamed) {
  const auto checkpoint = OpenCheckpoint(GoldenFolder("opt"), {});
  ASSERT_TRUE(checkpoint.ok());
  ModelConfig config = checkpoint->config;
  config.word_embed_proj_dim = 12;
  const auto program = TraceModel(config, *checkpoint->weights, {.max_length = 64});
  ASSERT_FALSE(program.ok());
  EXPECT_THAT(program.status().message(), testing::HasSubstr("embed_tokens.weight"));
  EXPECT_THAT(program.status().message(), testing::HasSubstr("[96, 12]"));
}

TEST(Opt, PositionsBeyondTheTableAreRefusedInEitherForm) {
  for (const ModelConfig& config : {TinyOptConfig(), TinyPostNormOptConfig()}) {
    const Checkpoint checkpoint = DummyCheckpoint(config);
    const auto program =
        TraceModel(config, *checkpoint.weights, {.max_length = config.max_position + 1});
    ASSERT_FALSE(program.ok());
    EXPECT_THAT(program.status().message(), testing::HasSubstr("has room for 512 positions"));
  }
}

}  // namespace
}  // namespace spry
