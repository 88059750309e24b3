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
  LineRunner(const AttentionArgs& args, Worker& worker)
      : args_(args), memory_(*reinterpret_cast<WorkerMemory*>(worker.scratch().data())) {}

  // The lines [begin, end) of a row and kv head, all their segments one after another.
  void Run(const RowLines& row, int kv_head, int64_t begin, int64_t end) {
    while (begin < end) {
      // The lines of a block end in one segment.
      const int64_t token = begin / args_.group;
      const int64_t in_segment = kKvSegment - (row.position + token) % kKvSegment;
      const int64_t cut =
          std::min({end, begin + args_.kernels->max_lines, (token + in_segment) * args_.group});
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
    AttentionBlock block = {.head_dim = args_.params.head_dim,
                            .v_head_dim = args_.params.v_head_dim,
                            .scale = args_.params.scale,
                            .keys = memory_.keys,
                            .values = memory_.values,
                            .scores = memory_.scores};
    for (int l = 0; l < lines; ++l) {
      const int64_t head = kv_head * args_.group + (begin + l) % args_.group;
      block.queries[l] =
          args_.q.Row(row.first_token + (begin + l) / args_.group) + head * args_.params.head_dim;
    }
    return block;
  }

  // Of the keys that any line of the row sees.
  void FindTiles(const RowLines& row, int kv_head, int64_t segment) {
    if (found_.blocks == row.blocks && found_.kv_head == kv_head && found_.segment == segment) {
      return;
    }
    found_ = {.blocks = row.blocks, .kv_head = kv_head, .segment = segment};
    const int64_t begin = segment * kKvSegment;
    const int64_t end = std::min(begin + kKvSegment, row.position + row.tokens);
    const int lanes = args_.layout.lanes();
    const int block_size = args_.layout.block_size();
    const int32_t* blocks = row.blocks + begin / block_size;
    int i = 0;
    for (int64_t at = begin; at < end; at += block_size, ++blocks) {
      for (int slot = 0; slot < block_size; slot += lanes, ++i) {
        memory_.keys[i] = args_.cache + args_.layout.KeyTile(*blocks, kv_head, slot);
        memory_.values[i] = args_.cache + args_.layout.Value(*blocks, kv_head, slot);
      }
    }
  }

  void AttendSegment(const RowLines& row, int64_t begin, int lines, int64_t segment,
                     AttentionBlock& block) {
    for (int l = 0; l < lines; ++l) {
      const int64_t keys = row.position + (begin + l) / args_.group + 1 - segment * kKvSegment;
      block.counts[l] = static_cast<int32_t>(std::min<int64_t>(keys, kKvSegment));
    }
    block.first_segment = segment == 0;
    args_.kernels->attend[args_.kind][lines - 1](block);
  }

  void RunBlock(const RowLines& row, int kv_head, int64_t begin, int lines) {
    const int64_t dim = args_.params.v_head_dim;
    AttentionBlock block = MakeBlock(row, kv_head, begin, lines);
    block.output_stride = dim;
    SoftmaxState states[kMaxBlockLines];
    const int64_t last = (row.position + begin / args_.group) / kKvSegment;
    for (int64_t segment = 0; segment <= last; ++segment) {
      FindTiles(row, kv_head, segment);
      block.output = segment == 0 ? memory_.merged : memory_.next;
      AttendSegment(row, begin, lines, segment, block);
      for (int l = 0; l < lines; ++l) {
        if (segment == 0) {
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

// What the lines before `line` cost, in keys.
int64_t CostBefore(const RowLines& row, int group, int64_t line) {
  const int64_t token = line / group;
  const int64_t first = row.position + 1 + kLineKeys;
  return group * (token * first + token * (token - 1) / 2) + line % group * (first + token);
}

// The first line that starts at or behind `cost`.
int64_t LineAt(const RowLines& row, int group, int64_t cost) {
  int64_t low = 0, high = row.tokens * group;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (CostBefore(row, group, middle) < cost) {
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
    total += kv_heads * CostBefore(lines, args.group, lines.tokens * args.group);
  }
  const int64_t begin = total * worker.index() / worker.count();
  const int64_t end = total * (worker.index() + 1) / worker.count();
  LineRunner runner(args, worker);
  int64_t before = 0;
  for (int32_t r = 0; r < state.header->num_rows; ++r) {
    const StagedRow& row = state.rows[r];
    if (!row.live) {
      if (worker.index() == 0) FillWithZeros(args, row);
      continue;
    }
    const RowLines lines = LinesOf(args, state, row);
    const int64_t cost = CostBefore(lines, args.group, lines.tokens * args.group);
    for (int kv_head = 0; kv_head < kv_heads; ++kv_head, before += cost) {
      if (before + cost <= begin || before >= end) continue;
      runner.Run(lines, kv_head, LineAt(lines, args.group, begin - before),
                 LineAt(lines, args.group, end - before));
    }
  }
}

int64_t NumSegments(const StagedRow& row) { return row.start / kKvSegment + 1; }

int64_t KeysOf(const StagedRow& row, int64_t segment) {
  return std::min<int64_t>(kKvSegment, row.start + 1 - segment * kKvSegment);
}

// A few rows of one token each, some of them long: the units are segments of lines.
void RunSplit(const AttentionArgs& args, const StepState& state, Worker& worker) {
  const int kv_heads = args.params.num_kv_heads;
  const int group = args.group;
  int64_t total = 0;
  for (int32_t r = 0; r < state.header->num_rows; ++r) {
    const StagedRow& row = state.rows[r];
    if (row.live) total += args.params.num_heads * (row.start + 1 + NumSegments(row) * kLineKeys);
  }
  const int64_t begin = total * worker.index() / worker.count();
  const int64_t end = total * (worker.index() + 1) / worker.count();
  Part* parts = reinterpret_cast<Part*>(*args.parts);
  const int64_t stride = args.max_segments;
  LineRunner runner(args, worker);
  int64_t before = 0;
  for (int32_t r = 0; r < state.header->num_rows; ++r) {
    const StagedRow& row = state.rows[r];
    if (!row.live) continue;
    const RowLines lines = LinesOf(args, state, row);
    for (int kv_head = 0; kv_head < kv_heads; ++kv_head) {
      for (int64_t segment = 0; segment < NumSegments(row); ++segment) {
        const int64_t each = KeysOf(row, segment) + kLineKeys;
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
    Part* part = parts + line * args.max_segments;
    for (int64_t segment = 1; segment < NumSegments(row); ++segment) {
      args.kernels->merge(part->state, part->output, part[segment].state, part[segment].output,
                          dim);
    }
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
    if (state.rows[r].live && NumSegments(state.rows[r]) > 1) return true;
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
                                           .kvs = {DType::kF32, DType::kBF16, DType::kF16}}};
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
  const int64_t max_parts = int64_t{kSplitLines} * context.pool().size() * max_segments;
  args.parts = context.ShareScratch(max_parts * static_cast<int64_t>(sizeof(Part)));
  return BoundCall{.op = op.id, .run = RunAttention, .args = context.Keep(args)};
}

}  // namespace spry
