#include "device/cpu/simd/attention.h"

#include <algorithm>

#include "device/cpu/simd/kv_tiles.h"
#include "ops/attention/attention.h"

namespace spry {
namespace {

constexpr int kMaxHeadDim = 256;
constexpr int kHeadDimStep = 16;
// A step with fewer lines than this times the workers also spreads the segments of long contexts.
constexpr int kSplitLines = 8;
// What a line costs beside its keys, in keys: the balance over workers counts it.
constexpr int64_t kLineKeys = 24;
constexpr int kTilesPerSegment = kKvSegment / 8;  // with the smallest tiles

struct AttentionArgs {
  const AttentionKernels* kernels = nullptr;
  AttentionParams params;
  const float* slopes = nullptr;  // with alibi
  const float* sinks = nullptr;   // with sinks
  Matrix q, out;
  KvTiles layout;
  int kind = 0;
  int group = 1;  // query heads of a kv head
  int32_t max_blocks_per_row = 0;
  const std::byte* cache = nullptr;
  int64_t max_segments = 0;
  std::byte* const* parts = nullptr;  // [lines][max_segments] Part of a split step
};

// A segment's state and output, for a line of a split step.
struct Part {
  SoftmaxState state;
  alignas(64) float output[kMaxHeadDim];
};

struct WorkerMemory {
  alignas(64) float scores[kMaxBlockLines * kKvSegment];
  alignas(64) float merged[kMaxBlockLines * kMaxHeadDim];
  alignas(64) float next[kMaxBlockLines * kMaxHeadDim];
  const std::byte* keys[kTilesPerSegment];
  const std::byte* values[kTilesPerSegment];
};
static_assert(sizeof(WorkerMemory) <= kWorkerScratchBytes);

// A sink is one more key, without a value.
alignas(64) constexpr float kNoOutput[kMaxHeadDim] = {};

void AddSink(const AttentionArgs& args, int64_t head, SoftmaxState& state, float* output) {
  if (args.sinks == nullptr) return;
  args.kernels->merge(state, output, {.max = args.sinks[head], .sum = 1.0f}, kNoOutput,
                      args.params.v_head_dim);
}

// The first key that the token at `position` sees.
int64_t FirstKey(const AttentionArgs& args, int64_t position) {
  return args.params.window > 0 ? std::max<int64_t>(0, position + 1 - args.params.window) : 0;
}

// How many tokens from the one at `position` on see keys from the same first to the same last
// segment.
int64_t TokensAlike(const AttentionArgs& args, int64_t position) {
  const int64_t at_end = kKvSegment - position % kKvSegment;
  if (args.params.window == 0) return at_end;
  const int64_t first = position + 1 - args.params.window;
  return std::min(at_end, kKvSegment - (first < 0 ? first : first % kKvSegment));
}

// Line l of a row and kv head is query head l % group of token l / group.
struct RowLines {
  int64_t first_token = 0;  // of the step
  int64_t tokens = 0;
  int64_t position = 0;  // of the first token
  const int32_t* blocks = nullptr;
};

RowLines LinesOf(const AttentionArgs& args, const StepState& state, const StagedRow& row) {
  return {.first_token = row.query_start,
          .tokens = row.num_tokens,
          .position = row.start,
          .blocks = state.block_tables + int64_t{row.row} * args.max_blocks_per_row};
}

void FillWithZeros(const AttentionArgs& args, const StagedRow& row) {
  for (int64_t i = 0; i < row.num_tokens; ++i) {
    std::fill_n(args.out.Row(row.query_start + i), args.out.width, 0.0f);
  }
}

class LineRunner {
 public:
  LineRunner(const AttentionArgs& args, const StepState& state, Worker& worker)
      : args_(args), memory_(*reinterpret_cast<WorkerMemory*>(worker.scratch().data())) {
    const bool one_token_rows = state.header->num_tokens == state.header->num_rows;
    const int most = args.kernels->max_lines;
    if (args.kernels->enter == nullptr) return;
    args.kernels->enter(one_token_rows ? std::min(args.group, most) : most);
  }
  ~LineRunner() {
    if (args_.kernels->leave != nullptr) args_.kernels->leave();
  }
  LineRunner(const LineRunner&) = delete;
  LineRunner& operator=(const LineRunner&) = delete;

