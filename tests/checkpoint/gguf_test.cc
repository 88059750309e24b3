#include "checkpoint/gguf.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "checkpoint/ggml_types.h"
#include "tensor/float16.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace spry {
namespace {

using ::testing::HasSubstr;

Status OpenBytes(std::string_view bytes) {
  const TemporaryFolder folder;
  const Result<Checkpoint> opened = OpenCheckpoint(folder.Write("model.gguf", bytes), {});
  if (!opened.ok()) {
    EXPECT_THAT(opened.status().message(), HasSubstr("model.gguf"));
  }
  return opened.status();
}

std::string OpenError(std::string_view bytes) {
  const Status status = OpenBytes(bytes);
  return status.ok() ? "accepted" : status.message();
}

// Bit for bit, as the gguf package dequantises.
void ExpectValues(const char* file, const char* values_file) {
  const Result<Checkpoint> opened = OpenCheckpoint(Golden(file), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const std::vector<WeightHandle> weights = opened->weights->List();
  const std::vector<float> expected = ReadFloats(Golden(values_file));
  size_t start = 0;
  for (const WeightHandle& weight : weights) {
    const std::vector<float> values = Values(weight);
    ASSERT_LE(start + values.size(), expected.size());
    const auto begin = expected.begin() + static_cast<ptrdiff_t>(start);
    start += values.size();
    EXPECT_TRUE(SameBits(values, {begin, expected.begin() + static_cast<ptrdiff_t>(start)}))
        << weight.name << " " << weight.file_type;
  }
  EXPECT_EQ(start, expected.size());
}

TEST(Gguf, ReadsWhatTheReferenceLibraryWrote) { ExpectValues("types.gguf", "types-gguf.f32"); }

// All twelve block types: random codes and sub-scales; scales of zero, subnormal ones, the largest.
TEST(Gguf, ReadsEveryBlockType) { ExpectValues("block-types.gguf", "block-types-gguf.f32"); }

// B088, B091: the type is the tensor's own, whatever the rest of the file has.
TEST(Gguf, TypesArePerTensor) {
  const auto weights = OpenCheckpoint(Golden("types.gguf"), {})->weights;
  const auto type_of = [&](std::string_view name, const Shape& shape) {
    const Result<WeightHandle> weight = weights->Get(name, shape);
    return weight.ok() ? weight->dtype : DType::kU8;
  };
  EXPECT_EQ(type_of("model.embed_tokens.weight", Shape{24, 64}), DType::kQ8_0);
  EXPECT_EQ(type_of("model.norm.weight", Shape{64}), DType::kF32);
  EXPECT_EQ(type_of("model.layers.0.self_attn.q_proj.weight", Shape{64, 64}), DType::kQ4_0);
  EXPECT_EQ(type_of("model.layers.0.self_attn.k_proj.weight", Shape{32, 64}), DType::kQ4_1);
  EXPECT_EQ(type_of("model.layers.0.self_attn.v_proj.weight", Shape{32, 64}), DType::kBF16);
  EXPECT_EQ(type_of("model.layers.0.self_attn.o_proj.weight", Shape{64, 64}), DType::kF16);
  EXPECT_EQ(type_of("model.layers.0.mlp.down_proj.weight", Shape{64, 32}), DType::kQ4_0);
  EXPECT_EQ(type_of("rope_freqs.weight", Shape{8}), DType::kF32);
}

// Rounds 32 values to Q4_1 as the format defines it.
std::string QuantizeQ4_1(const float* values) {
  const auto [least, most] = std::minmax_element(values, values + 32);
  const uint16_t scale = FloatToF16((*most - *least) / 15.0f);
  const uint16_t minimum = FloatToF16(*least);
  std::string block(20, '\0');
  std::memcpy(block.data(), &scale, 2);
  std::memcpy(block.data() + 2, &minimum, 2);
  for (int i = 0; i < 32; ++i) {
    const float steps = (values[i] - F16ToFloat(minimum)) / F16ToFloat(scale);
    const int q = std::clamp(static_cast<int>(std::lround(steps)), 0, 15);
    block[4 + i % 16] |= static_cast<char>(i < 16 ? q : q << 4);
  }
  return block;
}

// B089: a Q4_1 block is scale, minimum, 16 bytes; read so, the error is that of 4 bits.
TEST(Gguf, Q4_1UsesItsMinimum) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(4 * 64);
  for (float& value : values) value = normal(random);
  TinyGguf file{.embedding_type = 3, .columns = 64, .embedding_bytes = ""};
  for (size_t i = 0; i < values.size(); i += 32) file.embedding_bytes += QuantizeQ4_1(&values[i]);
  const TemporaryFolder folder;
  const auto opened = OpenCheckpoint(folder.Write("q.gguf", file.Bytes()), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const std::vector<float> read = Values(opened->weights->List());
  double square = 0;
  for (size_t i = 0; i < values.size(); ++i) square += std::pow(read[i] - values[i], 2);
  // Steps of about 4.2 / 15 have a rounding error of step^2 / 12.
  EXPECT_LT(square / static_cast<double>(values.size()), 0.01);
}

// B079: no output.weight means that the embedding is the output matrix too.
TEST(Gguf, TiedWithoutAnOutputWeight) {
  const TemporaryFolder folder;
  const auto tied = OpenCheckpoint(folder.Write("tied.gguf", TinyGguf().Bytes()), {});
  ASSERT_TRUE(tied.ok()) << tied.status().message();
  EXPECT_TRUE(tied->config.tied_embeddings);
  EXPECT_FALSE(tied->weights->Has("lm_head.weight"));
  const auto both =
      OpenCheckpoint(folder.Write("both.gguf", TinyGguf{.output_weight = true}.Bytes()), {});
  ASSERT_TRUE(both.ok()) << both.status().message();
  EXPECT_FALSE(both->config.tied_embeddings);
  EXPECT_TRUE(both->weights->Get("lm_head.weight", Shape{4, 8}).ok());
}

// B080: sizes of zero, and products beyond 64 bits.
TEST(Gguf, RefusesImpossibleSizes) {
  const auto with_sizes = [](const std::vector<uint64_t>& sizes) {
    return OpenError(GgufBytes().Head(1, 0).Tensor("w", sizes, 0, 0).bytes());
  };
  EXPECT_THAT(with_sizes({4, 0}), HasSubstr("tensor 'w' has shape [0, 4], expected sizes from 1"));
  EXPECT_THAT(with_sizes({1ull << 32, 1ull << 32}), HasSubstr("tensor 'w' has shape"));
  EXPECT_THAT(with_sizes({1ull << 62}), HasSubstr("tensor 'w' has shape"));
  EXPECT_THAT(with_sizes({~0ull}), HasSubstr("tensor 'w' has shape"));
  EXPECT_THAT(with_sizes({1, 1, 1, 1, 1}), HasSubstr("tensor 'w' has 5 dimensions"));
  EXPECT_THAT(with_sizes({64}), HasSubstr("tensor 'w' needs 256 bytes at offset 0"));
}

// B082: lengths near 2^64 and counts that the file cannot hold.
TEST(Gguf, RefusesLengthsBeyondTheFile) {
  const std::string long_key = GgufBytes().Head(0, 1).U64(~0ull).Raw("key").bytes();
  EXPECT_THAT(OpenError(long_key), HasSubstr("byte 32: a metadata key claims 18446744073709551615 "
                                             "bytes, but 3 are left"));
  const auto array = [](uint32_t type, uint64_t count) {
    return OpenError(GgufBytes().Head(0, 1).Text("k").U32(9).U32(type).U64(count).U64(0).bytes());
  };
  EXPECT_THAT(array(4, 1ull << 40), HasSubstr("claims 1099511627776 elements of 4 bytes"));
  EXPECT_THAT(array(8, 1ull << 40), HasSubstr("the file ends inside a metadata string"));
  EXPECT_THAT(array(10, ~0ull), HasSubstr("elements of 8 bytes, but 8 bytes are left"));
  EXPECT_THAT(OpenError(GgufBytes().Head(1ull << 60, 0).bytes()),
              HasSubstr("the number of tensors is 1152921504606846976, expected at most"));
  EXPECT_THAT(OpenError(GgufBytes().Head(0, 1ull << 60).bytes()),
              HasSubstr("the number of metadata keys is"));
}

TEST(Gguf, LimitsNestedArrays) {
  const auto nested = [](int depth) {
    GgufBytes bytes;
    bytes.Head(0, 1).Text("k").U32(9);
    for (int i = 1; i < depth; ++i) bytes.U32(9).U64(1);
    return OpenError(bytes.U32(0).U64(1).Raw("x").bytes());
  };
  EXPECT_THAT(nested(4), HasSubstr("\"general.architecture\" is missing"));
  EXPECT_THAT(nested(5), HasSubstr("metadata key 'k' nests arrays more than 4 deep"));
  EXPECT_THAT(nested(20000), HasSubstr("nests arrays more than 4 deep"));
}

// B091: a k-quant whose rows are no whole blocks, and a type that nobody serves.
TEST(Gguf, RefusesTypesByName) {
  const TinyGguf ragged{.embedding_type = 12, .columns = 576, .embedding_bytes = ""};
  EXPECT_THAT(OpenError(ragged.Bytes()),
              HasSubstr("tensor 'token_embd.weight' is Q4_K with rows of 576 elements, expected a "
                        "multiple of 256; types that spry serves: F32, F16, BF16, Q4_0"));
  const TinyGguf whole{
      .embedding_type = 16, .columns = 512, .embedding_bytes = std::string(4 * 2 * 66, 'k')};
  const TemporaryFolder folder;
  const auto opened = OpenCheckpoint(folder.Write("k.gguf", whole.Bytes()), {});
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_EQ(opened->weights->List().front().file_type, "IQ2_XXS");
  EXPECT_THAT(
      opened->weights->Get("model.embed_tokens.weight", Shape{4, 512}).status().message(),
      HasSubstr("tensor 'model.embed_tokens.weight' has type IQ2_XXS; supported: F32, F16"));
  EXPECT_THAT(OpenError(TinyGguf{.embedding_type = 99}.Bytes()),
              HasSubstr("tensor 'token_embd.weight' has the unknown ggml type 99"));
}

// What is served is what the messages say, no more and no less.
TEST(Gguf, ServedTypesAreThoseThatMessagesName) {
  int served = 0;
  for (uint32_t number = 0; number < 64; ++number) {
    const GgmlType* type = FindGgmlType(number);
    if (type == nullptr) continue;
    const std::string list = std::string(", ") + kGgmlTypesServed + ",";
    EXPECT_EQ(type->dtype.has_value(), list.find(fmt::format(", {},", type->name)) != list.npos)
        << type->name;
    if (!type->dtype) continue;
    ++served;
    EXPECT_EQ(Traits(*type->dtype).block_bytes, type->block_bytes) << type->name;
    EXPECT_EQ(Traits(*type->dtype).block_elements, type->block_elements) << type->name;
  }
  EXPECT_EQ(served, 15);
}

TEST(Gguf, RefusesOverlapsRepeatsAndMisalignment) {
  const auto two = [](std::string_view name, uint64_t offset) {
    return OpenError(GgufBytes()
                         .Head(2, 0)
                         .Tensor("a", {16}, 0, 0)
                         .Tensor(name, {16}, 0, offset)
                         .PadTo(32)
                         .Raw(std::string(256, 'x'))
                         .bytes());
  };
  EXPECT_THAT(two("b", 32), HasSubstr("tensor 'b' overlaps 'a'"));
  EXPECT_THAT(two("b", 65), HasSubstr("tensor 'b' is at offset 65, expected a multiple of 32"));
  EXPECT_THAT(two("b", 224), HasSubstr("is it cut short?"));
  EXPECT_THAT(OpenError(GgufBytes().Head(0, 2).KeyU32("k", 1).KeyU32("k", 2).bytes()),
              HasSubstr("metadata key 'k' is there twice"));
  EXPECT_THAT(OpenError(TinyGguf{.more_keys = {{"general.alignment", 24}}}.Bytes()),
              HasSubstr("\"general.alignment\" is 24, expected a power of two"));
}

TEST(Gguf, RefusesOtherContainers) {
  EXPECT_THAT(OpenError("GGML1234"), HasSubstr("does not start with \"GGUF\""));
  EXPECT_THAT(OpenError(GgufBytes().Raw("GGUF").U32(1).bytes()), HasSubstr("GGUF version 1;"));
  EXPECT_THAT(OpenError(GgufBytes().Raw("GGUF").U32(3u << 24).bytes()), HasSubstr("big-endian"));
  EXPECT_THAT(OpenError("GG"), HasSubstr("byte 0: the file ends inside the magic number"));
  std::string version_2 = TinyGguf().Bytes();
  version_2[4] = 2;
  EXPECT_EQ(OpenError(version_2), "accepted");
}

}  // namespace
}  // namespace spry
