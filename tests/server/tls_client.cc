#include "tests/server/tls_client.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <cstdio>

#include "base/check.h"

namespace spry {

TlsFiles MakeCertificate(const TemporaryFolder& folder, const std::string& name, KeyKind kind) {
  EVP_PKEY* const key =
      kind == KeyKind::kEc ? EVP_EC_gen("P-256") : EVP_RSA_gen(static_cast<unsigned>(2048));
  X509* const cert = X509_new();
  CHECK(key != nullptr && cert != nullptr);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), 0);
  X509_gmtime_adj(X509_getm_notAfter(cert), 24 * 3600);
  X509_set_pubkey(cert, key);
  X509_NAME* const subject = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(cert, subject);
  CHECK(X509_sign(cert, key, EVP_sha256()) != 0);

  const TlsFiles files{.cert = folder.path() / (name + ".crt"),
                       .key = folder.path() / (name + ".key")};
  std::FILE* file = std::fopen(files.cert.c_str(), "w");
  CHECK(file != nullptr && PEM_write_X509(file, cert) == 1);
  std::fclose(file);
  file = std::fopen(files.key.c_str(), "w");
  CHECK(file != nullptr &&
        PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  std::fclose(file);
  X509_free(cert);
  EVP_PKEY_free(key);
  return files;
}

struct TlsClient::Session {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl = nullptr;
  ~Session() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
};

TlsClient::TlsClient(int port, int lowest_version, int highest_version)
    : Client(port), session_(std::make_unique<Session>()) {
  SSL_CTX* const context = session_->context;
  // Otherwise this library would not even offer TLS 1.1.
  SSL_CTX_set_security_level(context, 0);
  SSL_CTX_set_min_proto_version(context, lowest_version);
  SSL_CTX_set_max_proto_version(context, highest_version);
  session_->ssl = SSL_new(context);
  SSL_set_fd(session_->ssl, socket());
  has_handshake_ = SSL_connect(session_->ssl) == 1;
}

TlsClient::~TlsClient() = default;

ssize_t TlsClient::Receive(char* to, size_t size) {
  return SSL_read(session_->ssl, to, static_cast<int>(size));
}

ssize_t TlsClient::Put(std::string_view bytes) {
  return SSL_write(session_->ssl, bytes.data(), static_cast<int>(bytes.size()));
}

}  // namespace spry
