#include "tests/tidy/layers.h"

#include <gtest/gtest.h>

namespace spry::tidy {
namespace {

std::vector<std::string> Rules(const std::vector<Finding>& findings) {
  std::vector<std::string> rules;
  for (const Finding& finding : findings) rules.push_back(finding.rule);
  return rules;
}

// A tree of `from`, which includes `to`, and `to` itself.
std::vector<Finding> LayersOf(const std::string& from, const std::string& to) {
  return CheckLayers({{from, "// x\n#include \"" + to + "\"\n"}, {"src/" + to, "// x\n"}});
}

TEST(Layers, DownwardAndOwnFolderAreFine) {
  EXPECT_EQ(Listed(LayersOf("src/engine/engine.cc", "sched/scheduler.h")), "");
  EXPECT_EQ(Listed(LayersOf("src/ops/attention/attention.cc", "ops/stage.h")), "");
  EXPECT_EQ(Listed(LayersOf("src/device/cpu/avx2/dot.cc", "device/cpu/kernel.h")), "");
  EXPECT_EQ(Listed(LayersOf("src/device/cpu/kernel.h", "device/device.h")), "");
}

TEST(Layers, UpwardSidewaysAndUnknownAreFound) {
  EXPECT_EQ(LayersOf("src/kv/block_pool.cc", "sched/scheduler.h"),
            (std::vector<Finding>{
                {"src/kv/block_pool.cc", 2, "kv (layer 1) may not include sched (layer 2)"}}));
  EXPECT_EQ(Rules(LayersOf("src/text/tokenizer.h", "kv/block_pool.h")),
            std::vector<std::string>{"text (layer 1) may not include kv (layer 1)"});
  EXPECT_EQ(Rules(LayersOf("src/misplaced/a.cc", "base/status.h")),
            std::vector<std::string>{"src/misplaced is no folder of the layer table"});
  EXPECT_EQ(LayersOf("src/kv/block_pool.cc", "block_pool.h").size(), 1u);
}

TEST(Layers, DevicesKeepApart) {
  const std::vector<std::string> closed{"device/cpu is for its own files only"};
  EXPECT_EQ(Rules(LayersOf("src/device/null/null_device.cc", "device/cpu/kernel.h")), closed);
  EXPECT_EQ(Rules(LayersOf("src/device/plugin.cc", "device/cpu/kernel.h")), closed);
}

TEST(Layers, IncludeOfNothingIsFound) {
  EXPECT_EQ(CheckLayers({{"src/kv/a.cc", "#include \"base/gone.h\"\n"}}),
            (std::vector<Finding>{{"src/kv/a.cc", 1, "\"base/gone.h\" is no file of src/"}}));
}

TEST(Layers, CommentsAreNoIncludes) {
  EXPECT_EQ(Listed(CheckLayers({{"src/kv/a.cc", "// #include \"app/main.h\"\n"}})), "");
}

TEST(Layers, FormattersNeverReachCuda) {
  const std::vector<SourceFile> files = {
      {"src/device/cuda/norm.cu", "#include \"tensor/shape.h\"\n"},
      {"src/tensor/shape.h", "// x\n\n#include \"base/text.h\"\n"},
      {"src/base/text.h", "// x\n#include <fmt/format.h>\n"},
      {"src/base/host_only.h", "#include <spdlog/spdlog.h>\n"},
  };
  EXPECT_EQ(CheckCudaReach(files),
            (std::vector<Finding>{{"src/base/text.h", 2,
                                   "<fmt/format.h> reaches CUDA code: src/device/cuda/norm.cu -> "
                                   "tensor/shape.h -> base/text.h"}}));
}

TEST(Layers, ThisTree) {
  EXPECT_EQ(Listed(CheckLayers(ThisTree())), "");
  EXPECT_EQ(Listed(CheckCudaReach(ThisTree())), "");
}

}  // namespace
}  // namespace spry::tidy
