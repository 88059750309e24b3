#include "checkpoint/dummy_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "checkpoint/printable.h"
#include "tensor/float16.h"

namespace spry {
namespace {

// A uniform number in (-a, a) has the standard deviation a / sqrt(3).
constexpr float kHalfWidth = 0.02f * 1.7320508f;
constexpr int kDrawsPerWord = 4;  // 16 random bits for each element
constexpr int64_t kMaxBytes = int64_t{1} << 40;

// SplitMix64: the counter times an odd constant, then two rounds of shift and multiply.
constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t Key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return Mix(hash + Mix(seed + kStep));
}

// The f32 that 16 random bits stand for; the other dtypes round it.
float Draw(uint16_t bits) {
  return (static_cast<float>(bits) - 32767.5f) * (kHalfWidth / 32768.0f);
}

// In blocks, so that drawing and converting are two plain loops that the compiler turns into SIMD.
template <typename Bits, Bits (*kConvert)(float)>
void FillRandom(uint64_t key, int64_t elements, std::byte* out) {
  constexpr int kWords = 64;
  constexpr int kBlock = kWords * kDrawsPerWord;
  for (int64_t start = 0; start < elements; start += kBlock) {
    uint16_t draws[kBlock];
    for (int i = 0; i < kWords; ++i) {
      const uint64_t word = Mix(key + kStep * static_cast<uint64_t>(start / kDrawsPerWord + i));
      std::memcpy(draws + i * kDrawsPerWord, &word, sizeof(word));
    }
    Bits values[kBlock];
    for (int i = 0; i < kBlock; ++i) values[i] = kConvert(Draw(draws[i]));
    const int64_t count = std::min<int64_t>(kBlock, elements - start);
    std::memcpy(out + start * sizeof(Bits), values, count * sizeof(Bits));
  }
}

template <typename Bits>
void FillConstant(Bits bits, int64_t elements, std::byte* out) {
  for (int64_t i = 0; i < elements; ++i) std::memcpy(out + i * sizeof(Bits), &bits, sizeof(Bits));
}

uint32_t FloatBits(float value) { return std::bit_cast<uint32_t>(value); }

template <typename Bits, Bits (*kConvert)(float)>
void Fill(std::string_view name, uint64_t seed, int64_t elements, std::byte* out) {
  if (name.ends_with("norm.weight")) {
    FillConstant<Bits>(kConvert(1.0f), elements, out);
  } else if (name.ends_with(".bias")) {
    FillConstant<Bits>(0, elements, out);
  } else {
    FillRandom<Bits, kConvert>(Key(seed, name), elements, out);
  }
}

Result<HostTensor> Make(const std::string& name, DType dtype, const Shape& shape, uint64_t seed) {
  const int64_t elements = *shape.elements();
  const int64_t bytes = RowBytes(dtype, elements);
  std::shared_ptr<std::byte[]> data(new (std::nothrow) std::byte[bytes]);
  if (data == nullptr) {
    return ResourceExhausted(
        fmt::format("dummy tensor {}: no memory for {} bytes", Printable(name), bytes));
  }
  switch (dtype) {
    case DType::kF32: Fill<uint32_t, FloatBits>(name, seed, elements, data.get()); break;
    case DType::kF16: Fill<uint16_t, FloatToF16>(name, seed, elements, data.get()); break;
    default: Fill<uint16_t, FloatToBf16>(name, seed, elements, data.get());
  }
  const std::span<const std::byte> view(data.get(), static_cast<size_t>(bytes));
  return HostTensor{.dtype = dtype, .shape = shape, .data = view, .owner = std::move(data)};
}

class DummyWeights : public Weights {
 public:
  DummyWeights(DType dtype, uint64_t seed) : dtype_(dtype), seed_(seed) {}

  // All but the tensors that only GGUF files of scaled-rope models have: a dummy model's rope is
  // what its config says.
  bool Has(std::string_view name) const override {
    return !name.starts_with("rope_freqs.") && !name.starts_with("rope_factors_");
  }

  Result<WeightHandle> Get(std::string_view name, const Shape& expected) const override {
    const std::optional<int64_t> elements = expected.elements();
    if (!elements || *elements > kMaxBytes / Traits(dtype_).block_bytes) {
      return InvalidArgument(fmt::format("dummy tensor {} of shape {}: expected at most {} bytes",
                                         Printable(name), expected.ToString(), kMaxBytes));
    }
    return WeightHandle{.name = std::string(name),
                        .file_type = "dummy",
                        .dtype = dtype_,
                        .shape = expected,
                        .read = [name = std::string(name), dtype = dtype_, expected,
                                 seed = seed_]() { return Make(name, dtype, expected, seed); }};
  }

  std::vector<WeightHandle> List() const override { return {}; }

 private:
  DType dtype_;
  uint64_t seed_;
};

}  // namespace

std::shared_ptr<const Weights> MakeDummyWeights(DType dtype, uint64_t seed) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16);
  return std::make_shared<DummyWeights>(dtype, seed);
}

}  // namespace spry
