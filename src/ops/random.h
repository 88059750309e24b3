// Randomness as a pure function of (seed, output index, vocabulary id): a token's draw does not
// depend on neighbours, batches, steps or devices. Two rounds of a 32-bit finaliser over keys made
// by a 64-bit one; cheap in SIMD (three 32-bit multiplies a round).
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ops/math.h"

namespace spry {

struct DrawKey {
  uint32_t first = 0;
  uint32_t second = 0;
};

SPRY_HOST_DEVICE inline uint64_t Mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// The first 15 bits are those of Mix32.
SPRY_HOST_DEVICE inline uint32_t MixFirstBits32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x21f0aaadu;
  return (x ^ (x >> 15)) * 0x735a2d97u;
}
SPRY_HOST_DEVICE inline uint32_t Mix32(uint32_t x) {
  x = MixFirstBits32(x);
  return x ^ (x >> 15);
}

SPRY_HOST_DEVICE inline DrawKey MakeDrawKey(uint64_t seed, int32_t output_index) {
  const uint64_t mixed = Mix64(Mix64(seed) ^ static_cast<uint64_t>(output_index));
  return {static_cast<uint32_t>(mixed), static_cast<uint32_t>(mixed >> 32)};
}

SPRY_HOST_DEVICE inline uint32_t DrawMix(DrawKey key, int32_t vocab_id) {
  return Mix32(static_cast<uint32_t>(vocab_id) * 0x9e3779b1u + key.first) ^ key.second;
}
SPRY_HOST_DEVICE inline uint32_t DrawBits(DrawKey key, int32_t vocab_id) {
  return Mix32(DrawMix(key, vocab_id));
}
SPRY_HOST_DEVICE inline uint32_t DrawFirstBits(DrawKey key, int32_t vocab_id) {
  return MixFirstBits32(DrawMix(key, vocab_id));
}

// Uniform in (0, 1), never 0 or 1: 23 bits plus a half, which f32 holds exactly.
SPRY_HOST_DEVICE inline float DrawUniform(DrawKey key, int32_t vocab_id) {
  return (static_cast<float>(DrawBits(key, vocab_id) >> 9) + 0.5f) * 0x1p-23f;
}

// Standard Gumbel: argmax over ids of (log p + gumbel) is a draw from p.
SPRY_HOST_DEVICE inline float DrawGumbel(DrawKey key, int32_t vocab_id) {
  return -Log(-Log(DrawUniform(key, vocab_id)));
}

// The id with the largest score, the lowest of equal ones, is the draw. Needs no other logit than
// its own, so whoever computes a logit can score it; a temperature is at least kGreedyTemperature,
// so no logit of use overflows.
SPRY_HOST_DEVICE inline float DrawScore(DrawKey key, int32_t vocab_id, float logit,
                                        float temperature) {
  return logit / temperature + DrawGumbel(key, vocab_id);
}

}  // namespace spry
