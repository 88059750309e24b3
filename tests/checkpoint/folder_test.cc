// Hugging Face folders as a whole: which files count, and what they say together.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/checkpoint_files.h"

namespace spry {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A copy of a golden folder that a test may spoil.
class ModelFolder : public TemporaryFolder {
 public:
  explicit ModelFolder(const std::string& golden) {
    fs::copy(Golden(golden), path(), fs::copy_options::recursive);
  }
  Result<Checkpoint> Open() const { return OpenCheckpoint(path(), {}); }
  std::string Error() const {
    const Result<Checkpoint> opened = Open();
    return opened.ok() ? "accepted" : opened.status().message();
  }
};

std::string OneTensor(std::string_view name, std::string_view data) {
  return SafetensorsBytes(
      fmt::format(R"({{"{}":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}}}})", name,
                  data.size() / 2, data.size()),
      data);
}

void ExpectGolden(const Result<Checkpoint>& opened, const std::string& values) {
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->format, "safetensors");
  std::vector<WeightHandle> weights = opened->weights->List();
  SortByName(weights);
  EXPECT_TRUE(SameBits(Values(weights), ReadFloats(Golden(values))));
}

TEST(Folder, ReadsShardsOfTransformers) {
  const auto opened = OpenCheckpoint(Golden("tiny-llama"), {});
  ExpectGolden(opened, "tiny-llama.f32");
  EXPECT_TRUE(opened->weights->Get("model.layers.1.self_attn.q_proj.weight", Shape{32, 16}).ok());
  EXPECT_THAT(opened->config.eos_tokens, ElementsAre(TokenId(2), TokenId(7)));
}

TEST(Folder, ReadsOneFileOfTransformers) {
  const auto opened = OpenCheckpoint(Golden("tiny-opt"), {});
  ExpectGolden(opened, "tiny-opt.f32");
}

// B097: a stray file beside the shards counts for nothing; the index decides between two.
TEST(Folder, TheIndexAloneDecides) {
  const ModelFolder folder("tiny-llama");
  folder.Write("model-00004-of-00003.safetensors",
               OneTensor("model.norm.weight", std::string(32, 'x')));
  ExpectGolden(folder.Open(), "tiny-llama.f32");

  std::string index = ReadBytes(folder.path() / "model.safetensors.index.json");
  const size_t file = index.find("model-0", index.find("model.norm.weight"));
  index.replace(file, 11, "model-00004");
  folder.Write("model.safetensors.index.json", index);
  const auto opened = folder.Open();
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const auto norm = opened->weights->Get("model.norm.weight", Shape{16});
  ASSERT_TRUE(norm.ok()) << norm.status().message();
  EXPECT_EQ(static_cast<char>(norm->read()->data[0]), 'x');
}

TEST(Folder, WithoutAnIndexNoNameMayBeThereTwice) {
  const ModelFolder folder("tiny-llama");
  fs::remove(folder.path() / "model.safetensors.index.json");
  ExpectGolden(folder.Open(), "tiny-llama.f32");
  folder.Write("stray.safetensors", OneTensor("model.norm.weight", std::string(32, 'x')));
  EXPECT_THAT(folder.Error(),
              AllOf(HasSubstr("tensor 'model.norm.weight' is there twice"),
                    HasSubstr("model-00003-of-00003.safetensors"), HasSubstr("stray.safetensors")));
}

TEST(Folder, AnIndexMustBeTrue) {
  const ModelFolder folder("tiny-llama");
  const auto with_map = [&](std::string_view map) {
    folder.Write("model.safetensors.index.json", fmt::format(R"({{"weight_map":{}}})", map));
    return folder.Error();
  };
  EXPECT_THAT(with_map(R"({"lost":"model-00001-of-00003.safetensors"})"),
              HasSubstr("model-00001-of-00003.safetensors: there is no tensor 'lost', which"));
  EXPECT_THAT(with_map(R"({"w":"gone.safetensors"})"), HasSubstr("gone.safetensors: cannot open"));
  EXPECT_THAT(with_map(R"({"w":"../w.safetensors"})"),
              HasSubstr("needs the name of a file in the same folder"));
  EXPECT_THAT(with_map(R"({"w":1})"), HasSubstr("needs the name of a file"));
  EXPECT_THAT(with_map("{}"), HasSubstr("expected at least one tensor"));
  EXPECT_THAT(with_map("null"), HasSubstr("\"weight_map\" is missing"));
}

// B095: no lm_head in a tied checkpoint, or one that the config does not want.
TEST(Folder, TheConfigDecidesAboutTiedEmbeddings) {
  const ModelFolder folder("tiny-opt");
  const auto absent = folder.Open();
  ASSERT_TRUE(absent.ok()) << absent.status().message();
  EXPECT_TRUE(absent->config.tied_embeddings);
  EXPECT_FALSE(absent->weights->Has("lm_head.weight"));
  folder.Write("head.safetensors", OneTensor("lm_head.weight", std::string(64, 'x')));
  const auto present = folder.Open();
  ASSERT_TRUE(present.ok()) << present.status().message();
  EXPECT_TRUE(present->config.tied_embeddings);
  EXPECT_TRUE(present->weights->Has("lm_head.weight"));
}

