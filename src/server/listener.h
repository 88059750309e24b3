// Listening sockets, non-blocking: TCP on every address a host name stands for, or a Unix socket.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace spry {

// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }

  int value() const { return value_; }
  int Release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

struct TcpListeners {
  std::vector<Descriptor> sockets;
  int port = 0;  // what port 0 became; the same for every address
};

Result<TcpListeners> ListenOnTcp(const std::string& host, int port);

// A socket file in the file system, which goes with this object unless another has taken its place.
class UnixListener {
 public:
  // A socket file that nobody listens on is replaced.
  static Result<UnixListener> Listen(const std::string& path);
  ~UnixListener() { RemoveFile(); }
  UnixListener(UnixListener&& other) noexcept;
  UnixListener& operator=(UnixListener&&) = delete;

  // Unless another has taken its place.
  void RemoveFile() const;

  Descriptor socket;

 private:
  UnixListener() = default;

  std::string path_;
  uint64_t device_ = 0;  // of the file that was made
  uint64_t inode_ = 0;
};

}  // namespace spry
