#include "tests/checkpoint/checkpoint_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>

#include "tensor/dequantize.h"

namespace spry {
namespace fs = std::filesystem;

fs::path Golden(const std::string& name) {
  return fs::path(SPRY_SOURCE_DIR) / "tests" / "golden" / "checkpoint" / name;
}

std::string ReadBytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  CHECK(in.good());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<float> ReadFloats(const fs::path& path) {
  const std::string bytes = ReadBytes(path);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

std::vector<float> Values(const WeightHandle& weight) {
  const Result<HostTensor> tensor = weight.read();
  EXPECT_TRUE(tensor.ok()) << tensor.status().message();
  if (!tensor.ok()) return {};
  std::vector<float> values(static_cast<size_t>(*tensor->shape.elements()));
  DequantizeRow(tensor->dtype, tensor->data.data(), static_cast<int64_t>(values.size()),
                values.data());
  return values;
}

std::vector<float> Values(std::vector<WeightHandle> weights) {
  std::vector<float> all;
  for (const WeightHandle& weight : weights) {
    const std::vector<float> values = Values(weight);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

void SortByName(std::vector<WeightHandle>& weights) {
  std::sort(weights.begin(), weights.end(),
            [](const WeightHandle& a, const WeightHandle& b) { return a.name < b.name; });
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes.append(header).append(data);
}

GgufBytes& GgufBytes::Raw(std::string_view bytes) {
  bytes_ += bytes;
  return *this;
}
GgufBytes& GgufBytes::U32(uint32_t value) {
  return Raw({reinterpret_cast<const char*>(&value), sizeof(value)});
}
GgufBytes& GgufBytes::U64(uint64_t value) {
  return Raw({reinterpret_cast<const char*>(&value), sizeof(value)});
}
GgufBytes& GgufBytes::F32(float value) {
  return Raw({reinterpret_cast<const char*>(&value), sizeof(value)});
}
GgufBytes& GgufBytes::Text(std::string_view text) { return U64(text.size()).Raw(text); }
GgufBytes& GgufBytes::Magic() { return Raw("GGUF").U32(3); }

GgufBytes& GgufBytes::KeyU32(std::string_view key, uint32_t value) {
  return Text(key).U32(4).U32(value);
}
GgufBytes& GgufBytes::KeyF32(std::string_view key, float value) {
  return Text(key).U32(6).F32(value);
}
GgufBytes& GgufBytes::KeyBool(std::string_view key, bool value) {
  return Text(key).U32(7).Raw(std::string(1, value ? '\1' : '\0'));
}
GgufBytes& GgufBytes::KeyText(std::string_view key, std::string_view value) {
  return Text(key).U32(8).Text(value);
}
GgufBytes& GgufBytes::KeyU16(std::string_view key, uint16_t value) {
  return Text(key).U32(2).Raw({reinterpret_cast<const char*>(&value), sizeof(value)});
}
GgufBytes& GgufBytes::KeyU32s(std::string_view key, const std::vector<uint32_t>& values) {
  Text(key).U32(9).U32(4).U64(values.size());
  for (const uint32_t value : values) U32(value);
  return *this;
}
GgufBytes& GgufBytes::KeyTexts(std::string_view key, const std::vector<std::string>& values) {
  Text(key).U32(9).U32(8).U64(values.size());
  for (const std::string& value : values) Text(value);
  return *this;
}

GgufBytes& GgufBytes::Tensor(std::string_view name, const std::vector<uint64_t>& sizes,
                             uint32_t type, uint64_t offset) {
  Text(name).U32(static_cast<uint32_t>(sizes.size()));
  for (const uint64_t size : sizes) U64(size);
  return U32(type).U64(offset);
}

GgufBytes& GgufBytes::PadTo(size_t alignment) {
  bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
  return *this;
}

std::string TinyGguf::Bytes() const {
  GgufBytes keys;
  uint64_t key_count = 0;
  const auto add = [&](std::string_view key, const std::function<void()>& write) {
    if (key == without_key) return;
    write();
    ++key_count;
  };
  const auto number = [&](std::string_view key, uint32_t value) {
    add(key, [&] { keys.KeyU32(key, value); });
  };
  const auto text = [&](std::string_view key, std::string_view value) {
    add(key, [&] { keys.KeyText(key, value); });
  };
  const auto texts = [&](std::string_view key, const std::vector<std::string>& values) {
    add(key, [&] { keys.KeyTexts(key, values); });
  };
  text("general.architecture", architecture);
  number("llama.context_length", 64);
  number("llama.embedding_length", static_cast<uint32_t>(columns));
  number("llama.block_count", 1);
  number("llama.feed_forward_length", 8);
  number("llama.attention.head_count", 2);
  constexpr char kEpsilon[] = "llama.attention.layer_norm_rms_epsilon";
  add(kEpsilon, [&] { keys.KeyF32(kEpsilon, 1e-5f); });
  text("tokenizer.ggml.model", "gpt2");
  text("tokenizer.ggml.pre", pre);
  texts("tokenizer.ggml.tokens", {"H", "i", "Hi", ","});
  texts("tokenizer.ggml.merges", {"H i"});
  for (const auto& [key, value] : more_keys) number(key, value);
  keys.Raw(other_keys.bytes());
  key_count += other_key_count;

  const uint64_t padded = (embedding_bytes.size() + 31) / 32 * 32;
  GgufBytes file;
  file.Head(output_weight ? 2 : 1, key_count).Raw(keys.bytes());
  file.Tensor("token_embd.weight", {columns, 4}, embedding_type, 0);
  if (output_weight) file.Tensor("output.weight", {columns, 4}, embedding_type, padded);
  file.PadTo(32).Raw(embedding_bytes).PadTo(32);
  if (output_weight) file.Raw(embedding_bytes);
  return file.bytes();
}

}  // namespace spry
