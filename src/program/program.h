// A Program: a model's forward pass as a flat list of ops, traced once and then the only
// description that any device executes. Nothing in it depends on a kernel, a device or a batch.
//
// Every activation is a matrix [rows, width] whose row count is one of two symbolic dims, known
// only when a step runs: T tokens, L sampled rows. (R, a step's requests, counts what lies beside
// the activations: program/step.h.) Everything else is a number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/ids.h"
#include "program/op_id.h"
#include "program/step.h"
#include "tensor/dtype.h"
#include "tensor/host_tensor.h"

namespace spry {

using BufferId = Id<struct BufferTag>;
using WeightId = Id<struct WeightTag>;

enum class RowDim : uint8_t { kTokens, kSamples };  // T, L
char RowDimLetter(RowDim dim);

// The size of a dim in a step, and in the largest step.
SPRY_HOST_DEVICE inline int32_t NumRows(RowDim dim, const StepHeader& header) {
  switch (dim) {
    case RowDim::kTokens: return header.num_tokens;
    case RowDim::kSamples: return header.num_samples;
  }
  return 0;
}
inline int64_t MaxRows(RowDim dim, const StepLimits& limits) {
  switch (dim) {
    case RowDim::kTokens: return limits.max_tokens;
    case RowDim::kSamples: return limits.max_samples;
  }
  return 0;
}

// An activation buffer [rows, width], placed in one arena by PlanBuffers.
struct BufferRecord {
  std::string name;
  RowDim rows = RowDim::kTokens;
  int64_t width = 0;  // elements per row
  DType dtype = DType::kF32;
};

// Some columns of a buffer: element (r, c) is at r * stride + offset + c, in elements.
struct Tensor {
  BufferId buffer{-1};
  RowDim rows = RowDim::kTokens;
  DType dtype = DType::kF32;
  int64_t width = 0;
  int64_t stride = 0;
  int64_t offset = 0;

  bool operator==(const Tensor&) const = default;
  Tensor Columns(int64_t begin, int64_t count) const {
    Tensor part = *this;
    part.offset += begin;
    part.width = count;
    return part;
  }
};

// A weight [N, K] (or a vector [N], K = 1), possibly stacked along N from several of the
// checkpoint's tensors, each with a dtype of its own.
struct WeightRecord {
  std::vector<WeightHandle> parts;
  int64_t rows = 0;     // N
  int64_t columns = 0;  // K

  const std::string& name() const { return parts.front().name; }
};

// What one attention layer keeps per token.
struct KvLayer {
  int num_kv_heads = 0;
  int64_t head_dim = 0;    // D of k
  int64_t v_head_dim = 0;  // D of v
  DType dtype = DType::kF32;
};

// What an op computes with beside its tensors: a trivially copyable struct from the op's header.
class OpParams {
 public:
  static constexpr size_t kMaxBytes = 64;

  template <typename T>
  static OpParams Of(const T& params) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxBytes);
    OpParams blob;
    std::memcpy(blob.bytes_.data(), &params, sizeof(T));
    return blob;
  }
  template <typename T>
  T As() const {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMaxBytes);
    T params;
    std::memcpy(&params, bytes_.data(), sizeof(T));
    return params;
  }

 private:
  alignas(8) std::array<std::byte, kMaxBytes> bytes_ = {};
};

// At most N values in place.
template <typename T, int N>
class FixedList {
 public:
  FixedList() = default;
  FixedList(std::initializer_list<T> values) {
    for (const T& value : values) Add(value);
  }
  void Add(const T& value) {
    CHECK(size_ < N);
    values_[size_++] = value;
  }
  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](int i) const {
    CHECK(i >= 0 && i < size_);
    return values_[i];
  }
  T& operator[](int i) {
    CHECK(i >= 0 && i < size_);
    return values_[i];
  }
  const T* begin() const { return values_.data(); }
  const T* end() const { return values_.data() + size_; }

 private:
  std::array<T, N> values_ = {};
  int size_ = 0;
};

struct OpRecord {
  OpId id = OpId::kStage;
  FixedList<Tensor, 4> inputs;
  FixedList<Tensor, 2> outputs;  // an output that is also an input is changed in place
  FixedList<WeightId, 4> weights;
  OpParams params;
};

struct Program {
  std::string name;  // of the architecture
  int64_t vocab_size = 0;
  // f32: the device computes with every weight as f32. bf16, f16: plain weights are that type and
  // quantised weights stay quantised.
  DType compute = DType::kF32;
  std::vector<BufferRecord> buffers;
  std::vector<WeightRecord> weights;
  std::vector<KvLayer> kv_layers;
  std::vector<OpRecord> ops;
  Tensor logits;  // [L, vocab_size] f32

  const BufferRecord& buffer(BufferId id) const { return buffers[id.value()]; }
  const WeightRecord& weight(WeightId id) const { return weights[id.value()]; }
};

// Where each buffer lies in one arena sized for the largest step. Buffers whose lives do not
// overlap share bytes.
struct BufferPlan {
  std::vector<int64_t> offset_bytes;  // by BufferId
  int64_t arena_bytes = 0;
};
inline constexpr int64_t kBufferAlignBytes = 256;
BufferPlan PlanBuffers(const Program& program, const StepLimits& limits);

}  // namespace spry
