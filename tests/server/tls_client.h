// A TLS client for tests, and certificates made on the spot.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "tests/server_rig/server_rig.h"
#include "tests/support/temporary_folder.h"

namespace spry {

struct TlsFiles {
  std::string cert;
  std::string key;
};

enum class KeyKind { kEc, kRsa };

// Self-signed, valid for a day.
TlsFiles MakeCertificate(const TemporaryFolder& folder, const std::string& name, KeyKind kind);

inline constexpr int kTls11 = 0x0302;
inline constexpr int kTls12 = 0x0303;
inline constexpr int kTls13 = 0x0304;

// Trusts anybody.
class TlsClient : public Client {
 public:
  TlsClient(int port, int lowest_version, int highest_version);
  ~TlsClient() override;

  bool has_handshake() const { return has_handshake_; }

 protected:
  ssize_t Receive(char* to, size_t size) override;
  ssize_t Put(std::string_view bytes) override;

 private:
  struct Session;
  std::unique_ptr<Session> session_;
  bool has_handshake_ = false;
};

}  // namespace spry