  // The lines [begin, end) of a row and kv head, all their segments one after another.
  void Run(const RowLines& row, int kv_head, int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t token = begin / args_.group;
      const int64_t alike = token + TokensAlike(args_, row.position + token);
      const int64_t cut = std::min({end, begin + args_.kernels->max_lines, alike * args_.group});
      RunBlock(row, kv_head, begin, static_cast<int>(cut - begin));
      begin = cut;
    }
  }

  // One segment of `lines` lines of one token from `begin` on, into parts that lie `stride` apart.
  void RunSegment(const RowLines& row, int kv_head, int64_t begin, int lines, int64_t segment,
                  Part* parts, int64_t stride) {
    AttentionBlock block = MakeBlock(row, kv_head, begin, lines);
    FindTiles(row, kv_head, segment);
    block.output = parts->output;
    block.output_stride = stride * static_cast<int64_t>(sizeof(Part) / sizeof(float));
    AttendSegment(row, begin, lines, segment, block);
    for (int l = 0; l < lines; ++l) parts[l * stride].state = block.states[l];
  }

 private:
  AttentionBlock MakeBlock(const RowLines& row, int kv_head, int64_t begin, int lines) {
    AttentionBlock block = {.lines = lines,
                            .head_dim = args_.params.head_dim,
                            .v_head_dim = args_.params.v_head_dim,
                            .scale = args_.params.scale,
                            .soft_cap = args_.params.soft_cap,
                            .has_alibi = args_.slopes != nullptr,
                            .keys = memory_.keys,
                            .values = memory_.values,
                            .scores = memory_.scores};
    for (int l = 0; l < lines; ++l) {
      const int64_t head = kv_head * args_.group + (begin + l) % args_.group;
      block.queries[l] =
          args_.q.Row(row.first_token + (begin + l) / args_.group) + head * args_.params.head_dim;
      if (block.has_alibi) block.slopes[l] = args_.slopes[head];
    }
    return block;
  }

  // Of the keys that any line of the row sees.
  void FindTiles(const RowLines& row, int kv_head, int64_t segment) {
    if (found_.blocks == row.blocks && found_.kv_head == kv_head && found_.segment == segment) {
      return;
    }
    found_ = {.blocks = row.blocks, .kv_head = kv_head, .segment = segment};
    const int lanes = args_.layout.lanes();
    const int block_size = args_.layout.block_size();
    const int64_t first_key = FirstKey(args_, row.position) / block_size * block_size;
    const int64_t begin = std::max(segment * kKvSegment, first_key);
    const int64_t end = std::min((segment + 1) * kKvSegment, row.position + row.tokens);
    const int32_t* blocks = row.blocks + begin / block_size;
    int64_t i = (begin - segment * kKvSegment) / lanes;
    for (int64_t at = begin; at < end; at += block_size, ++blocks) {
      for (int slot = 0; slot < block_size; slot += lanes, ++i) {
        memory_.keys[i] = args_.cache + args_.layout.KeyTile(*blocks, kv_head, slot);
        memory_.values[i] = args_.cache + args_.layout.ValueTile(*blocks, kv_head, slot);
      }
    }
  }

  int64_t FirstSegment(const RowLines& row, int64_t line) const {
    return FirstKey(args_, row.position + line / args_.group) / kKvSegment;
  }

