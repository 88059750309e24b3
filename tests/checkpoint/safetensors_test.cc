#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/checkpoint/checkpoint_files.h"

namespace spry {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Weights> WeightsOf(const std::filesystem::path& path) {
  Result<std::vector<FileTensor>> tensors = ReadSafetensors(path);
  CHECK(tensors.ok());
  return *MakeFileWeights({.source = path.string(),
                           .supported_types = kSafetensorsTypes,
                           .tensors = *std::move(tensors)});
}

std::string ReadError(std::string_view bytes) {
  const TemporaryFolder folder;
  const auto tensors = ReadSafetensors(folder.Write("model.safetensors", bytes));
  if (tensors.ok()) return "accepted";
  EXPECT_THAT(tensors.status().message(), HasSubstr("model.safetensors"));
  return tensors.status().message();
}

TEST(Safetensors, ReadsWhatTheReferenceLibraryWrote) {
  const auto weights = WeightsOf(Golden("types.safetensors"));
  std::vector<WeightHandle> served;
  for (const WeightHandle& weight : weights->List()) {
    if (weight.file_type != "F8_E4M3" && weight.file_type != "I64") served.push_back(weight);
  }
  SortByName(served);
  ASSERT_EQ(served.size(), 5u);
  EXPECT_EQ(served[0].name, "nothing");
  EXPECT_EQ(served[0].shape, (Shape{0, 4}));
  EXPECT_EQ(served[1].dtype, DType::kBF16);
  EXPECT_EQ(served[1].shape, (Shape{2, 3, 4}));
  EXPECT_EQ(served[2].dtype, DType::kF16);
  EXPECT_EQ(served[4].shape, Shape{});
  EXPECT_TRUE(SameBits(Values(served), ReadFloats(Golden("types-safetensors.f32"))));
}

TEST(Safetensors, GetChecksNameAndShape) {
  const auto weights = WeightsOf(Golden("types.safetensors"));
  EXPECT_TRUE(weights->Get("plain.f32", Shape{3, 5}).ok());
  const Status misshapen = weights->Get("plain.f32", Shape{5, 3}).status();
  EXPECT_THAT(misshapen.message(), HasSubstr("'plain.f32' has shape [3, 5], expected [5, 3]"));
  const Status missing = weights->Get("plain.f64", Shape{3, 5}).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("there is no tensor 'plain.f64'"));
  EXPECT_TRUE(weights->Has("scalar"));
  EXPECT_FALSE(weights->Has("scala"));
}

// B098: eight-bit floats are neither taken for packed integers nor used without their scale.
TEST(Safetensors, RefusesTypesByName) {
  const auto weights = WeightsOf(Golden("types.safetensors"));
  const Status refused = weights->Get("fp8", Shape{8, 8}).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(refused.message(),
              HasSubstr("tensor 'fp8' has type F8_E4M3; supported: F32, F16, BF16"));
  for (const WeightHandle& weight : weights->List()) {
    if (weight.name == "whole") {
      EXPECT_THAT(weight.read().status().message(), HasSubstr("'whole' has type I64"));
    }
  }
  EXPECT_THAT(
      ReadError(SafetensorsBytes(R"({"w":{"dtype":"F3","shape":[4],"data_offsets":[0,2]}})", "..")),
      HasSubstr("tensor 'w' has the unknown dtype 'F3'"));
}

// B092: shape and byte range disagree.
TEST(Safetensors, RefusesARangeThatIsNotTheShape) {
  EXPECT_THAT(
      ReadError(SafetensorsBytes(R"({"w":{"dtype":"F64","shape":[4],"data_offsets":[0,16]}})",
                                 std::string(16, 'x'))),
      HasSubstr("tensor 'w' has 16 bytes, but F64 of shape [4] needs 256 bits"));
  EXPECT_THAT(ReadError(SafetensorsBytes(
                  R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", "short")),
              HasSubstr("tensor 'w' lies at [0, 16) of 5 data bytes"));
  EXPECT_THAT(
      ReadError(SafetensorsBytes(
          R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "")),
      HasSubstr("which is too large"));
  EXPECT_THAT(
      ReadError(SafetensorsBytes(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}})", "")),
      HasSubstr("an entry in \"shape\" that is no size"));
  EXPECT_THAT(
      ReadError(SafetensorsBytes(R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "xx")),
      HasSubstr("needs 12 bits"));
}

// B094: header length beyond the file or the limit; bytes left over.
TEST(Safetensors, RefusesBadHeaderLengths) {
  std::string huge = SafetensorsBytes("{}", "");
  huge[7] = '\x80';
  EXPECT_THAT(ReadError(huge), HasSubstr("header length 9223372036854775810, expected at most"));
  EXPECT_THAT(ReadError(SafetensorsBytes("", "")), HasSubstr("does not start with '{'"));
  EXPECT_THAT(ReadError("1234567"), HasSubstr("7 bytes are too few"));
  EXPECT_THAT(ReadError(SafetensorsBytes("{}", "ten stray.")),
              HasSubstr("10 bytes are left over after the last tensor"));
  EXPECT_THAT(ReadError(SafetensorsBytes("[1]", "")), HasSubstr("does not start with '{'"));
  EXPECT_THAT(ReadError("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n"),
              HasSubstr("a Git LFS pointer, not the file itself; run `git lfs pull`"));
  EXPECT_THAT(ReadError(SafetensorsBytes(R"({"w":)", "")), HasSubstr("is not valid JSON"));
}

TEST(Safetensors, RefusesHolesOverlapsAndRepeats) {
  static constexpr char kTwo[] = R"({{"a":{{"dtype":"F16","shape":[2],"data_offsets":[0,4]}},)"
                                 R"("{}":{{"dtype":"F16","shape":[2],"data_offsets":[{},{}]}}}})";
  const std::string data(10, 'x');
  EXPECT_THAT(ReadError(SafetensorsBytes(fmt::format(kTwo, "b", 6, 10), data)),
              HasSubstr("tensor 'b' starts at data byte 6, expected 4: there is a hole"));
  EXPECT_THAT(ReadError(SafetensorsBytes(fmt::format(kTwo, "b", 2, 6), data)),
              HasSubstr("it overlaps another tensor"));
  EXPECT_THAT(ReadError(SafetensorsBytes(fmt::format(kTwo, "a", 4, 8), data)),
              HasSubstr("the key 'a' is there twice"));
  EXPECT_EQ(ReadError(SafetensorsBytes(fmt::format(kTwo, "b", 4, 8), data.substr(2))), "accepted");
}

TEST(Safetensors, AlignsWhatTheFileDoesNot) {
  const float value = 1.25f;
  const std::string data(reinterpret_cast<const char*>(&value), sizeof(value));
  std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  while (header.size() % 4 != 1) header += ' ';
  const TemporaryFolder folder;
  const auto weights = WeightsOf(folder.Write("odd.safetensors", SafetensorsBytes(header, data)));
  const HostTensor tensor = *weights->List().front().read();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data.data()) % alignof(float), 0u);
  EXPECT_EQ(std::memcmp(tensor.data.data(), data.data(), data.size()), 0);
}

}  // namespace
}  // namespace spry
