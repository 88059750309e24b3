#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <strings.h>

namespace spry {

ApiKeys::Digest ApiKeys::DigestOf(std::string_view key) {
  Digest digest{};
  SHA256(reinterpret_cast<const uint8_t*>(key.data()), key.size(), digest.data());
  return digest;
}

ApiKeys::ApiKeys(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) digests_.push_back(DigestOf(key));
}

std::optional<std::string_view> ApiKeys::KeyOf(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";  // the scheme's case does not matter
  if (authorization.size() < kScheme.size() ||
      strncasecmp(authorization.data(), kScheme.data(), kScheme.size()) != 0) {
    return {};
  }
  return authorization.substr(kScheme.size());
}

bool ApiKeys::Allow(std::string_view authorization) const {
  if (digests_.empty()) return true;
  const std::optional<std::string_view> key = KeyOf(authorization);
  if (!key) return false;
  const Digest digest = DigestOf(*key);
  bool allowed = false;
  for (const Digest& known : digests_) {
    allowed |= CRYPTO_memcmp(known.data(), digest.data(), digest.size()) == 0;
  }
  return allowed;
}

}  // namespace spry
