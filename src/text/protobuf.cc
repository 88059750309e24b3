#include "text/protobuf.h"

#include <fmt/format.h>

namespace spry {
namespace {

constexpr int kMaxVarintBytes = 10;
constexpr uint64_t kMaxFieldNumber = (1 << 29) - 1;

using Wire = ProtobufReader::Field::Wire;

}  // namespace

Status ProtobufReader::Wrong(size_t offset, std::string_view what) const {
  return InvalidArgument(fmt::format("{}: byte {}: {}", file_, offset, what));
}

Status ProtobufReader::Expect(const Field& field, Field::Wire wire, std::string_view what) const {
  if (field.wire == wire) return {};
  return Wrong(field.offset,
               fmt::format("field {} has wire type {}; expected {} ({})", field.number,
                           static_cast<int>(field.wire), static_cast<int>(wire), what));
}

Result<uint64_t> ProtobufReader::Varint() {
  uint64_t value = 0;
  for (int i = 0; i < kMaxVarintBytes; ++i) {
    if (static_cast<size_t>(i) == rest_.size()) {
      return Wrong(offset_, "a number runs past the end of its message");
    }
    const auto byte = static_cast<uint8_t>(rest_[i]);
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      offset_ += i + 1;
      return value;
    }
  }
  return Wrong(offset_, "a number has more than 10 bytes");
}

Result<uint64_t> ProtobufReader::Fixed(size_t size) {
  if (size > rest_.size()) return Wrong(offset_, "a number runs past the end of its message");
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) {
    value |= static_cast<uint64_t>(static_cast<uint8_t>(rest_[i])) << (8 * i);
  }
  rest_.remove_prefix(size);
  offset_ += size;
  return value;
}

Result<ProtobufReader::Field> ProtobufReader::Next() {
  const size_t start = offset_;
  SPRY_ASSIGN_OR_RETURN(const uint64_t tag, Varint());
  Field field;
  field.wire = static_cast<Wire>(tag & 7);
  if (tag >> 3 == 0 || tag >> 3 > kMaxFieldNumber) {
    return Wrong(start,
                 fmt::format("field number {}; expected 1 to {}", tag >> 3, kMaxFieldNumber));
  }
  field.number = static_cast<uint32_t>(tag >> 3);
  field.offset = offset_;
  switch (field.wire) {
    case Wire::kVarint: {
      SPRY_ASSIGN_OR_RETURN(field.value, Varint());
      return field;
    }
    case Wire::kFixed64: {
      SPRY_ASSIGN_OR_RETURN(field.value, Fixed(8));
      return field;
    }
    case Wire::kFixed32: {
      SPRY_ASSIGN_OR_RETURN(field.value, Fixed(4));
      return field;
    }
    case Wire::kBytes: break;
    default:
      return Wrong(start, fmt::format("field {} has wire type {}; expected 0, 1, 2 or 5",
                                      field.number, tag & 7));
  }
  SPRY_ASSIGN_OR_RETURN(const uint64_t size, Varint());
  if (size > rest_.size()) {
    return Wrong(start, fmt::format("field {} has {} bytes, but its message ends {} bytes on",
                                    field.number, size, rest_.size()));
  }
  field.offset = offset_;
  field.bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  offset_ += size;
  return field;
}

}  // namespace spry
