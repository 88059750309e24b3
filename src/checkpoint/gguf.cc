#include "checkpoint/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "checkpoint/ggml_types.h"
#include "checkpoint/printable.h"

namespace spry {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kOldestVersion = 2;
constexpr uint32_t kNewestVersion = 3;
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 18;
constexpr int kMaxArrayDepth = 4;
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 1 << 20;

uint64_t ScalarBytes(GgufType type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[static_cast<uint32_t>(type)];
}

// Walks the head of the file. `field` in each call is what is being read, for messages.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : path_(file.path().string()), bytes_(file.bytes()) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return bytes_.size() - offset_; }
  const std::byte* data() const { return bytes_.data() + offset_; }

  Status Error(std::string_view problem) const {
    return InvalidArgument(fmt::format("{}: byte {}: {}", path_, offset_, problem));
  }

  template <typename T>
  Result<T> Read(std::string_view field) {
    if (left() < sizeof(T)) return Ends(field);
    T value;
    std::memcpy(&value, data(), sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  Result<std::string_view> ReadText(std::string_view field) {
    SPRY_ASSIGN_OR_RETURN(const uint64_t size, Read<uint64_t>(field));
    if (size > left()) {
      return Error(fmt::format("{} claims {} bytes, but {} are left", field, size, left()));
    }
    const std::string_view text(reinterpret_cast<const char*>(data()), size);
    offset_ += size;
    return text;
  }

  Status Skip(uint64_t count, uint64_t size, std::string_view field) {
    if (count > left() / size) {
      return Error(fmt::format("{} claims {} elements of {} bytes, but {} bytes are left", field,
                               count, size, left()));
    }
    offset_ += count * size;
    return {};
  }

  Result<uint64_t> ReadCount(std::string_view field, uint64_t max) {
    SPRY_ASSIGN_OR_RETURN(const uint64_t count, Read<uint64_t>(field));
    if (count > max) {
      return Error(fmt::format("{} is {}, expected at most {}", field, count, max));
    }
    return count;
  }

 private:
  Status Ends(std::string_view field) const {
    return Error(fmt::format("the file ends inside {}", field));
  }

  std::string path_;
  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

Result<GgufType> ReadType(Cursor& cursor, std::string_view key) {
  SPRY_ASSIGN_OR_RETURN(const uint32_t type, cursor.Read<uint32_t>("a value type"));
  if (type > static_cast<uint32_t>(GgufType::kF64)) {
    return cursor.Error(
        fmt::format("metadata key {} has value type {}, expected 0 to 12", Printable(key), type));
  }
  return static_cast<GgufType>(type);
}

Status SkipElements(Cursor& cursor, GgufType type, uint64_t count, std::string_view key, int depth);

Status SkipArray(Cursor& cursor, std::string_view key, int depth) {
  if (depth > kMaxArrayDepth) {
    return cursor.Error(fmt::format("metadata key {} nests arrays more than {} deep",
                                    Printable(key), kMaxArrayDepth));
  }
  SPRY_ASSIGN_OR_RETURN(const GgufType type, ReadType(cursor, key));
  SPRY_ASSIGN_OR_RETURN(const uint64_t count, cursor.Read<uint64_t>("an array length"));
  return SkipElements(cursor, type, count, key, depth);
}

// No count is trusted: each element moves the cursor by at least a byte, or the file ends.
Status SkipElements(Cursor& cursor, GgufType type, uint64_t count, std::string_view key,
                    int depth) {
  if (type == GgufType::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      SPRY_RETURN_IF_ERROR(cursor.ReadText("a metadata string").status());
    }
    return {};
  }
  if (type == GgufType::kArray) {
    for (uint64_t i = 0; i < count; ++i) {
      SPRY_RETURN_IF_ERROR(SkipArray(cursor, key, depth + 1));
    }
    return {};
  }
  return cursor.Skip(count, ScalarBytes(type), "a metadata value");
}

Result<GgufMetadata::Value> ReadValue(Cursor& cursor) {
  GgufMetadata::Value value;
  SPRY_ASSIGN_OR_RETURN(value.key, cursor.ReadText("a metadata key"));
  SPRY_ASSIGN_OR_RETURN(value.type, ReadType(cursor, value.key));
  if (value.type == GgufType::kArray) {
    value.is_array = true;
    SPRY_ASSIGN_OR_RETURN(value.type, ReadType(cursor, value.key));
    SPRY_ASSIGN_OR_RETURN(value.count, cursor.Read<uint64_t>("an array length"));
  }
  value.data = cursor.data();
  SPRY_RETURN_IF_ERROR(SkipElements(cursor, value.type, value.count, value.key, 1));
  return value;
}

// Bytes of a tensor, or why there is no such tensor.
Result<uint64_t> TensorBytes(const Cursor& cursor, std::string_view name, const GgmlType& type,
                             std::span<const int64_t> dims) {
  const Shape shape(dims);
  const std::optional<int64_t> elements = shape.elements();
  int64_t bytes = 0;
  if (!elements || *elements == 0 ||
      __builtin_mul_overflow(*elements, int64_t{type.block_bytes}, &bytes)) {
    return cursor.Error(
        fmt::format("tensor {} has shape {}, expected sizes from 1 up whose "
                    "product fits 63 bits",
                    Printable(name), shape.ToString()));
  }
  const int64_t row = dims.empty() ? 1 : dims.back();
  if (row % type.block_elements != 0) {
    return cursor.Error(
        fmt::format("tensor {} is {} with rows of {} elements, expected a multiple "
                    "of {}; types that spry serves: {}",
                    Printable(name), type.name, row, type.block_elements, kGgmlTypesServed));
  }
  return static_cast<uint64_t>(*elements / type.block_elements * type.block_bytes);
}

// `offset` of the result is relative to the data section.
Result<FileTensor> ReadTensorInfo(Cursor& cursor) {
  FileTensor tensor;
  SPRY_ASSIGN_OR_RETURN(const std::string_view name, cursor.ReadText("a tensor name"));
  tensor.name = name;
  SPRY_ASSIGN_OR_RETURN(const uint32_t rank, cursor.Read<uint32_t>("a tensor's rank"));
  if (rank > Shape::kMaxRank) {
    return cursor.Error(fmt::format("tensor {} has {} dimensions, expected at most {}",
                                    Printable(name), rank, Shape::kMaxRank));
  }
  int64_t dims[Shape::kMaxRank] = {};
  for (uint32_t i = 0; i < rank; ++i) {
    SPRY_ASSIGN_OR_RETURN(dims[rank - 1 - i], cursor.Read<int64_t>("a tensor's sizes"));
  }
  const std::span<const int64_t> shape(dims, rank);
  SPRY_ASSIGN_OR_RETURN(const uint32_t number, cursor.Read<uint32_t>("a tensor's type"));
  const GgmlType* type = FindGgmlType(number);
  if (type == nullptr) {
    return cursor.Error(fmt::format("tensor {} has the unknown ggml type {}; supported: {}",
                                    Printable(name), number, kGgmlTypesServed));
  }
  SPRY_ASSIGN_OR_RETURN(tensor.offset, cursor.Read<uint64_t>("a tensor's offset"));
  SPRY_ASSIGN_OR_RETURN(tensor.bytes, TensorBytes(cursor, name, *type, shape));
  tensor.file_type = type->name;
  tensor.dtype = type->dtype;
  tensor.shape = Shape(shape);
  return tensor;
}

// Every tensor inside the file, aligned, and none over another. Makes offsets the file's.
Status PlaceTensors(const std::shared_ptr<const MappedFile>& file, uint64_t data_start,
                    uint64_t alignment, std::vector<FileTensor>& tensors) {
  const uint64_t file_bytes = file->bytes().size();
  const uint64_t data_bytes = file_bytes - std::min(data_start, file_bytes);
  const auto error = [&](const FileTensor& tensor, std::string_view problem) {
    return InvalidArgument(
        fmt::format("{}: tensor {} {}", file->path().string(), Printable(tensor.name), problem));
  };
  std::vector<const FileTensor*> sorted;
  for (FileTensor& tensor : tensors) {
    if (tensor.offset % alignment != 0) {
      return error(tensor, fmt::format("is at offset {}, expected a multiple of {}", tensor.offset,
                                       alignment));
    }
    if (tensor.offset > data_bytes || tensor.bytes > data_bytes - tensor.offset) {
      return error(tensor, fmt::format("needs {} bytes at offset {}, but the file has {} bytes of "
                                       "tensors; is it cut short?",
                                       tensor.bytes, tensor.offset, data_bytes));
    }
    tensor.offset += data_start;
    tensor.file = file;
    sorted.push_back(&tensor);
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const FileTensor* a, const FileTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->offset < sorted[i - 1]->offset + sorted[i - 1]->bytes) {
      return error(*sorted[i], "overlaps " + Printable(sorted[i - 1]->name));
    }
  }
  return {};
}

Status CheckVersion(Cursor& cursor) {
  SPRY_ASSIGN_OR_RETURN(const uint32_t magic, cursor.Read<uint32_t>("the magic number"));
  if (magic != kMagic) return cursor.Error("is no GGUF file: it does not start with \"GGUF\"");
  SPRY_ASSIGN_OR_RETURN(const uint32_t version, cursor.Read<uint32_t>("the version"));
  if (version >= kOldestVersion && version <= kNewestVersion) return {};
  // The low half of a small big-endian number is zero.
  if (version != 0 && (version & 0xffff) == 0) {
    return Unimplemented(
        cursor.Error("the file is big-endian; supported: little-endian").message());
  }
  return Unimplemented(cursor
                           .Error(fmt::format("GGUF version {}; supported: {} and {}", version,
                                              kOldestVersion, kNewestVersion))
                           .message());
}

}  // namespace

