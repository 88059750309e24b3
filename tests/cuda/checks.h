// The groups of checks, each against the CPU reference in this process.
#pragma once

#include "tests/cuda/report.h"

namespace spry::testing {

struct CheckOptions {
  int threads = 1;  // of the CPU reference
};

// Ops that treat each row alone, in f32: equal bits for 1, 33 and 512 rows.
void CheckRowOps(Report& report, const CheckOptions& options);
// Rows of 16-bit linears and attention: the same bits alone and among others, near the products in
// double.
void CheckRows(Report& report, const CheckOptions& options);
// Attention over paged KV: chunked prefill, all parameters, all KV types.
void CheckAttention(Report& report, const CheckOptions& options);
// The sampler's results, field by field, for random rows of parameters.
void CheckSampling(Report& report, const CheckOptions& options);
// Rows with rules among rows without, through several steps that count their tokens.
void CheckRules(Report& report, const CheckOptions& options);
// A small model under random traffic, some of it with rules, with preemption, graphs on and off,
// run-ahead 1, 2, 8.
void CheckTraffic(Report& report, const CheckOptions& options);
// bf16 and f16: logits near those of the CPU, whose activations are f32.
void CheckHalfPrecision(Report& report, const CheckOptions& options);
void CheckDraws(Report& report, const CheckOptions& options);
// opt-125m and a Llama with dummy weights: 8 x 32 prompt tokens -> 128 tokens, and times.
void CheckModels(Report& report, const CheckOptions& options);
// What a program that does not fit and a fault on the card are told. The fault ends this process's
// use of the card, so it comes last.
void CheckFaults(Report& report, const CheckOptions& options);

}  // namespace spry::testing
