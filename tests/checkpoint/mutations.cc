#include "tests/checkpoint/mutations.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

namespace spry {
namespace {

using Random = std::mt19937_64;

// Half of all places lie in the first kilobyte, where the structure of a binary format is.
size_t Place(const std::string& bytes, Random& random) {
  const size_t whole = bytes.size();
  const size_t reach = random() % 2 == 0 ? whole : std::min<size_t>(whole, 1024);
  return random() % reach;
}

void FlipBytes(std::string& bytes, Random& random) {
  for (uint64_t count = 1 + random() % 4; count > 0; --count) {
    bytes[Place(bytes, random)] ^= static_cast<char>(1 + random() % 255);
  }
}

void CutEnd(std::string& bytes, Random& random) { bytes.resize(Place(bytes, random)); }

void DoubleChunk(std::string& bytes, Random& random) {
  const size_t from = Place(bytes, random);
  const std::string chunk = bytes.substr(from, 1 + random() % 64);
  bytes.insert(Place(bytes, random), chunk);
}

void EditBinaryNumber(std::string& bytes, Random& random) {
  constexpr uint64_t kExtremes[] = {
      0, 1, 2, 255, 1ull << 31, (1ull << 32) - 1, 1ull << 40, 1ull << 62, 1ull << 63, ~0ull};
  const uint64_t value = kExtremes[random() % std::size(kExtremes)];
  const size_t place = Place(bytes, random);
  const size_t size = std::min<size_t>(random() % 2 == 0 ? 4 : 8, bytes.size() - place);
  std::memcpy(bytes.data() + place, &value, size);
}

// Replaces a run of decimal digits, if there is one.
void EditTextNumber(std::string& bytes, Random& random) {
  constexpr std::string_view kNumbers[] = {"0",
                                           "-1",
                                           "1",
                                           "3",
                                           "7",
                                           "65537",
                                           "2147483648",
                                           "9223372036854775807",
                                           "18446744073709551616",
                                           "1e308",
                                           "1e999",
                                           "0.5",
                                           "-0.0",
                                           "null",
                                           "[]",
                                           "\"8\""};
  constexpr std::string_view kDigits = "0123456789";
  const size_t from = bytes.find_first_of(kDigits, Place(bytes, random));
  if (from == std::string::npos) return;
  const size_t stop = bytes.find_first_not_of(kDigits, from);
  const size_t size = (stop == std::string::npos ? bytes.size() : stop) - from;
  bytes.replace(from, size, kNumbers[random() % std::size(kNumbers)]);
}

}  // namespace

std::string Mutate(const std::string& original, uint64_t seed) {
  using Way = void (*)(std::string&, Random&);
  constexpr Way kWays[] = {FlipBytes, CutEnd, DoubleChunk, EditBinaryNumber, EditTextNumber};
  Random random(seed);
  std::string bytes = original;
  const bool numbers_only = random() % 2 == 0;
  const Way numbers = random() % 2 == 0 ? EditBinaryNumber : EditTextNumber;
  for (uint64_t count = 1 + random() % 3; count > 0 && !bytes.empty(); --count) {
    const Way way = numbers_only ? numbers : kWays[random() % std::size(kWays)];
    way(bytes, random);
  }
  return bytes;
}

}  // namespace spry
