#include "models/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>

#include "models/weight_scope.h"

namespace spry {
namespace {

// Llama 3.1's scaling: short waves stay, long ones slow down by `factor`, those between are
// blended.
double ScaleLlama3(double frequency, const RopeScaling& scaling) {
  const double turns =
      scaling.original_max_position * frequency / (2.0 * std::numbers::pi);  // over the context
  if (turns < scaling.low_freq_factor) return frequency / scaling.factor;
  if (turns > scaling.high_freq_factor) return frequency;
  const double blend =
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - blend) * frequency / scaling.factor + blend * frequency;
}

// The tensor of a GGUF file that has the divisors of the frequencies: llama3's scaling, or of
// longrope the factors for the context that the program is made for (a device may end with less
// memory than that takes).
const char* RopeDivisorsName(const RopeScaling& scaling, int64_t max_length) {
  if (scaling.kind != RopeScaling::Kind::kLongRope) return "rope_freqs.weight";
  return static_cast<double>(max_length) > scaling.original_max_position
             ? "rope_factors_long.weight"
             : "rope_factors_short.weight";
}

// Ones where the model has none.
std::vector<float> RopeDivisors(Tracer& tracer, const ModelConfig& c, const Weights& weights) {
  const int64_t half = c.head_dim / 2;
  std::vector<float> divisors(half, 1.0f);
  const char* name = RopeDivisorsName(c.rope_scaling, tracer.options().max_length);
  if (!weights.Has(name)) return divisors;
  const WeightScope scope(tracer, weights, "");
  const WeightHandle handle = scope(name, {half});
  if (!tracer.ok()) return {};
  const Result<HostTensor> tensor = handle.read();
  if (!tensor.ok()) {
    tracer.Fail(tensor.status());
    return {};
  }
  if (tensor->data.size() != divisors.size() * sizeof(float)) {
    tracer.Fail(InvalidArgument(std::string(name) + " is not float32"));
    return {};
  }
  std::memcpy(divisors.data(), tensor->data.data(), tensor->data.size());
  const auto usable = [](float divisor) { return divisor > 0.0f && std::isfinite(divisor); };
  if (!std::all_of(divisors.begin(), divisors.end(), usable)) {
    tracer.Fail(InvalidArgument(std::string(name) + " holds a factor that is no positive number"));
  }
  return divisors;
}

}  // namespace

std::vector<double> RopeFrequencies(Tracer& tracer, const ModelConfig& c, const Weights& weights) {
  const std::vector<float> divisors = RopeDivisors(tracer, c, weights);
  if (!tracer.ok()) return {};
  std::vector<double> frequencies(divisors.size());
  for (size_t i = 0; i < divisors.size(); ++i) {
    double f = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / c.head_dim) / divisors[i];
    switch (c.rope_scaling.kind) {
      case RopeScaling::Kind::kNone: break;
      case RopeScaling::Kind::kLinear:
      case RopeScaling::Kind::kLongRope: f /= c.rope_scaling.factor; break;
      case RopeScaling::Kind::kLlama3: f = ScaleLlama3(f, c.rope_scaling); break;
    }
    frequencies[i] = f;
  }
  return frequencies;
}

}  // namespace spry
