#include <errno.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <climits>
#include <system_error>
#include <utility>

#include "server/transport.h"

namespace spry {
namespace {

struct Free {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
};

// The library's own socket BIO calls write(), which raises SIGPIPE once the peer is gone; these
// send with MSG_NOSIGNAL instead. BIO_get_data holds the socket.
int SocketOf(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

int ReadBio(BIO* bio, char* to, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = recv(SocketOf(bio), to, size, 0);
  if (n < 0 && WouldBlock()) BIO_set_retry_read(bio);
  return static_cast<int>(n);
}

int WriteBio(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t n = send(SocketOf(bio), bytes, size, MSG_NOSIGNAL);
  if (n < 0 && WouldBlock()) BIO_set_retry_write(bio);
  return static_cast<int>(n);
}

long ControlBio(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

class TlsTransport final : public Transport {
 public:
  TlsTransport(std::unique_ptr<SSL, Free> ssl, int socket)
      : ssl_(std::move(ssl)), socket_(socket) {}

  IoState Handshake() override {
    ERR_clear_error();
    const int result = SSL_accept(ssl_.get());
    return result == 1 ? IoState::kDone : StateOf(result);
  }

  IoOutcome Read(std::span<char> to) override {
    ERR_clear_error();
    const int n = SSL_read(ssl_.get(), to.data(), Length(to.size()));
    if (n > 0) return {.bytes = static_cast<size_t>(n)};
    return {.state = StateOf(n)};
  }

  IoOutcome Write(std::string_view bytes) override {
    ERR_clear_error();
    const int n = SSL_write(ssl_.get(), bytes.data(), Length(bytes.size()));
    if (n > 0) return {.bytes = static_cast<size_t>(n)};
    return {.state = StateOf(n)};
  }

  void FinishWriting() override {
    ERR_clear_error();
    SSL_shutdown(ssl_.get());
    shutdown(socket_, SHUT_WR);
  }

 private:
  static int Length(size_t size) { return static_cast<int>(std::min<size_t>(size, INT_MAX)); }

  IoState StateOf(int result) {
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ: return IoState::kWantRead;
      case SSL_ERROR_WANT_WRITE: return IoState::kWantWrite;
      case SSL_ERROR_ZERO_RETURN: return IoState::kEnd;
      default: return IoState::kFailed;
    }
  }

  std::unique_ptr<SSL, Free> ssl_;
  const int socket_;
};

class TlsContextImpl final : public TlsContext {
 public:
  TlsContextImpl(std::unique_ptr<SSL_CTX, Free> context, std::unique_ptr<BIO_METHOD, Free> method)
      : method_(std::move(method)), context_(std::move(context)) {}

  std::unique_ptr<Transport> Accept(int socket) override {
    std::unique_ptr<SSL, Free> ssl(SSL_new(context_.get()));
    BIO* bio = BIO_new(method_.get());
    if (ssl == nullptr || bio == nullptr) {
      BIO_free(bio);
      return nullptr;
    }
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl.get(), bio, bio);  // takes the BIO
    return std::make_unique<TlsTransport>(std::move(ssl), socket);
  }

 private:
  std::unique_ptr<BIO_METHOD, Free> method_;
  std::unique_ptr<SSL_CTX, Free> context_;
};

// Never ask for a key's passphrase at the terminal.
int NoPassphrase(char*, int, int, void*) { return 0; }

// `wanted` is what the file did not bring.
Status FileError(std::string_view flag, const std::string& file, std::string_view wanted) {
  const unsigned long code = ERR_peek_error();
  const char* reason = ERR_SYSTEM_ERROR(code) ? nullptr : ERR_reason_error_string(code);
  if (reason == nullptr) {
    return InvalidArgument(fmt::format("{} {}: {}", flag, file,
                                       std::generic_category().message(ERR_GET_REASON(code))));
  }
  return InvalidArgument(
      fmt::format("{} {} holds no {} that can be read ({}); expected PEM without a passphrase",
                  flag, file, wanted, reason));
}

std::unique_ptr<BIO_METHOD, Free> MakeBioMethod() {
  std::unique_ptr<BIO_METHOD, Free> method(
      BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without SIGPIPE"));
  if (method != nullptr) {
    BIO_meth_set_read(method.get(), ReadBio);
    BIO_meth_set_write(method.get(), WriteBio);
    BIO_meth_set_ctrl(method.get(), ControlBio);
  }
  return method;
}

}  // namespace

Result<std::unique_ptr<TlsContext>> TlsContext::Load(const std::string& cert_file,
                                                     const std::string& key_file) {
  std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_server_method()));
  std::unique_ptr<BIO_METHOD, Free> method = MakeBioMethod();
  if (context == nullptr || method == nullptr) return Internal("OpenSSL cannot be set up");
  SSL_CTX* const c = context.get();
  SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
  SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Moving: what is unsent may be appended to, and so move, between two tries of one write.
  // Release: an idle stream keeps no buffers of 16 KB.
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                          SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_default_passwd_cb(c, NoPassphrase);

  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(c, cert_file.c_str()) != 1) {
    return FileError("--ssl-certfile", cert_file, "certificate");
  }
  ERR_clear_error();
  const bool is_key = SSL_CTX_use_PrivateKey_file(c, key_file.c_str(), SSL_FILETYPE_PEM) == 1;
  // A key of the certificate's kind is compared at once, one of another kind by the check.
  if (!is_key && ERR_GET_REASON(ERR_peek_error()) != X509_R_KEY_VALUES_MISMATCH) {
    return FileError("--ssl-keyfile", key_file, "private key");
  }
  if (!is_key || SSL_CTX_check_private_key(c) != 1) {
    return InvalidArgument(fmt::format("--ssl-keyfile {} is not the key of the certificate in {}",
                                       key_file, cert_file));
  }
  return std::unique_ptr<TlsContext>(
      std::make_unique<TlsContextImpl>(std::move(context), std::move(method)));
}

}  // namespace spry