  void AttendSegment(const RowLines& row, int64_t begin, int lines, int64_t segment,
                     AttentionBlock& block) {
    for (int l = 0; l < lines; ++l) {
      const int64_t position = row.position + (begin + l) / args_.group;
      const int64_t segment_begin = segment * kKvSegment;
      const int64_t start = FirstKey(args_, position) - segment_begin;
      const int64_t keys = position + 1 - segment_begin;
      block.starts[l] = static_cast<int32_t>(std::max<int64_t>(start, 0));
      block.counts[l] = static_cast<int32_t>(std::min<int64_t>(keys, kKvSegment));
      block.distances[l] = static_cast<int32_t>(segment_begin - position);
    }
    block.first_segment = segment == FirstSegment(row, begin);
    args_.kernels->attend[args_.kind][lines - 1](block);
  }

  void RunBlock(const RowLines& row, int kv_head, int64_t begin, int lines) {
    const int64_t dim = args_.params.v_head_dim;
    AttentionBlock block = MakeBlock(row, kv_head, begin, lines);
    block.output_stride = dim;
    SoftmaxState states[kMaxBlockLines];
    const int64_t first = FirstSegment(row, begin);
    const int64_t last = (row.position + begin / args_.group) / kKvSegment;
    for (int64_t segment = first; segment <= last; ++segment) {
      FindTiles(row, kv_head, segment);
      block.output = segment == first ? memory_.merged : memory_.next;
      AttendSegment(row, begin, lines, segment, block);
      for (int l = 0; l < lines; ++l) {
        if (segment == first) {
          states[l] = block.states[l];
        } else {
          args_.kernels->merge(states[l], memory_.merged + l * dim, block.states[l],
                               memory_.next + l * dim, dim);
        }
      }
    }
    for (int l = 0; l < lines; ++l) {
      const int64_t head = kv_head * args_.group + (begin + l) % args_.group;
      float* out = args_.out.Row(row.first_token + (begin + l) / args_.group) + head * dim;
      AddSink(args_, head, states[l], memory_.merged + l * dim);
      args_.kernels->finish(states[l], memory_.merged + l * dim, dim, out);
    }
  }

  // What the tiles in memory_ are of.
  struct Found {
    const int32_t* blocks = nullptr;
    int kv_head = 0;
    int64_t segment = 0;
  };

