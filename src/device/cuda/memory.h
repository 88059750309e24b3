// Memory of the card and memory shared with it, owned. Reserved while a program is compiled, never
// during a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"

namespace spry::cuda {

// Memory on the card.
class DeviceMemory {
 public:
  // ResourceExhausted when the card has no room, naming `what`.
  static Result<DeviceMemory> Allocate(int64_t bytes, const std::string& what);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~DeviceMemory();

  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

// Host memory that the card reads and writes in place, across the bus. Zeroed.
class MappedMemory {
 public:
  static Result<MappedMemory> Allocate(int64_t bytes);

  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept
      : host_(std::exchange(other.host_, nullptr)),
        device_(std::exchange(other.device_, nullptr)) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(host_, other.host_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~MappedMemory();

  std::byte* host() const { return host_; }
  std::byte* device() const { return device_; }  // the same bytes, as kernels address them

 private:
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
};

}  // namespace spry::cuda