Result<GgufFile> ReadGguf(const std::filesystem::path& path) {
  SPRY_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  Cursor cursor(*file);
  SPRY_RETURN_IF_ERROR(CheckVersion(cursor));
  SPRY_ASSIGN_OR_RETURN(const uint64_t tensor_count,
                        cursor.ReadCount("the number of tensors", kMaxTensors));
  SPRY_ASSIGN_OR_RETURN(const uint64_t key_count,
                        cursor.ReadCount("the number of metadata keys", kMaxKeys));
  std::vector<GgufMetadata::Value> values;
  for (uint64_t i = 0; i < key_count; ++i) {
    SPRY_ASSIGN_OR_RETURN(GgufMetadata::Value value, ReadValue(cursor));
    values.push_back(value);
  }
  SPRY_ASSIGN_OR_RETURN(GgufMetadata metadata,
                        GgufMetadata::Make(path.string(), std::move(values)));
  std::vector<FileTensor> tensors;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    SPRY_ASSIGN_OR_RETURN(FileTensor tensor, ReadTensorInfo(cursor));
    tensors.push_back(std::move(tensor));
  }
  SPRY_ASSIGN_OR_RETURN(const std::optional<int64_t> stated_alignment,
                        metadata.Integer("general.alignment", {1, kMaxAlignment}));
  const uint64_t alignment = static_cast<uint64_t>(stated_alignment.value_or(kDefaultAlignment));
  if (!std::has_single_bit(alignment)) {
    return metadata.Wrong("general.alignment", fmt::format("{}", alignment), "a power of two");
  }
  const uint64_t data_start = (cursor.offset() + alignment - 1) / alignment * alignment;
  SPRY_RETURN_IF_ERROR(PlaceTensors(file, data_start, alignment, tensors));
  return GgufFile{.file = file,
                  .metadata = std::move(metadata),
                  .tensors = std::move(tensors),
                  .data_start = data_start};
}

}  // namespace spry