  const AttentionArgs& args_;
  WorkerMemory& memory_;
  Found found_;
};

// What the lines before `line` cost, in keys: a token sees all before it, at most a window.
int64_t CostBefore(const AttentionArgs& args, const RowLines& row, int64_t line) {
  const int64_t token = line / args.group;
  const int64_t first = row.position + 1;
  const int64_t window = args.params.window > 0 ? args.params.window : first + token;
  const int64_t growing = std::clamp<int64_t>(window - row.position, 0, token);
  const int64_t keys = growing * first + growing * (growing - 1) / 2 + (token - growing) * window;
  const int64_t own = std::min(first + token, window);
  return args.group * (keys + token * kLineKeys) + line % args.group * (own + kLineKeys);
}

// The first line that starts at or behind `cost`.
int64_t LineAt(const AttentionArgs& args, const RowLines& row, int64_t cost) {
  int64_t low = 0, high = row.tokens * args.group;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (CostBefore(args, row, middle) < cost) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Every worker gets lines of the same cost, in the order of rows, kv heads, tokens.
void RunWhole(const AttentionArgs& args, const StepState& state, Worker& worker) {
  const int kv_heads = args.params.num_kv_heads;
  int64_t total = 0;
  for (int32_t r = 0; r < state.header->num_rows; ++r) {
    const StagedRow& row = state.rows[r];
    if (!row.live) continue;
    const RowLines lines = LinesOf(args, state, row);
    total += kv_heads * CostBefore(args, lines, lines.tokens * args.group);
  }
  const int64_t begin = total * worker.index() / worker.count();
  const int64_t end = total * (worker.index() + 1) / worker.count();
  LineRunner runner(args, state, worker);
  int64_t before = 0;
  for (int32_t r = 0; r < state.header->num_rows; ++r) {
    const StagedRow& row = state.rows[r];
    if (!row.live) {
      if (worker.index() == 0) FillWithZeros(args, row);
      continue;
    }
    const RowLines lines = LinesOf(args, state, row);
    const int64_t cost = CostBefore(args, lines, lines.tokens * args.group);
    for (int kv_head = 0; kv_head < kv_heads; ++kv_head, before += cost) {
      if (before + cost <= begin || before >= end) continue;
      runner.Run(lines, kv_head, LineAt(args, lines, begin - before),
                 LineAt(args, lines, end - before));
    }
  }
}

// The segments that a row of one token sees.
struct SegmentRange {
  int64_t first = 0;
  int64_t end = 0;

  int64_t count() const { return end - first; }
};

SegmentRange SegmentsOf(const AttentionArgs& args, const StagedRow& row) {
  return {.first = FirstKey(args, row.start) / kKvSegment, .end = row.start / kKvSegment + 1};
}

int64_t KeysOf(const AttentionArgs& args, const StagedRow& row, int64_t segment) {
  const int64_t begin = std::max(FirstKey(args, row.start), segment * kKvSegment);
  return std::min<int64_t>((segment + 1) * kKvSegment, row.start + 1) - begin;
}

// A few rows of one token each, some of them long: the units are segments of lines.
void RunSplit(const AttentionArgs& args, const StepState& state, Worker& worker) {
  const int kv_heads = args.params.num_kv_heads;
  const int group = args.group;
  int64_t total = 0;
  for (int32_t r = 0; r < state.header->num_rows; ++r) {
    const StagedRow& row = state.rows[r];
    if (!row.live) continue;
    const int64_t keys = row.start + 1 - FirstKey(args, row.start);
    total += args.params.num_heads * (keys + SegmentsOf(args, row).count() * kLineKeys);
  }
  const int64_t begin = total * worker.index() / worker.count();
  const int64_t end = total * (worker.index() + 1) / worker.count();
  Part* parts = reinterpret_cast<Part*>(*args.parts);
  const int64_t stride = args.max_segments;
  LineRunner runner(args, state, worker);
  int64_t before = 0;
  for (int32_t r = 0; r < state.header->num_rows; ++r) {
    const StagedRow& row = state.rows[r];
    if (!row.live) continue;
    const RowLines lines = LinesOf(args, state, row);
    const SegmentRange segments = SegmentsOf(args, row);
    for (int kv_head = 0; kv_head < kv_heads; ++kv_head) {
      for (int64_t segment = segments.first; segment < segments.end; ++segment) {
        const int64_t each = KeysOf(args, row, segment) + kLineKeys;
        const auto line_at = [&](int64_t cost) {
          return std::clamp<int64_t>((cost - before + each - 1) / each, 0, group);
        };
        const int64_t last = line_at(end);
        for (int64_t line = line_at(begin); line < last; line += args.kernels->max_lines) {
          const int count =
              static_cast<int>(std::min<int64_t>(args.kernels->max_lines, last - line));
          const int64_t head = kv_head * group + line;
          runner.RunSegment(lines, kv_head, line, count, segment,
                            parts + (r * args.params.num_heads + head) * stride + segment, stride);
        }
        before += each * group;
      }
    }
  }
}

// After a barrier: the segments of every line, in ascending order.
void MergeParts(const AttentionArgs& args, const StepState& state, Worker& worker) {
  Part* parts = reinterpret_cast<Part*>(*args.parts);
  const int64_t dim = args.params.v_head_dim;
  const int64_t heads = args.params.num_heads;
  const Share share = ShareOf(state.header->num_rows * heads, worker);
  for (int64_t line = share.begin; line < share.end; ++line) {
    const StagedRow& row = state.rows[line / heads];
    if (!row.live) {
      if (line % heads == 0) FillWithZeros(args, row);
      continue;
    }
    const SegmentRange segments = SegmentsOf(args, row);
    Part* part = parts + line * args.max_segments + segments.first;
    for (int64_t i = 1; i < segments.count(); ++i) {
      args.kernels->merge(part->state, part->output, part[i].state, part[i].output, dim);
    }
    AddSink(args, line % heads, part->state, part->output);
    args.kernels->finish(part->state, part->output, dim,
                         args.out.Row(row.query_start) + line % heads * dim);
  }
}

// Alike on all workers. Whether a step is split changes who computes what, never how.
bool IsSplit(const AttentionArgs& args, const StepState& state, const Worker& worker) {
  const StepHeader& header = *state.header;
  if (worker.count() == 1 || header.num_tokens != header.num_rows) return false;
  if (header.num_rows * args.params.num_heads >= kSplitLines * worker.count()) return false;
  for (int32_t r = 0; r < header.num_rows; ++r) {
    if (state.rows[r].live && SegmentsOf(args, state.rows[r]).count() > 1) return true;
  }
  return false;
}

void RunAttention(const void* opaque, const StepState& state, Worker& worker) {
  const AttentionArgs& args = *static_cast<const AttentionArgs*>(opaque);
  if (!IsSplit(args, state, worker)) return RunWhole(args, state, worker);
  RunSplit(args, state, worker);
  worker.Barrier();
  MergeParts(args, state, worker);
}

}  // namespace

KvKind KvKindOf(DType dtype) {
  if (dtype == DType::kBF16) return KvKind::kBF16;
  return dtype == DType::kF16 ? KvKind::kF16 : KvKind::kF32;
}

CpuAttentionBackend MakeCpuAttention() {
  CpuAttentionBackend backend = {.facts = {.name = "cpu",
                                           .description = "vector kernels over transposed keys",
                                           .activations = {DType::kF32},
                                           .kvs = {DType::kF32, DType::kBF16, DType::kF16},
                                           .window = true,
                                           .soft_cap = true,
                                           .alibi = true,
                                           .sinks = true}};
  for (int dim = kHeadDimStep; dim <= kMaxHeadDim; dim += kHeadDimStep) {
    backend.facts.head_dims.push_back(dim);
  }
  backend.bytes_per_block = [](const KvLayer& layer, int block_size) {
    return KvTiles(layer, block_size, /*lanes=*/1).bytes_per_block();
  };
  return backend;
}

Result<BoundCall> BindAttention(const OpRecord& op, BindContext& context,
                                const AttentionKernels& kernels) {
  const AttentionParams params = op.params.As<AttentionParams>();
  const KvLayer& layer = context.program().kv_layers[params.layer.value()];
  const StepLimits& limits = context.limits();
  const int64_t max_tokens = int64_t{limits.max_blocks_per_row} * limits.block_size;
  const int64_t max_segments = (max_tokens + kKvSegment - 1) / kKvSegment;
  AttentionArgs args = {.kernels = &kernels,
                        .params = params,
                        .q = context.Resolve(op.inputs[0]),
                        .out = context.Resolve(op.outputs[0]),
                        .layout = KvTiles(layer, limits.block_size, kernels.lanes),
                        .kind = static_cast<int>(KvKindOf(layer.dtype)),
                        .group = params.num_heads / params.num_kv_heads,
                        .max_blocks_per_row = limits.max_blocks_per_row,
                        .cache = context.kv_layer(params.layer),
                        .max_segments = max_segments};
  int next_weight = 0;
  if (params.has_alibi) {
    SPRY_ASSIGN_OR_RETURN(args.slopes, context.LoadFloats(op.weights[next_weight++]));
  }
  if (params.has_sinks) {
    SPRY_ASSIGN_OR_RETURN(args.sinks, context.LoadFloats(op.weights[next_weight++]));
  }
  const int64_t max_parts = int64_t{kSplitLines} * context.pool().size() * max_segments;
  args.parts = context.ShareScratch(max_parts * static_cast<int64_t>(sizeof(Part)));
  return BoundCall{.op = op.id, .run = RunAttention, .args = context.Keep(args)};
}

}  // namespace spry
