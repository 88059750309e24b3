// Files for the checkpoint tests: goldens, and hand-made safetensors and GGUF
// bytes, wrong ones included.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "tests/support/temporary_folder.h"

namespace spry {

std::filesystem::path Golden(const std::string& name);  // in tests/golden/checkpoint
std::string ReadBytes(const std::filesystem::path& path);
std::vector<float> ReadFloats(const std::filesystem::path& path);

// The values of one weight, or of many one after another.
std::vector<float> Values(const WeightHandle& weight);
std::vector<float> Values(std::vector<WeightHandle> weights);
void SortByName(std::vector<WeightHandle>& weights);

// True when both hold the same bits: -0 differs from 0, and a NaN equals itself.
bool SameBits(const std::vector<float>& a, const std::vector<float>& b);

std::string SafetensorsBytes(std::string_view header, std::string_view data);

// GGUF bytes, written field by field so that any of them can be wrong.
class GgufBytes {
 public:
  GgufBytes& U32(uint32_t value);
  GgufBytes& U64(uint64_t value);
  GgufBytes& F32(float value);
  GgufBytes& Text(std::string_view text);
  GgufBytes& Head(uint64_t tensors, uint64_t keys) { return Magic().U64(tensors).U64(keys); }
  GgufBytes& Magic();
  GgufBytes& KeyU32(std::string_view key, uint32_t value);
  GgufBytes& KeyF32(std::string_view key, float value);
  GgufBytes& KeyBool(std::string_view key, bool value);
  GgufBytes& KeyText(std::string_view key, std::string_view value);
  GgufBytes& KeyU16(std::string_view key, uint16_t value);
  GgufBytes& KeyU32s(std::string_view key, const std::vector<uint32_t>& values);
  GgufBytes& KeyTexts(std::string_view key, const std::vector<std::string>& values);
  // Sizes innermost first, as the format has them.
  GgufBytes& Tensor(std::string_view name, const std::vector<uint64_t>& sizes, uint32_t type,
                    uint64_t offset);
  GgufBytes& PadTo(size_t alignment);
  GgufBytes& Raw(std::string_view bytes);

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A whole GGUF model in small: what one test changes, the rest valid.
struct TinyGguf {
  std::string architecture = "llama";
  std::string pre = "gpt-2";
  uint32_t embedding_type = 0;  // ggml type of token_embd.weight, [4, columns]
  uint64_t columns = 8;
  std::string embedding_bytes = std::string(4 * 8 * 4, '\0');
  bool output_weight = false;
  std::vector<std::pair<std::string, uint32_t>> more_keys = {};  // u32 keys after the usual ones
  GgufBytes other_keys = {};                                     // keys of other types after those
  uint64_t other_key_count = 0;
  std::string without_key = "";  // a usual key to leave out

  std::string Bytes() const;
};

}  // namespace spry
