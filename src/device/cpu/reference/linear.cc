#include "ops/linear.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/cpu/reference/kernels.h"
#include "device/cpu/reference/rounding.h"
#include "ops/activation.h"
#include "tensor/dequantize.h"

namespace spry::reference {
namespace {

// Each output is one chain: sum = 0; for k ascending: sum = fmaf(w[n][k], x[k], sum). Then
// act(sum + bias) + residual. Speed comes from many chains at once, never from cutting one: 16
// outputs (a vector of lanes) times a few rows.
constexpr int kColumns = 16;  // outputs computed together
constexpr int kRowTile = 64;  // rows of x that share a dequantised block
constexpr int kChunk = 2048;  // elements of K dequantised at a time; whole blocks of every dtype
constexpr int kRowsAtOnce = 4;

struct Part {
  HostTensor tensor;
  int64_t row_bytes = 0;
  DType rounding = DType::kF32;
};

// At most kColumns neighbouring outputs of one part.
struct Block {
  int part = 0;
  int64_t first_row = 0;     // in the part
  int64_t first_column = 0;  // of y
  int count = 0;
};

struct Args {
  Matrix x, y, residual;
  std::vector<Part> parts;
  std::vector<Block> blocks;
  const float* bias = nullptr;
  LinearParams params;
  bool round_x = false;  // to bf16
};

struct Scratch {
  float weights[kChunk][kColumns];
  float row[kChunk];
  float x[kRowTile][kChunk];
  float sums[kRowTile][kColumns];
};
static_assert(sizeof(Scratch) <= kWorkerScratchBytes);

// weights[k][j] = W[block row j][begin + k]; zeros beyond the block's rows.
void DequantizeBlock(const Args& args, const Block& block, int64_t begin, int64_t length,
                     Scratch& scratch) {
  const Part& part = args.parts[block.part];
  const DType dtype = part.tensor.dtype;
  for (int j = 0; j < kColumns; ++j) {
    if (j >= block.count) {
      for (int64_t k = 0; k < length; ++k) scratch.weights[k][j] = 0.0f;
      continue;
    }
    const std::byte* row = part.tensor.data.data() + (block.first_row + j) * part.row_bytes;
    DequantizeRow(dtype, row + RowBytes(dtype, begin), length, scratch.row);
    for (int64_t k = 0; k < length; ++k) {
      scratch.weights[k][j] = RoundTo(part.rounding, scratch.row[k]);
    }
  }
}

// Continues the chains of kRows rows, whose elements lie kChunk apart, over `length` elements of K.
template <int kRows>
void ContinueChains(const float (*weights)[kColumns], const float* x, int64_t length,
                    float (*sums)[kColumns]) {
  float chains[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) chains[r][j] = sums[r][j];
  }
  for (int64_t k = 0; k < length; ++k) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const float value = x[r * kChunk + k];
      for (int j = 0; j < kColumns; ++j) {
        chains[r][j] = __builtin_fmaf(weights[k][j], value, chains[r][j]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kColumns; ++j) sums[r][j] = chains[r][j];
  }
}

void Finish(const Args& args, const Block& block, int64_t row, const float* sums) {
  float* y = args.y.Row(row) + block.first_column;
  for (int j = 0; j < block.count; ++j) {
    float value = sums[j];
    if (args.params.has_bias) value += args.bias[block.first_column + j];
    value = ApplyActivation(args.params.activation, value);
    if (args.params.has_residual) value += args.residual.Row(row)[block.first_column + j];
    y[j] = value;
  }
}

// Rows [first, first + count) of y, the columns of one block.
void RunTile(const Args& args, const Block& block, int64_t first, int count, Scratch& scratch) {
  for (int r = 0; r < count; ++r) std::fill_n(scratch.sums[r], kColumns, 0.0f);
  for (int64_t begin = 0; begin < args.x.width; begin += kChunk) {
    const int64_t length = std::min<int64_t>(kChunk, args.x.width - begin);
    DequantizeBlock(args, block, begin, length, scratch);
    for (int r = 0; r < count; ++r) {
      const float* x = args.x.Row(first + r) + begin;
      for (int64_t k = 0; k < length; ++k) {
        scratch.x[r][k] = args.round_x ? RoundTo(DType::kBF16, x[k]) : x[k];
      }
    }
    int r = 0;
    for (; r + kRowsAtOnce <= count; r += kRowsAtOnce) {
      ContinueChains<kRowsAtOnce>(scratch.weights, scratch.x[r], length, &scratch.sums[r]);
    }
    for (; r < count; ++r) {
      ContinueChains<1>(scratch.weights, scratch.x[r], length, &scratch.sums[r]);
    }
  }
  for (int r = 0; r < count; ++r) Finish(args, block, first + r, scratch.sums[r]);
}

void Run(const void* opaque, const StepState& state, Worker& worker) {
  const Args& args = *static_cast<const Args*>(opaque);
  Scratch& scratch = *reinterpret_cast<Scratch*>(worker.scratch().data());
  const int32_t rows = NumRows(args.x.rows, state);
  const Share share = ShareOf(static_cast<int64_t>(args.blocks.size()), worker);
  for (int64_t b = share.begin; b < share.end; ++b) {
    for (int32_t first = 0; first < rows; first += kRowTile) {
      RunTile(args, args.blocks[b], first, std::min(kRowTile, rows - first), scratch);
    }
  }
}

}  // namespace

Result<BoundCall> BindLinear(const OpRecord& op, BindContext& context) {
  const Program& program = context.program();
  Args args{.x = context.Resolve(op.inputs[0]),
            .y = context.Resolve(op.outputs[0]),
            .params = op.params.As<LinearParams>(),
            .round_x = program.compute == DType::kBF16};
  if (args.params.has_residual) args.residual = context.Resolve(op.inputs[1]);
  if (args.params.has_bias) {
    SPRY_ASSIGN_OR_RETURN(args.bias, context.LoadFloats(op.weights[1]));
  }
  int64_t column = 0;
  for (const WeightHandle& handle : program.weight(op.weights[0]).parts) {
    SPRY_ASSIGN_OR_RETURN(HostTensor tensor, context.LoadRaw(handle));
    const int64_t rows = handle.shape[0];
    const int part = static_cast<int>(args.parts.size());
    for (int64_t row = 0; row < rows; row += kColumns) {
      args.blocks.push_back({.part = part,
                             .first_row = row,
                             .first_column = column + row,
                             .count = static_cast<int>(std::min<int64_t>(kColumns, rows - row))});
    }
    column += rows;
    args.parts.push_back({.tensor = std::move(tensor),
                          .row_bytes = RowBytes(handle.dtype, args.x.width),
                          .rounding = MatrixRounding(program, handle.dtype)});
  }
  return BoundCall{.op = op.id, .run = Run, .args = context.Keep(std::move(args))};
}

}  // namespace spry::reference