TEST(Folder, OptNamesMayLackTheOuterPrefix) {
  const ModelFolder folder("tiny-opt");
  std::string bytes = ReadBytes(folder.path() / "model.safetensors");
  // The header keeps its length: what each name loses, the text gains as white space.
  size_t removed = 0;
  for (size_t at = 0; (at = bytes.find("\"model.decoder.", at)) != std::string::npos; ++at) {
    bytes.erase(at + 1, 6);
    removed += 6;
  }
  ASSERT_GT(removed, 0u);
  bytes.insert(bytes.find("}}") + 2, std::string(removed, ' '));
  folder.Write("model.safetensors", bytes);
  ExpectGolden(folder.Open(), "tiny-opt.f32");
  EXPECT_TRUE(folder.Open()->weights->Has("model.decoder.embed_tokens.weight"));
}

// The values of the safetensors golden, tied embeddings among them.
TEST(Folder, ReadsPickledWeightsInOneFile) {
  const auto opened = OpenCheckpoint(Golden("tiny-opt-bin"), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->format, "pytorch");
  std::vector<WeightHandle> weights = opened->weights->List();
  EXPECT_TRUE(opened->weights->Has("lm_head.weight"));
  std::erase_if(weights, [](const WeightHandle& w) { return w.name == "lm_head.weight"; });
  SortByName(weights);
  EXPECT_TRUE(SameBits(Values(weights), ReadFloats(Golden("tiny-opt.f32"))));
}

TEST(Folder, ReadsPickledShardsByTheirIndex) {
  const auto opened = OpenCheckpoint(Golden("tiny-llama-bin"), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->format, "pytorch");
  std::vector<WeightHandle> weights = opened->weights->List();
  SortByName(weights);
  EXPECT_TRUE(SameBits(Values(weights), ReadFloats(Golden("tiny-llama.f32"))));
}

TEST(Folder, OtherPicklesBesideTheWeightsCountForNothing) {
  const ModelFolder folder("tiny-llama-bin");
  folder.Write("training_args.bin", "not looked at");
  folder.Write("optimizer.pt", "not looked at");
  EXPECT_TRUE(folder.Open().ok());
  fs::remove(folder.path() / "pytorch_model.bin.index.json");
  EXPECT_TRUE(folder.Open().ok());
  fs::copy(folder.path() / "pytorch_model-00001-of-00002.bin",
           folder.path() / "pytorch_model-00003-of-00003.bin");
  EXPECT_THAT(folder.Error(),
              AllOf(HasSubstr("is there twice"), HasSubstr("pytorch_model-00003-of-00003.bin")));
}

TEST(Folder, SafetensorsGoBeforePickledWeights) {
  const ModelFolder folder("tiny-opt");
  folder.Write("pytorch_model.bin", "not looked at");
  folder.Write("pytorch_model.bin.index.json", "not looked at");
  ExpectGolden(folder.Open(), "tiny-opt.f32");
}

TEST(Folder, SaysWhichWeightsItExpects) {
  const ModelFolder folder("tiny-opt");
  fs::rename(folder.path() / "model.safetensors", folder.path() / "model.gguf");
  EXPECT_THAT(folder.Error(), AllOf(HasSubstr("a GGUF file; open that"), HasSubstr("model.gguf")));
  fs::rename(folder.path() / "model.gguf", folder.path() / "consolidated.00.pth");
  EXPECT_THAT(folder.Error(), AllOf(HasSubstr("no weights; expected model.safetensors.index.json"),
                                    HasSubstr("pytorch_model*.bin, not 'consolidated.00.pth'")));
  fs::remove(folder.path() / "consolidated.00.pth");
  EXPECT_THAT(folder.Error(), HasSubstr("or pytorch_model*.bin"));
  fs::remove(folder.path() / "config.json");
  EXPECT_THAT(folder.Error(), HasSubstr("it has no config.json, as a Hugging Face folder must"));
}

TEST(Folder, SaysWhatAPathMustBe) {
  const TemporaryFolder folder;
  EXPECT_THAT(OpenCheckpoint(folder.path() / "no", {}).status().message(),
              HasSubstr("expected a model folder, a .gguf file or a config.json"));
  EXPECT_THAT(OpenCheckpoint(folder.Write("x.txt", "x"), {}).status().message(),
              HasSubstr("expected a model folder or a .gguf file"));
  EXPECT_THAT(OpenCheckpoint(folder.path() / "x.txt", {.load_format = LoadFormat::kDummy})
                  .status()
                  .message(),
              HasSubstr("dummy weights need a config.json"));
}

}  // namespace
}  // namespace spry
