// That the values are the gguf package's is tested with its files in tests/checkpoint.
#include "tensor/block_codes.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace spry {
namespace {

constexpr DType kBlockTypes[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0,   DType::kQ5_0,
                                 DType::kQ5_1, DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,
                                 DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

// Everything a block says, as numbers one after another.
std::vector<int> NumbersOf(DType dtype, const std::vector<std::byte>& block) {
  BlockCodes codes = {};
  UnpackBlock(dtype, block.data(), codes);
  const int elements = Traits(dtype).block_elements, groups = elements / GroupElements(dtype);
  std::vector<int> numbers(codes.codes, codes.codes + elements);
  numbers.insert(numbers.end(), codes.scales, codes.scales + groups);
  numbers.insert(numbers.end(), codes.mins, codes.mins + groups);
  numbers.push_back(codes.d);
  numbers.push_back(codes.d_min);
  return numbers;
}

// No bit is dropped, none is read twice.
TEST(BlockCodes, EachBitOfABlockIsPartOfOneNumber) {
  std::mt19937 random(5);
  for (const DType dtype : kBlockTypes) {
    std::vector<std::byte> block(Traits(dtype).block_bytes);
    for (std::byte& byte : block) byte = static_cast<std::byte>(random());
    const std::vector<int> numbers = NumbersOf(dtype, block);
    for (size_t bit = 0; bit < block.size() * 8; ++bit) {
      std::vector<std::byte> other = block;
      other[bit / 8] ^= std::byte{1} << bit % 8;
      const std::vector<int> changed = NumbersOf(dtype, other);
      int differences = 0;
      for (size_t i = 0; i < numbers.size(); ++i) differences += numbers[i] != changed[i] ? 1 : 0;
      EXPECT_EQ(differences, 1) << Traits(dtype).name << " bit " << bit;
    }
  }
}

}  // namespace
}  // namespace spry
