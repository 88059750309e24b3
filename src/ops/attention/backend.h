// What an attention backend can serve, said before it is asked to. A backend is a pair of kernels
// (write_kv, attention) that agree on a cache layout; its device binds them. Selection is here so
// that every device refuses in the same words, with all reasons at once.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace spry {

// What a model and its flags ask of attention (the union over layers).
struct AttentionConfig {
  DType activation = DType::kF32;
  DType kv = DType::kF32;
  int head_dim = 0;
  int v_head_dim = 0;
  int block_size = 16;
  bool grouped_heads = false;  // several query heads share a KV head
  bool window = false;
  bool soft_cap = false;
  bool alibi = false;
  bool sinks = false;
};

struct AttentionBackend {
  std::string_view name;         // "cpu-reference"
  std::string_view description;  // one line
  std::vector<DType> activations;
  std::vector<DType> kvs;
  std::vector<int> head_dims;  // empty: any
  int min_block_size = 8;      // block sizes are powers of two
  int max_block_size = 256;
  bool grouped_heads = true;
  bool window = false;
  bool soft_cap = false;
  bool alibi = false;
  bool sinks = false;
  bool capturable = false;  // may lie inside a captured graph
};

// Every reason why `backend` cannot serve `config`; empty when it can.
std::vector<std::string> ReasonsAgainst(const AttentionBackend& backend,
                                        const AttentionConfig& config);

// The index of the backend named `name`, or of the first that can serve when `name` is empty
// (backends are given best first). Errors list every reason of every backend considered.
Result<int> SelectAttentionBackend(std::span<const AttentionBackend> backends,
                                   const AttentionConfig& config, std::string_view name);

// What the layers of a program ask for.
struct Program;
AttentionConfig AttentionConfigOf(const Program& program, int block_size);

}  // namespace spry
