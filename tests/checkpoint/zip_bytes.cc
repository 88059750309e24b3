#include "tests/checkpoint/zip_bytes.h"

namespace spry {
namespace {

class Writer {
 public:
  Writer& U16(uint64_t value) { return Number(value, 2); }
  Writer& U32(uint64_t value) { return Number(value, 4); }
  Writer& U64(uint64_t value) { return Number(value, 8); }
  Writer& Text(std::string_view text) {
    bytes_ += text;
    return *this;
  }
  uint64_t size() const { return bytes_.size(); }
  const std::string& bytes() const { return bytes_; }

 private:
  Writer& Number(uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i));
    return *this;
  }
  std::string bytes_;
};

constexpr uint64_t kIn64 = 0xffffffff;

void WriteLocal(const ZipBytesEntry& entry, Writer& out) {
  out.U32(0x04034b50).U16(0).U16(entry.flags).U16(entry.method).U32(0).U32(0).U32(0).U32(0);
  out.U16(entry.name.size()).U16(0).Text(entry.name).Text(entry.bytes);
}

void WriteCentral(const ZipBytesEntry& entry, uint64_t local, Writer& out) {
  const bool claims = entry.claimed_bytes != ~uint64_t{0};
  const uint64_t bytes = claims ? entry.claimed_bytes : entry.bytes.size();
  const bool in_64 = entry.sizes_64;
  out.U32(0x02014b50).U16(0).U16(0).U16(entry.flags).U16(entry.method).U32(0).U32(0);
  out.U32(in_64 ? kIn64 : bytes).U32(in_64 ? kIn64 : bytes);
  out.U16(entry.name.size()).U16(in_64 ? 34 : 0).U16(0).U16(0).U16(0).U32(0);
  out.U32(in_64 ? kIn64 : local).Text(entry.name);
  if (!in_64) return;
  out.U16(7).U16(2).U16(0);  // another field first
  out.U16(1).U16(24).U64(bytes).U64(bytes).U64(local);
}

}  // namespace

std::string ZipBytes::Bytes() const {
  Writer out;
  std::vector<uint64_t> places;
  for (const ZipBytesEntry& entry : entries) {
    places.push_back(out.size());
    WriteLocal(entry, out);
  }
  const uint64_t directory = out.size();
  for (size_t i = 0; i < entries.size(); ++i) WriteCentral(entries[i], places[i], out);
  const uint64_t end = out.size();
  const uint64_t count = claimed_entries == ~uint64_t{0} ? entries.size() : claimed_entries;
  if (end_64) {
    out.U32(0x06064b50).U64(44).U16(0).U16(0).U32(0).U32(0).U64(count).U64(count);
    out.U64(end - directory).U64(directory);
    out.U32(0x07064b50).U32(0).U64(end).U32(1);
  }
  out.U32(0x06054b50).U16(disk).U16(disk).U16(end_64 ? 0xffff : count);
  out.U16(end_64 ? 0xffff : count).U32(end_64 ? kIn64 : end - directory);
  out.U32(end_64 ? kIn64 : directory).U16(comment.size()).Text(comment);
  return out.bytes();
}

}  // namespace spry
