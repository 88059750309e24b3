// The GGUF container, versions 2 and 3, little endian:
//   "GGUF", u32 version, u64 tensor count, u64 key count; the keys: string, u32 type, value; the
//   tensors: string, u32 rank, u64 sizes (innermost first), u32 ggml type, u64 offset; then, from
//   the next multiple of general.alignment, the tensors' bytes. A string is u64 length and bytes.
// Every count and length is checked against the bytes that are left before anything is sized by it.
// What the keys mean for a model is in gguf_model.h and gguf_vocab.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/file_weights.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/number_range.h"

namespace spry {

enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// The keys of a file, by name. Views into the mapped file. Errors name file, key, what was found
// and what was expected; an absent key is no error unless Required is asked for.
class GgufMetadata {
 public:
  struct Value {
    std::string_view key;
    GgufType type = GgufType::kU8;  // of an array: of its elements
    bool is_array = false;
    uint64_t count = 1;               // elements of an array
    const std::byte* data = nullptr;  // of the first element
  };

  // Errors: a key twice.
  static Result<GgufMetadata> Make(std::string file, std::vector<Value> values);

  bool IsArray(std::string_view key) const;  // false also when the key is absent
  Result<std::optional<int64_t>> Integer(std::string_view key, IntegerRange range) const;
  Result<std::optional<double>> Number(std::string_view key, NumberRange range) const;
  Result<std::optional<bool>> Flag(std::string_view key) const;
  Result<std::optional<std::string_view>> Text(std::string_view key) const;
  // Nothing when the key is absent.
  Result<std::optional<std::vector<std::string_view>>> TextList(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> IntegerList(std::string_view key) const;
  Result<std::optional<std::vector<float>>> FloatList(std::string_view key) const;

  Result<int64_t> RequiredInteger(std::string_view key, IntegerRange range) const;
  Result<double> RequiredNumber(std::string_view key, NumberRange range) const;
  Result<std::string_view> RequiredText(std::string_view key) const;

  Status Wrong(std::string_view key, std::string_view found, std::string_view expected) const;
  Status Missing(std::string_view key) const;
  const std::string& file() const { return file_; }

 private:
  GgufMetadata(std::string file, std::vector<Value> values)
      : file_(std::move(file)), values_(std::move(values)) {}
  const Value* Find(std::string_view key) const;

  std::string file_;
  std::vector<Value> values_;  // sorted by key
};

struct GgufFile {
  std::shared_ptr<const MappedFile> file;
  GgufMetadata metadata;
  std::vector<FileTensor> tensors;  // GGUF names, sizes outermost first, in the file's order
  uint64_t data_start = 0;
};

Result<GgufFile> ReadGguf(const std::filesystem::path& path);

}  // namespace spry
