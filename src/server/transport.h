// Bytes to and from a connected, non-blocking socket, plain or through TLS. Nothing here waits: a
// call does what can be done and says what it would wait for. The socket belongs to the caller and
// outlives the transport.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spry {

enum class IoState {
  kDone,
  kWantRead,   // try again when the socket can be read
  kWantWrite,  // or written
  kEnd,        // the peer sends no more
  kFailed,     // the connection is of no more use
};

struct IoOutcome {
  IoState state = IoState::kDone;
  size_t bytes = 0;  // with kDone, of Read and Write: at least one
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual IoState Handshake() = 0;
  virtual IoOutcome Read(std::span<char> to) = 0;
  virtual IoOutcome Write(std::string_view bytes) = 0;
  // Tells the peer that nothing more will be sent.
  virtual void FinishWriting() = 0;
};

std::unique_ptr<Transport> MakePlainTransport(int socket);

// A certificate chain with its key, for TLS 1.2 and later.
class TlsContext {
 public:
  static Result<std::unique_ptr<TlsContext>> Load(const std::string& cert_file,
                                                  const std::string& key_file);
  virtual ~TlsContext() = default;
  // Null when memory is short. The context outlives it.
  virtual std::unique_ptr<Transport> Accept(int socket) = 0;
};

}  // namespace spry
