// Who may use the API. Keys are kept and compared as SHA-256 digests, every key each time, so that
// neither a key's length nor how much of it was guessed shows in the time taken.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spry {

class ApiKeys {
 public:
  // None: everybody may.
  explicit ApiKeys(const std::vector<std::string>& keys);

  // What follows "Bearer " in an Authorization field; nothing without that.
  static std::optional<std::string_view> KeyOf(std::string_view authorization);

  // Of an Authorization field: "Bearer KEY".
  bool Allow(std::string_view authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest DigestOf(std::string_view key);

  std::vector<Digest> digests_;
};

}  // namespace spry
