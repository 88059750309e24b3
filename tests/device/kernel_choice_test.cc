#include "device/cpu/kernel_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace spry {
namespace {

using ::testing::HasSubstr;

constexpr CpuFeatures kOld{};
constexpr CpuFeatures kAvx2Machine{.avx2 = true};
constexpr CpuFeatures kAvx512Machine{.avx2 = true, .avx512 = true};
constexpr CpuFeatures kAmxMachine{
    .avx2 = true, .avx512 = true, .avx512_vnni = true, .avx512_bf16 = true, .amx = true};

std::string_view Chosen(CpuIsa isa, const CpuFeatures& features) {
  return ChooseKernels(isa, features)->name;
}

TEST(KernelChoice, AutoTakesTheWidestThatTheMachineHas) {
  EXPECT_EQ(Chosen(CpuIsa::kAuto, kAvx2Machine), "avx2");
  EXPECT_EQ(Chosen(CpuIsa::kAuto, kAvx512Machine), "avx512");
  EXPECT_EQ(Chosen(CpuIsa::kAuto, kAmxMachine), "amx");
}

TEST(KernelChoice, AnAskedForSetIsTakenAsItIs) {
  EXPECT_EQ(Chosen(CpuIsa::kReference, kAvx512Machine), "reference");
  EXPECT_EQ(Chosen(CpuIsa::kAvx2, kAvx512Machine), "avx2");
  EXPECT_EQ(Chosen(CpuIsa::kAvx512, kAmxMachine), "avx512");
  EXPECT_EQ(ChooseKernels(CpuIsa::kReference, kAvx512Machine)->table, ReferenceKernels());
}

TEST(KernelChoice, WhatIsMissingIsNamed) {
  const Status old = ChooseKernels(CpuIsa::kAuto, kOld).status();
  EXPECT_EQ(old.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(old.message(), HasSubstr("lacks AVX2"));
  const Status narrow = ChooseKernels(CpuIsa::kAvx512, kAvx2Machine).status();
  EXPECT_EQ(narrow.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(narrow.message(), HasSubstr("lacks AVX-512 F, BW, DQ and VL"));
}

// Every op but the executable's own and attention has a kernel in every table.
TEST(KernelChoice, TablesAreComplete) {
  for (const CpuIsa isa : {CpuIsa::kReference, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAmx}) {
    const KernelTable table = ChooseKernels(isa, kAmxMachine)->table;
    for (int op = 0; op < kNumOps; ++op) {
      const OpId id = static_cast<OpId>(op);
      const bool elsewhere = id == OpId::kStage || id == OpId::kAdvance || id == OpId::kWriteKv ||
                             id == OpId::kAttention;
      EXPECT_EQ(table[op] == nullptr, elsewhere) << OpName(id);
    }
  }
}

TEST(KernelChoice, WhatTheVectorBackendLacksIsTheReferences) {
  const std::vector<CpuAttentionBackend> attention =
      ChooseKernels(CpuIsa::kAuto, kAvx512Machine)->attention;
  std::vector<AttentionBackend> facts;
  for (const CpuAttentionBackend& backend : attention) facts.push_back(backend.facts);
  const auto serves = [&](const AttentionConfig& config) {
    return facts[*SelectAttentionBackend(facts, config, "")].name;
  };
  AttentionConfig config{.kv = DType::kBF16, .head_dim = 64, .v_head_dim = 64};
  EXPECT_EQ(serves(config), "cpu");
  config.window = config.soft_cap = config.alibi = config.sinks = true;
  EXPECT_EQ(serves(config), "cpu");
  config = {.head_dim = 72, .v_head_dim = 64};
  EXPECT_EQ(serves(config), "cpu-reference");
  EXPECT_THAT(SelectAttentionBackend(facts, config, "cpu").status().message(),
              HasSubstr("the head size is 72, it takes 16, 32"));
}

}  // namespace
}  // namespace spry
