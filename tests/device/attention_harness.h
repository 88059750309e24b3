// Cases of write_kv and attention for any target, and the steps that bring tokens to them in
// pieces. Keys, values and queries are functions of the token id (columns of the embedding table),
// so what attention must give for a sequence of ids can be computed without a cache.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/fusion.h"
#include "tests/device/op_harness.h"

namespace spry::testing {

inline constexpr int kAttentionMaxTokens = 1300;  // of a sequence and of a step
inline constexpr int kAttentionMaxRows = 8;
inline constexpr int64_t kAttentionTableRows = 211;

struct AttentionCase {
  std::string name;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 16;
  int v_head_dim = 16;
  int block_size = 16;
  DType compute = DType::kF32;  // of q, k, v and the output; 16 bits are read through f32 logits
  DType kv = DType::kF32;
  float scale = 0.25f;
  int window = 0;
  float soft_cap = 0.0f;
  bool alibi = false;
  bool sinks = false;
  int rotary_dim = 0;  // of rope before it; 0: none. Expected() knows nothing of it
  bool rope_interleaved = false;
  bool last_id_is_nan = false;  // its query, key and value
  Fusions fusions;
  int max_rows = kAttentionMaxRows;
};

std::vector<AttentionCase> AttentionCases();

// `group` query heads for each KV head, all of one size and type.
AttentionCase GroupedCase(int num_kv_heads, int group, int head_dim, DType dtype);

// Ids of the table.
std::vector<int32_t> SomeIds(int count, uint64_t seed);

// Whether the target's attention rounds queries and weights to bf16 (tile_attention.h) and so is
// not to the bits of the reference: with AMX, where a case's cache and sizes fit its tiles.
bool TakesTiles(const AttentionCase& attention_case, const Target& target);

// Some tokens of one row in one step.
struct Piece {
  int row = 0;
  int count = 0;
};

class AttentionRunner {
 public:
  // Rows get blocks in an order shuffled by `seed`.
  AttentionRunner(const AttentionCase& attention_case, const Target& target, uint64_t seed);

  // Starts a row anew. A finished one is padding: its tokens pass through the step as such.
  void Start(int row, std::vector<int32_t> ids, bool finished = false);
  // Runs one step; returns the output rows of its tokens, [tokens of all pieces, H * Dv].
  std::vector<float> Step(std::span<const Piece> pieces);

  // What position `position` of the sequence must give, in double.
  std::vector<double> Expected(std::span<const int32_t> ids, int position) const;
  // The same to the bit, from a target that TakesTiles.
  std::vector<float> ExpectedOfTiles(std::span<const int32_t> ids, int position) const;
  int64_t output_width() const { return output_.width; }

 private:
  struct Row {
    std::vector<int32_t> ids;
    int done = 0;  // tokens run
    bool joining = true;
    bool finished = false;
  };
  double Cached(int32_t id, int64_t column) const;  // of k or v, as the cache keeps it

  AttentionCase case_;
  TestWeight table_, slopes_, sinks_, identity_;
  std::unique_ptr<Program> program_;
  Tensor output_;
  std::unique_ptr<TestExecutable> executable_;
  std::vector<int> block_order_;
  int blocks_per_row_ = 0;
  std::map<int, Row> rows_;
};

}  // namespace spry::testing
