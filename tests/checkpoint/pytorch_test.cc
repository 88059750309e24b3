// Files of torch.save: what torch wrote gives torch's values; hostile zips and misfits are refused.
#include "checkpoint/pytorch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/checkpoint/checkpoint_files.h"
#include "tests/checkpoint/zip_bytes.h"

namespace spry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::shared_ptr<const Weights> WeightsOf(const std::filesystem::path& path) {
  Result<std::vector<FileTensor>> tensors = ReadPytorch(path);
  EXPECT_TRUE(tensors.ok()) << tensors.status().message();
  return *MakeFileWeights(
      {.source = path.string(), .supported_types = kPytorchTypes, .tensors = *std::move(tensors)});
}

std::string ReadError(const std::string& bytes) {
  const TemporaryFolder folder;
  const auto tensors = ReadPytorch(folder.Write("pytorch_model.bin", bytes));
  if (tensors.ok()) return "accepted";
  EXPECT_THAT(tensors.status().message(), HasSubstr("pytorch_model.bin: "));
  return tensors.status().message();
}

TEST(Pytorch, ReadsWhatTorchWrote) {
  const auto weights = WeightsOf(Golden("types.bin"));
  std::vector<WeightHandle> served;
  for (const WeightHandle& weight : weights->List()) {
    if (weight.file_type != "LongStorage" && weight.file_type != "BoolStorage") {
      served.push_back(weight);
    }
  }
  SortByName(served);
  ASSERT_EQ(served.size(), 11u);
  EXPECT_EQ(served[0].name, "columns");
  EXPECT_EQ(served[0].shape, (Shape{4, 3}));
  EXPECT_EQ(served[7].name, "tied");
  EXPECT_EQ(served[9].name, "turned");
  EXPECT_EQ(served[9].dtype, DType::kBF16);
  EXPECT_EQ(served[9].shape, (Shape{4, 2, 3}));
  EXPECT_TRUE(SameBits(Values(served), ReadFloats(Golden("types-bin.f32"))));
}

// Tied and sliced tensors are views of the mapped storage; those with strides are copied.
TEST(Pytorch, SharedStoragesAreMappedOnce) {
  const auto weights = WeightsOf(Golden("types.bin"));
  const auto data = [&](const char* name, const Shape& shape) {
    return weights->Get(name, shape)->read()->data.data();
  };
  const std::byte* whole = data("whole", Shape{6, 5});
  EXPECT_EQ(data("tied", Shape{6, 5}), whole);
  EXPECT_EQ(data("rows", Shape{2, 5}), whole + 2 * 5 * sizeof(float));
  EXPECT_NE(data("transposed", Shape{5, 6}), whole);
}

TEST(Pytorch, TypesThatAreNotServedAreRefusedWhenRead) {
  const auto weights = WeightsOf(Golden("types.bin"));
  EXPECT_THAT(weights->Get("count", Shape{4}).status().message(),
              HasSubstr("tensor 'count' has type LongStorage; supported: FloatStorage, HalfSt"));
}

