#include "checkpoint/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "checkpoint/file_weights.h"
#include "tests/checkpoint/checkpoint_files.h"

namespace spry {
namespace {

using ::testing::HasSubstr;

std::string OpenError(const std::filesystem::path& path) {
  const auto file = MappedFile::Open(path);
  return file.ok() ? "opened" : file.status().message();
}

TEST(MappedFile, SaysWhyItCannotOpen) {
  const TemporaryFolder folder;
  EXPECT_THAT(OpenError(folder.path() / "no.bin"), HasSubstr("no.bin: cannot open: No such file"));
  EXPECT_EQ(MappedFile::Open(folder.path() / "no.bin").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(OpenError(folder.path()), HasSubstr("is a folder, expected a file"));
  EXPECT_THAT(OpenError(folder.Write("empty.bin", "")), HasSubstr("empty.bin: is empty"));
  const std::filesystem::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(OpenError(pipe), HasSubstr("pipe: is not a regular file"));
}

// Resident bytes of the mapping that starts at `data`, from /proc/self/smaps.
size_t ResidentBytes(const std::byte* data) {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  while (std::getline(smaps, line)) {
    uintptr_t start = 0;
    const auto parsed = std::from_chars(line.data(), line.data() + line.size(), start, 16);
    if (parsed.ec == std::errc() && *parsed.ptr == '-') {
      inside = start == reinterpret_cast<uintptr_t>(data);
    }
    if (inside && line.starts_with("Rss:")) return std::stoul(line.substr(4)) * 1024;
  }
  return 0;
}

uint64_t Sum(std::span<const std::byte> data) {
  uint64_t sum = 0;
  for (const std::byte b : data) sum += static_cast<uint64_t>(b);
  return sum;
}

TEST(MappedFile, GivesPagesBackWhenTheLastOwnerGoes) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t size = 256 * page;
  std::string content(size, '\0');
  for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i / page + i);
  const TemporaryFolder folder;
  const auto file = *MappedFile::Open(folder.Write("weights.bin", content));
  const std::span<const std::byte> bytes = file->bytes();
  const uint64_t sum = Sum(bytes);
  ASSERT_EQ(ResidentBytes(bytes.data()), size);

  // A range that shares its first and its last page with its neighbours.
  const size_t offset = 10 * page + 7;
  std::shared_ptr<const void> first = PagesOwner(file, offset, 100 * page);
  std::shared_ptr<const void> second = first;
  first.reset();
  EXPECT_EQ(ResidentBytes(bytes.data()), size);
  second.reset();
  EXPECT_EQ(ResidentBytes(bytes.data()), size - 99 * page);

  EXPECT_EQ(Sum(bytes), sum);  // what was given back is read again
}

TEST(MappedFile, WeightsGiveBackWhatTheyTouched) {
  constexpr int kRows = 64;
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const TemporaryFolder folder;
  const auto file = *MappedFile::Open(folder.Write("w.bin", std::string(kRows * page, 'w')));
  std::vector<FileTensor> tensors;
  tensors.push_back({.name = "w",
                     .file_type = "F32",
                     .dtype = DType::kF32,
                     .shape = Shape{kRows, static_cast<int64_t>(page / 4)},
                     .file = file,
                     .offset = 0,
                     .bytes = kRows * page});
  const auto weights = *MakeFileWeights(
      {.source = "w.bin", .supported_types = "F32", .tensors = std::move(tensors)});
  const WeightHandle handle = weights->List().front();
  const std::vector<float> before = Values(handle);
  EXPECT_EQ(ResidentBytes(file->bytes().data()), 0u);
  EXPECT_EQ(Values(handle), before);  // reading twice is allowed
}

}  // namespace
}  // namespace spry
