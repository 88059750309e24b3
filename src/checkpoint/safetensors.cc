#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "checkpoint/json_fields.h"
#include "checkpoint/printable.h"

namespace spry {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct ElementType {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype;
};

constexpr ElementType kElementTypes[] = {
    {"F32", 32, DType::kF32},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I8", 8, {}},
    {"U8", 8, {}},
    {"BOOL", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
    {"F8_E5M2FNUZ", 8, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
    {"F4", 4, {}},
    {"C64", 64, {}},
};

// A header entry on its way to a FileTensor; the range is relative to the data section.
struct HeaderEntry {
  std::string_view name;
  const ElementType* type = nullptr;
  Shape shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

class HeaderReader {
 public:
  HeaderReader(std::string file, uint64_t data_bytes)
      : file_(std::move(file)), data_bytes_(data_bytes) {}

  Result<std::vector<HeaderEntry>> Read(const JsonFields& header) const {
    std::vector<HeaderEntry> entries;
    for (const simdjson::dom::key_value_pair field : header.object()) {
      if (field.key == "__metadata__") {
        SPRY_RETURN_IF_ERROR(CheckMetadata(field.value));
        continue;
      }
      SPRY_ASSIGN_OR_RETURN(const HeaderEntry entry, ReadEntry(field.key, field.value));
      entries.push_back(entry);
    }
    std::sort(entries.begin(), entries.end(), [](const HeaderEntry& a, const HeaderEntry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    SPRY_RETURN_IF_ERROR(CheckCover(entries));
    return entries;
  }

 private:
  Status Error(std::string_view tensor, std::string_view problem) const {
    return InvalidArgument(fmt::format("{}: tensor {} {}", file_, Printable(tensor), problem));
  }

  Status CheckMetadata(simdjson::dom::element element) const {
    simdjson::dom::object object;
    bool right = element.get_object().get(object) == simdjson::SUCCESS;
    if (right) {
      for (const simdjson::dom::key_value_pair field : object) right &= field.value.is_string();
    }
    if (right) return {};
    return InvalidArgument(fmt::format("{}: \"__metadata__\" must map strings to strings", file_));
  }

  Result<HeaderEntry> ReadEntry(std::string_view name, simdjson::dom::element element) const {
    HeaderEntry entry;
    entry.name = name;
    const std::string where = fmt::format("{}: tensor {}", file_, Printable(name));
    SPRY_RETURN_IF_ERROR(JsonFields::Make(element, where).status());
    std::string_view type_name;
    if (element["dtype"].get_string().get(type_name) != simdjson::SUCCESS) {
      return Error(name, "has no \"dtype\" string");
    }
    const auto type =
        std::find_if(std::begin(kElementTypes), std::end(kElementTypes),
                     [&](const ElementType& candidate) { return candidate.name == type_name; });
    if (type == std::end(kElementTypes)) {
      return Error(name, fmt::format("has the unknown dtype {}; supported: {}",
                                     Printable(type_name), kSafetensorsTypes));
    }
    entry.type = type;
    SPRY_ASSIGN_OR_RETURN(const std::vector<uint64_t> dims, ReadNumbers(name, element, "shape"));
    if (dims.size() > Shape::kMaxRank) {
      return Error(name, fmt::format("has {} dimensions, supported: at most {}", dims.size(),
                                     Shape::kMaxRank));
    }
    int64_t signed_dims[Shape::kMaxRank] = {};
    for (size_t i = 0; i < dims.size(); ++i) signed_dims[i] = static_cast<int64_t>(dims[i]);
    entry.shape = Shape(std::span<const int64_t>(signed_dims, dims.size()));
    SPRY_ASSIGN_OR_RETURN(const std::vector<uint64_t> range,
                          ReadNumbers(name, element, "data_offsets"));
    if (range.size() != 2) return Error(name, "needs two \"data_offsets\"");
    entry.begin = range[0];
    entry.end = range[1];
    SPRY_RETURN_IF_ERROR(CheckSize(entry));
    return entry;
  }

  Result<std::vector<uint64_t>> ReadNumbers(std::string_view name, simdjson::dom::element element,
                                            const char* key) const {
    simdjson::dom::array array;
    if (element[key].get_array().get(array) != simdjson::SUCCESS) {
      return Error(name, fmt::format("has no list \"{}\"", key));
    }
    std::vector<uint64_t> numbers;
    for (const simdjson::dom::element item : array) {
      int64_t number = -1;
      if (item.get_int64().get(number) != simdjson::SUCCESS || number < 0) {
        return Error(name, fmt::format("has an entry in \"{}\" that is no size", key));
      }
      numbers.push_back(static_cast<uint64_t>(number));
    }
    return numbers;
  }

  Status CheckSize(const HeaderEntry& entry) const {
    const std::optional<int64_t> elements = entry.shape.elements();
    uint64_t bits = 0;
    if (!elements ||
        __builtin_mul_overflow(static_cast<uint64_t>(*elements), entry.type->bits, &bits)) {
      return Error(entry.name,
                   fmt::format("has shape {}, which is too large", entry.shape.ToString()));
    }
    if (entry.begin > entry.end || entry.end > data_bytes_) {
      return Error(entry.name, fmt::format("lies at [{}, {}) of {} data bytes", entry.begin,
                                           entry.end, data_bytes_));
    }
    if (bits % 8 != 0 || entry.end - entry.begin != bits / 8) {
      return Error(entry.name, fmt::format("has {} bytes, but {} of shape {} needs {} bits",
                                           entry.end - entry.begin, entry.type->name,
                                           entry.shape.ToString(), bits));
    }
    return {};
  }

  Status CheckCover(const std::vector<HeaderEntry>& entries) const {
    uint64_t covered = 0;
    for (const HeaderEntry& entry : entries) {
      if (entry.begin != covered) {
        return Error(
            entry.name,
            fmt::format("starts at data byte {}, expected {}: {}", entry.begin, covered,
                        entry.begin < covered ? "it overlaps another tensor" : "there is a hole"));
      }
      covered = entry.end;
    }
    if (covered == data_bytes_) return {};
    return InvalidArgument(fmt::format("{}: {} bytes are left over after the last tensor", file_,
                                       data_bytes_ - covered));
  }

  std::string file_;
  uint64_t data_bytes_;
};

}  // namespace

Result<std::vector<FileTensor>> ReadSafetensors(const std::filesystem::path& path) {
  SPRY_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file->bytes();
  if (bytes.size() < kLengthBytes) {
    return InvalidArgument(fmt::format("{}: {} bytes are too few for a safetensors file",
                                       path.string(), bytes.size()));
  }
  constexpr std::string_view kLfsPointer = "version https://git-lfs";
  const std::string_view begin(reinterpret_cast<const char*>(bytes.data()),
                               std::min(bytes.size(), kLfsPointer.size()));
  if (begin == kLfsPointer) {
    return InvalidArgument(fmt::format(
        "{}: a Git LFS pointer, not the file itself; run `git lfs pull` in its repository",
        path.string()));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - kLengthBytes) {
    return InvalidArgument(fmt::format(
        "{}: header length {}, expected at most {} and no more than the file's {} bytes",
        path.string(), header_bytes, kMaxHeaderBytes, bytes.size() - kLengthBytes));
  }
  const char* text = reinterpret_cast<const char*>(bytes.data()) + kLengthBytes;
  if (header_bytes == 0 || *text != '{') {
    return InvalidArgument(fmt::format("{}: the header at byte {} does not start with '{{'",
                                       path.string(), kLengthBytes));
  }
  SPRY_ASSIGN_OR_RETURN(const JsonText json,
                        JsonText::Parse({text, header_bytes}, path.string() + ": header"));
  const uint64_t data_start = kLengthBytes + header_bytes;
  const HeaderReader reader(path.string(), bytes.size() - data_start);
  SPRY_ASSIGN_OR_RETURN(const std::vector<HeaderEntry> entries, reader.Read(json.root()));
  std::vector<FileTensor> tensors;
  tensors.reserve(entries.size());
  for (const HeaderEntry& entry : entries) {
    tensors.push_back({.name = std::string(entry.name),
                       .file_type = std::string(entry.type->name),
                       .dtype = entry.type->dtype,
                       .shape = entry.shape,
                       .file = file,
                       .offset = data_start + entry.begin,
                       .bytes = entry.end - entry.begin});
  }
  return tensors;
}

}  // namespace spry
