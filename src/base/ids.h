// Small integers that must not be mixed up. An id is a name, not a number: it compares and prints,
// and its number is reached by value(). Trivially copyable, so it may lie in device memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

#if defined(__CUDACC__)
#define SPRY_HOST_DEVICE __host__ __device__
#else
#define SPRY_HOST_DEVICE
#endif

namespace spry {

template <typename Tag, typename Number = int32_t>
class Id {
 public:
  Id() = default;
  SPRY_HOST_DEVICE constexpr explicit Id(Number value) : value_(value) {}
  SPRY_HOST_DEVICE constexpr Number value() const { return value_; }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  Number value_ = 0;
};

using TokenId = Id<struct TokenTag>;                // an entry of the vocabulary
using BlockId = Id<struct BlockTag>;                // a block of the KV pool
using RowId = Id<struct RowTag>;                    // a permanent row of the device
using LayerIdx = Id<struct LayerTag>;               // a decoder layer, from 0
using StepId = Id<struct StepTag, uint64_t>;        // a launched step, from 0
using RequestId = Id<struct RequestTag, uint64_t>;  // a request of the engine, never used twice

}  // namespace spry

template <typename Tag, typename Number>
struct std::hash<spry::Id<Tag, Number>> {
  size_t operator()(spry::Id<Tag, Number> id) const { return std::hash<Number>{}(id.value()); }
};
