#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/cuda/checks.h"
#include "tests/cuda/cuda_target.h"
#include "tests/device/attention_harness.h"
#include "tests/device/cpu_targets.h"

namespace spry::testing {
namespace {

std::vector<int32_t> Ids(uint64_t seed, int count) {
  Random random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(kAttentionTableRows));
  return ids;
}

// Three rows of different lengths read in pieces that stop on and beside the segment borders at
// 512 and 1024, decode steps among them, and one row that is padding.
std::vector<float> RunCase(const AttentionCase& attention_case, const Target& target) {
  AttentionRunner runner(attention_case, target, /*seed=*/9);
  runner.Start(0, Ids(1, 1100));
  runner.Start(1, Ids(2, 530));
  runner.Start(2, Ids(3, 40));
  runner.Start(5, Ids(4, 40), /*finished=*/true);
  const std::vector<std::vector<Piece>> steps = {
      {{0, 1}},
      {{0, 1}, {2, 7}},
      {{2, 1}, {0, 510}, {1, 100}, {5, 3}},
      {{2, 1}, {1, 411}},
      {{2, 1}, {0, 1}, {1, 1}, {5, 1}},
      {{0, 511}, {1, 18}},
      {{0, 1}, {2, 30}},
      {{0, 75}},
  };
  std::vector<float> outputs;
  for (const std::vector<Piece>& step : steps) {
    const std::vector<float> output = runner.Step(step);
    outputs.insert(outputs.end(), output.begin(), output.end());
  }
  return outputs;
}

// The backend "cuda" has kernels by the number of a piece's tokens: rows read in pieces of sizes on
// both sides of what a block, a warp and a unit take, over the segment borders at 512 and 1024,
// alone and beside each other, must be what one token at a time gives, bit for bit.
constexpr int kPieceSizes[] = {1, 15, 17, 63, 65, 129, 700};
constexpr int kPiecesLength = 1210;

// The sizes in turn, from the `first` on.
std::vector<int> PiecesFrom(size_t first) {
  std::vector<int> pieces;
  for (int done = 0; done < kPiecesLength; ++first) {
    pieces.push_back(std::min(kPieceSizes[first % std::size(kPieceSizes)], kPiecesLength - done));
    done += pieces.back();
  }
  return pieces;
}

class PiecesRun {
 public:
  explicit PiecesRun(const AttentionCase& attention_case, const Target& target)
      : runner_(attention_case, target, /*seed=*/9), ids_(Ids(/*seed=*/3, kPiecesLength)) {}

  // Reads row i in its pieces, all rows at once; the outputs of each.
  std::vector<std::vector<float>> Read(const std::vector<std::vector<int>>& rows) {
    std::vector<std::vector<float>> outputs(rows.size());
    const int num_rows = static_cast<int>(rows.size());
    for (int row = 0; row < num_rows; ++row) runner_.Start(row, ids_);
    for (size_t step = 0;; ++step) {
      std::vector<Piece> pieces;
      for (int row = 0; row < num_rows; ++row) {
        if (step < rows[row].size()) pieces.push_back({row, rows[row][step]});
      }
      if (pieces.empty()) return outputs;
      const std::vector<float> found = runner_.Step(pieces);
      auto from = found.begin();
      for (const Piece& piece : pieces) {
        const auto end = from + piece.count * runner_.output_width();
        outputs[piece.row].insert(outputs[piece.row].end(), from, end);
        from = end;
      }
    }
  }
  double WorstError(const std::vector<float>& outputs) const {
    const int64_t width = runner_.output_width();
    double worst = 0.0;
    for (const int position : {0, 14, 511, 512, 700, 1023, 1024, kPiecesLength - 1}) {
      const std::vector<double> expected = runner_.Expected(ids_, position);
      for (int64_t i = 0; i < width; ++i) {
        worst = std::max(worst, std::abs(expected[i] - outputs[position * width + i]));
      }
    }
    return worst;
  }

 private:
  AttentionRunner runner_;
  std::vector<int32_t> ids_;
};

void CheckPieces(Report& report, int head_dim, int group, DType dtype, int block_size) {
  auto device = LoadCuda({.mode = GraphMode::kFull});
  const CudaTarget target(*std::move(device), "cuda");
  PiecesRun run({.name = "pieces",
                 .num_heads = 2 * group,
                 .num_kv_heads = 2,
                 .head_dim = head_dim,
                 .v_head_dim = head_dim,
                 .block_size = block_size,
                 .compute = dtype,
                 .kv = dtype,
                 .scale = 0.125f,
                 .fusions = {.write_kv_into_attention = true}},
                target);
  const std::vector<float> one = run.Read({std::vector<int>(kPiecesLength, 1)})[0];
  std::string differing;
  const auto compare = [&](const std::string& how, const std::vector<float>& found) {
    const Comparison comparison = CompareBits(one, found);
    if (!comparison.equal) differing += fmt::format("{}: {}; ", how, comparison.detail);
  };
  compare("whole", run.Read({{kPiecesLength}})[0]);
  for (size_t first = 0; first < std::size(kPieceSizes); ++first) {
    compare(fmt::format("alone from {}", kPieceSizes[first]), run.Read({PiecesFrom(first)})[0]);
  }
  // Short pieces beside long ones, and rows of one token beside both.
  const auto together = run.Read({PiecesFrom(2), std::vector<int>(kPiecesLength, 1), PiecesFrom(5),
                                  PiecesFrom(1), PiecesFrom(4)});
  for (const std::vector<float>& outputs : together) compare("together", outputs);
  const double worst = run.WorstError(one);
  const double allowed = dtype == DType::kF16 ? 0x1p-9 : 0x1p-6;
  report.Expect(differing.empty() && worst < allowed,
                fmt::format("attention in pieces, head {} group {} {} blocks of {}", head_dim,
                            group, Traits(dtype).name, block_size),
                fmt::format("{}worst error {:.2g}", differing, worst));
}

}  // namespace

void CheckAttention(Report& report, const CheckOptions& options) {
  auto device = LoadCuda({.mode = GraphMode::kFull});
  const CudaTarget cuda(*std::move(device));
  const CpuTarget reference = ReferenceTarget(options.threads);
  for (const AttentionCase& attention_case : AttentionCases()) {
    const Comparison comparison =
        CompareBits(RunCase(attention_case, reference), RunCase(attention_case, cuda));
    report.Expect(comparison.equal, "attention, " + attention_case.name, comparison.detail);
  }
  for (const int head_dim : {64, 128}) {
    for (const int group : {1, 3, 4, 8}) {
      const bool half = (group == 1 || group == 4) == (head_dim == 64);
      CheckPieces(report, head_dim, group, half ? DType::kF16 : DType::kBF16,
                  /*block_size=*/group == 3 ? 8 : 16);
    }
  }
}

}  // namespace spry::testing
