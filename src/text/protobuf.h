// Reads the fields of a protocol buffer message, one after another, without a schema. Nothing is
// copied or trusted: every error names the byte of the file where it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spry {

class ProtobufReader {
 public:
  // `message` begins at byte `offset` of the file that errors name. Both must outlive this.
  ProtobufReader(std::string_view file, std::string_view message, size_t offset)
      : file_(file), rest_(message), offset_(offset) {}

  struct Field {
    uint32_t number = 0;
    uint64_t value = 0;      // a varint, or the bits of a fixed-size number
    std::string_view bytes;  // a length-delimited field: text or a message
    size_t offset = 0;       // of the value or of the bytes, in the file
    enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
    Wire wire = Wire::kVarint;
  };

  bool done() const { return rest_.empty(); }
  Result<Field> Next();

  // Errors unless `field` has the wire type.
  Status Expect(const Field& field, Field::Wire wire, std::string_view what) const;
  Status Wrong(size_t offset, std::string_view what) const;

 private:
  Result<uint64_t> Varint();
  Result<uint64_t> Fixed(size_t size);

  std::string_view file_;
  std::string_view rest_;
  size_t offset_;
};

}  // namespace spry