TEST(Pytorch, TheOldFormatIsRefusedWithHowToConvertIt) {
  const auto old = ReadPytorch(Golden("old.bin"));
  EXPECT_EQ(old.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(old.status().message(),
              AllOf(HasSubstr("old.bin"), HasSubstr("before PyTorch 1.6"),
                    HasSubstr("torch.save(torch.load(file, weights_only=True), file)")));
}

TEST(Pytorch, EveryCutIsRefused) {
  const std::string bytes = ReadBytes(Golden("types.bin"));
  const TemporaryFolder folder;
  for (size_t size = 1; size < bytes.size(); ++size) {
    const auto cut = ReadPytorch(folder.Write("cut.bin", bytes.substr(0, size)));
    ASSERT_FALSE(cut.ok()) << size;
    ASSERT_THAT(cut.status().message(), HasSubstr("cut.bin: byte ")) << size;
  }
}

// ---- hand-made files ----

std::string U32(uint32_t value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }
std::string Text(std::string_view text) {
  return "X" + U32(static_cast<uint32_t>(text.size())) + std::string(text);
}
std::string Number(int64_t value) {
  return "\x8a\x08" + std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
std::string Numbers(const std::vector<int64_t>& values) {
  std::string text = "(";
  for (const int64_t value : values) text += Number(value);
  return text + "t";
}

// {"w": a tensor over the storage data/0}.
struct OneTensor {
  int64_t storage_elements = 6;
  int64_t offset = 0;
  std::vector<int64_t> sizes = {2, 3};
  std::vector<int64_t> strides = {3, 1};
  std::string key = "0";

  std::string Pickle() const {
    return "\x80\x02}" + Text("w") + "ctorch._utils\n_rebuild_tensor_v2\n((" + Text("storage") +
           "ctorch\nFloatStorage\n" + Text(key) + Text("cpu") + Number(storage_elements) + "tQ" +
           Number(offset) + Numbers(sizes) + Numbers(strides) +
           "\x89"
           "ccollections\nOrderedDict\n)RtRs.";
  }
  std::string Bytes() const {
    return ZipBytes{.entries = {{.name = "m/data.pkl", .bytes = Pickle()},
                                {.name = "m/data/0", .bytes = std::string(24, 'x')}}}
        .Bytes();
  }
};

TEST(Pytorch, HandMadeFilesAreRead) {
  EXPECT_EQ(ReadError(OneTensor{}.Bytes()), "accepted");
  ZipBytes zip{.entries = {{.name = "a name/data.pkl", .bytes = OneTensor{}.Pickle()},
                           {.name = "a name/data/0", .bytes = std::string(24, 'x')},
                           {.name = "a name/code/data.pkl", .bytes = "?"}},
               .comment = "a comment"};
  EXPECT_EQ(ReadError(zip.Bytes()), "accepted");
  zip.end_64 = true;
  EXPECT_EQ(ReadError(zip.Bytes()), "accepted");
  for (ZipBytesEntry& entry : zip.entries) entry.sizes_64 = true;
  EXPECT_EQ(ReadError(zip.Bytes()), "accepted");
}

TEST(Pytorch, TensorsMustFitTheirStorage) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_THAT(ReadError(OneTensor{.storage_elements = 7}.Bytes()),
              HasSubstr("tensor 'w' has a storage of 7 elements of FloatStorage, but 24 bytes"));
  EXPECT_THAT(ReadError(OneTensor{.storage_elements = kHuge}.Bytes()), HasSubstr("but 24 bytes"));
  EXPECT_THAT(ReadError(OneTensor{.offset = 1}.Bytes()),
              HasSubstr("tensor 'w' of shape [2, 3] from element 1 on reaches past its storage"));
  EXPECT_THAT(ReadError(OneTensor{.offset = -1}.Bytes()), HasSubstr("reaches past its storage"));
  EXPECT_THAT(ReadError(OneTensor{.offset = kHuge}.Bytes()), HasSubstr("reaches past"));
  EXPECT_THAT(ReadError(OneTensor{.strides = {4, 1}}.Bytes()), HasSubstr("reaches past"));
  EXPECT_THAT(ReadError(OneTensor{.strides = {kHuge, kHuge}}.Bytes()), HasSubstr("reaches past"));
  EXPECT_THAT(ReadError(OneTensor{.sizes = {kHuge, kHuge}}.Bytes()), HasSubstr("reaches past"));
  EXPECT_THAT(ReadError(OneTensor{.sizes = {kHuge, 4}, .strides = {0, 0}}.Bytes()),
              HasSubstr("reaches past"));  // its elements cannot be counted
  EXPECT_THAT(ReadError(OneTensor{.sizes = {1 << 30, 1 << 20}, .strides = {0, 0}}.Bytes()),
              HasSubstr("repeats elements of its storage of 6"));
  EXPECT_THAT(ReadError(OneTensor{.key = "1"}.Bytes()),
              HasSubstr("tensor 'w' needs the zip entry data/'1', which is not there"));
  EXPECT_THAT(ReadError(OneTensor{.sizes = {-1, 3}}.Bytes()),
              HasSubstr("an entry of sizes is no size"));
  EXPECT_THAT(ReadError(OneTensor{.sizes = {1, 1, 1, 1, 1}}.Bytes()),
              HasSubstr("sizes of 5 dimensions, supported: at most 4"));
  EXPECT_THAT(ReadError(OneTensor{.strides = {1}}.Bytes()), HasSubstr("2 sizes, but 1 strides"));
}

TEST(Pytorch, OneDataPklInLittleEndian) {
  const std::string pickle = OneTensor{}.Pickle();
  const ZipBytesEntry storage{.name = "m/data/0", .bytes = std::string(24, 'x')};
  EXPECT_THAT(ReadError(ZipBytes{.entries = {storage}}.Bytes()), HasSubstr("has no data.pkl"));
  EXPECT_THAT(ReadError(ZipBytes{.entries = {storage,
                                             {.name = "m/data.pkl", .bytes = pickle},
                                             {.name = "n/data.pkl", .bytes = pickle}}}
                            .Bytes()),
              HasSubstr("'m/data.pkl' and 'n/data.pkl', expected one"));
  ZipBytes order{.entries = {storage,
                             {.name = "m/data.pkl", .bytes = pickle},
                             {.name = "m/byteorder", .bytes = "big"}}};
  EXPECT_THAT(ReadError(order.Bytes()), HasSubstr("byteorder is 'big', supported: little"));
  order.entries[2].bytes = "little";
  EXPECT_EQ(ReadError(order.Bytes()), "accepted");
}

TEST(Zip, WrongEntriesAreNamed) {
  const auto with = [](const ZipBytesEntry& entry) {
    return ReadError(ZipBytes{.entries = {{.name = "m/version", .bytes = "3\n"}, entry}}.Bytes());
  };
  EXPECT_THAT(with({.name = "m/x", .method = 8}),
              HasSubstr("zip entry 'm/x' is compressed (method 8), supported: stored"));
  EXPECT_THAT(with({.name = "m/x", .flags = 1}), HasSubstr("zip entry 'm/x' is encrypted"));
  EXPECT_THAT(with({.name = "m/version"}), HasSubstr("zip entry 'm/version' is there twice"));
  EXPECT_THAT(with({.name = "m/x", .claimed_bytes = 1000}),
              HasSubstr("zip entry 'm/x' claims 1000 bytes at byte"));
  EXPECT_THAT(with({.name = "m/x", .claimed_bytes = 0xffffffff}), HasSubstr("lacks its zip64"));
  EXPECT_THAT(with({.name = "m/x", .claimed_bytes = ~uint64_t{0} - 1, .sizes_64 = true}),
              HasSubstr("claims 18446744073709551614 bytes"));
}

TEST(Zip, WrongEndsAreNamed) {
  ZipBytes zip{.entries = {{.name = "m/version", .bytes = "3\n"}}};
  zip.disk = 1;
  EXPECT_THAT(ReadError(zip.Bytes()), HasSubstr("several parts"));
  zip.disk = 0;
  zip.claimed_entries = 2;
  EXPECT_THAT(ReadError(zip.Bytes()), HasSubstr("a zip directory of 2 entries in 55 bytes"));
  zip.end_64 = true;
  zip.claimed_entries = uint64_t{1} << 60;
  EXPECT_THAT(ReadError(zip.Bytes()), HasSubstr("1152921504606846976 entries"));
  zip.claimed_entries = 1;
  std::string bytes = zip.Bytes();
  bytes.replace(bytes.size() - 22 - 12, 8, std::string(8, '\xff'));
  EXPECT_THAT(ReadError(bytes), HasSubstr("the zip64 end record is not at byte 184467440737"));
  EXPECT_THAT(ReadError("PK nothing else"), HasSubstr("cut short or no zip file"));
}

}  // namespace
}  // namespace spry
