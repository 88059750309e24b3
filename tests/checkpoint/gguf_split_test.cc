#include "checkpoint/gguf_split.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/checkpoint/checkpoint_files.h"

namespace spry {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string Name(int number, int count) {
  return fmt::format("tiny-{:05}-of-{:05}.gguf", number, count);
}

// A set of three: the first with the metadata and the embedding, the others with a tensor each.
// What one test changes of a member, the rest valid.
struct Member {
  int index = 0;
  uint16_t count = 3;
  uint32_t tensors = 3;
  std::string tensor = "";  // of the second and third

  std::string Bytes() const {
    if (index == 0) {
      return TinyGguf{
          .more_keys = {{"split.tensors.count", tensors}},
          .other_keys = std::move(GgufBytes().KeyU16("split.no", 0).KeyU16("split.count", count)),
          .other_key_count = 2}
          .Bytes();
    }
    const std::string name = tensor.empty() ? fmt::format("member.{}.w", index) : tensor;
    return GgufBytes()
        .Head(1, 3)
        .KeyU16("split.no", static_cast<uint16_t>(index))
        .KeyU16("split.count", count)
        .KeyU32("split.tensors.count", tensors)
        .Tensor(name, {4}, 0, 0)
        .PadTo(32)
        .Raw(std::string(16, static_cast<char>(index)))
        .bytes();
  }
};

class GgufSplit : public ::testing::Test {
 protected:
  GgufSplit() {
    for (int i = 0; i < 3; ++i) Write(i + 1, {.index = i});
  }
  void Write(int number, const Member& member) { folder_.Write(Name(number, 3), member.Bytes()); }
  Result<Checkpoint> Open(int number) {
    return OpenCheckpoint(folder_.path() / Name(number, 3), {});
  }
  std::string Error(int number) {
    const Result<Checkpoint> opened = Open(number);
    return opened.ok() ? "accepted" : opened.status().message();
  }

  TemporaryFolder folder_;
};

// As the gguf package splits and reads it.
TEST(GgufSplitFiles, HoldWhatTheOneFileHolds) {
  const Result<Checkpoint> opened = OpenCheckpoint(Golden("split/types-00001-of-00003.gguf"), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_TRUE(SameBits(Values(opened->weights->List()), ReadFloats(Golden("types-gguf.f32"))));
  const Result<Checkpoint> whole = OpenCheckpoint(Golden("types.gguf"), {});
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_EQ(opened->vocab->pieces, whole->vocab->pieces);
  EXPECT_EQ(opened->config.hidden_size, whole->config.hidden_size);
  EXPECT_EQ(opened->config.tied_embeddings, whole->config.tied_embeddings);
}

// B083: any member names the set; keys count from 0 and names from 1.
TEST_F(GgufSplit, AnyMemberOpensTheSet) {
  for (const int number : {1, 2, 3}) {
    const Result<Checkpoint> opened = Open(number);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    EXPECT_EQ(opened->config.hidden_size, 8);
    EXPECT_EQ(opened->vocab->pieces.size(), 4u);
    const std::vector<WeightHandle> weights = opened->weights->List();
    ASSERT_EQ(weights.size(), 3u);
    EXPECT_EQ(weights[0].name, "model.embed_tokens.weight");
    EXPECT_EQ(weights[2].name, "member.2.w");
    EXPECT_EQ(weights[2].read()->data[0], std::byte{2});
  }
}

TEST_F(GgufSplit, NamesTheMissingMember) {
  fs::remove(folder_.path() / Name(3, 3));
  EXPECT_THAT(Error(2), HasSubstr("tiny-00003-of-00003.gguf: does not exist; "
                                  "tiny-00002-of-00003.gguf is of a model split over 3 files"));
  fs::remove(folder_.path() / Name(1, 3));
  EXPECT_THAT(Error(2), HasSubstr("tiny-00001-of-00003.gguf: does not exist"));
}

TEST_F(GgufSplit, NamesTheMemberOfAnotherSet) {
  Write(2, {.index = 2});
  EXPECT_THAT(Error(1), HasSubstr("tiny-00002-of-00003.gguf: metadata key \"split.no\" is 2, "
                                  "expected 1, as this file's name"));
  Write(2, {.index = 1, .count = 4});
  EXPECT_THAT(Error(1), HasSubstr("00002-of-00003.gguf: metadata key \"split.count\" is 4"));
  Write(2, {.index = 1, .tensors = 7});
  EXPECT_THAT(Error(1),
              HasSubstr("00002-of-00003.gguf: metadata key \"split.tensors.count\" is 7"));
  folder_.Write(Name(2, 3), TinyGguf().Bytes());
  EXPECT_THAT(Error(1), HasSubstr("00002-of-00003.gguf: metadata key \"split.count\" is missing"));
  folder_.Write(Name(2, 3), "no GGUF");
  EXPECT_THAT(Error(1), HasSubstr("00002-of-00003.gguf: byte 4: is no GGUF file"));
}

TEST_F(GgufSplit, CountsTheTensorsOfTheSet) {
  for (int i = 0; i < 3; ++i) Write(i + 1, {.index = i, .tensors = 4});
  EXPECT_THAT(Error(3), HasSubstr("split.tensors.count is 4, but the 3 files of the set hold 3"));
  for (int i = 0; i < 3; ++i) Write(i + 1, {.index = i, .tensor = "twice"});
  EXPECT_THAT(Error(3), HasSubstr("tensor 'twice' is there twice, in tiny-00002-of-00003.gguf and "
                                  "in tiny-00003-of-00003.gguf"));
}

TEST_F(GgufSplit, ARenamedMemberIsToldItsName) {
  const fs::path renamed = folder_.path() / "model.gguf";
  fs::rename(folder_.path() / Name(2, 3), renamed);
  const Result<Checkpoint> opened = OpenCheckpoint(renamed, {});
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(
      opened.status().message(),
      HasSubstr("model.gguf: the file is number 2 of a model split over 3, so its name must "
                "end in -00002-of-00003.gguf"));
}

// What llama-gguf-split --merge leaves behind.
TEST_F(GgufSplit, ACountOfZeroIsOneFile) {
  for (const uint16_t count : {0, 1}) {
    const fs::path path = folder_.Write("one.gguf", Member{.count = count, .tensors = 1}.Bytes());
    EXPECT_TRUE(OpenCheckpoint(path, {}).ok()) << count;
  }
}

}  // namespace
}  // namespace spry
