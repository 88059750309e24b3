// Which steps share a CUDA graph. The file under test has no CUDA in it.
#include "device/cuda/buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace spry::cuda {
namespace {

constexpr StepLimits kLarge{.max_tokens = 8192, .max_rows = 1024, .max_samples = 1024};

StepHeader Decode(int32_t rows) {
  return {.num_tokens = rows, .num_rows = rows, .num_samples = rows};
}

LaunchShape Bucket(const StepHeader& header, const StepLimits& limits = kLarge) {
  return BucketOf(header, limits, {.plain = true, .in_order = true});
}

TEST(Buckets, DecodeStepsAreExactOrASixteenthLarger) {
  for (int32_t rows = 1; rows <= kLarge.max_rows; ++rows) {
    const LaunchShape bucket = Bucket(Decode(rows));
    EXPECT_TRUE(bucket.decode);
    EXPECT_EQ(bucket.tokens, bucket.samples);
    EXPECT_EQ(bucket.tokens, bucket.rows);
    ASSERT_GE(bucket.tokens, rows);
    if (rows <= 32) {
      ASSERT_EQ(bucket.tokens, rows);
    } else {
      ASSERT_LT(bucket.tokens - rows, rows <= 256 ? 8 : rows / 16.0 + 1) << rows;
    }
  }
}

// The bar of a step just above a bucket: kernels that compute the whole bucket get little more.
TEST(Buckets, OneMoreRowAddsLittle) {
  EXPECT_EQ(Bucket(Decode(256)).tokens, 256);
  EXPECT_EQ(Bucket(Decode(257)).tokens, 272);
  EXPECT_EQ(Bucket(Decode(512)).tokens, 512);
  EXPECT_EQ(Bucket(Decode(513)).tokens, 544);
  const StepHeader prompt{.num_tokens = 513, .num_rows = 1, .num_samples = 1};
  EXPECT_EQ(Bucket(prompt).tokens, 576);
  EXPECT_EQ(Bucket(prompt).samples, 1);
}

TEST(Buckets, MixedStepsFitAndAreFew) {
  std::set<std::tuple<int32_t, int32_t>> pairs;
  std::set<int32_t> tokens;
  for (int32_t count = 2; count <= kLarge.max_tokens; ++count) {
    for (int32_t samples = 0; samples < std::min(count, 257); ++samples) {
      const LaunchShape bucket =
          Bucket({.num_tokens = count, .num_rows = samples + 1, .num_samples = samples});
      ASSERT_GE(bucket.tokens, count);
      ASSERT_LE(bucket.tokens - count, std::max(7, count / 8));
      ASSERT_GE(bucket.samples, samples);
      ASSERT_LE(bucket.samples - samples, std::max(7, samples / 4));
      ASSERT_GE(bucket.rows, std::min(samples + 1, kLarge.max_rows));
      tokens.insert(bucket.tokens);
      pairs.insert({bucket.tokens, bucket.samples});
    }
  }
  EXPECT_LE(tokens.size(), 64u);
  EXPECT_LE(pairs.size(), 1200u);
}

TEST(Buckets, NeverBeyondTheLimits) {
  const StepLimits limits{.max_tokens = 100, .max_rows = 50, .max_samples = 33};
  for (int32_t count = 1; count <= limits.max_tokens; ++count) {
    for (int32_t samples = 0; samples <= std::min(count, limits.max_samples); ++samples) {
      const LaunchShape bucket = Bucket(
          {.num_tokens = count, .num_rows = std::min(count, 50), .num_samples = samples}, limits);
      ASSERT_LE(bucket.tokens, limits.max_tokens);
      ASSERT_LE(bucket.rows, limits.max_rows);
      ASSERT_LE(bucket.samples, limits.max_samples);
      ASSERT_GE(bucket.tokens, count);
      ASSERT_GE(bucket.samples, samples);
    }
  }
}

TEST(Buckets, DecodeBucketsAreThoseThatDecodeStepsMeet) {
  for (const int32_t rows : {1, 7, 256, 1000}) {
    const StepLimits limits{.max_tokens = 8192, .max_rows = rows, .max_samples = rows};
    constexpr int32_t kDrawnRows = 256;
    constexpr bool kInOrder = true;
    const std::vector<LaunchShape> buckets = DecodeBuckets(limits, kDrawnRows, kInOrder);
    for (int32_t count = 1; count <= rows; ++count) {
      for (const bool plain : {count <= kDrawnRows, false}) {
        const LaunchShape bucket =
            BucketOf(Decode(count), limits, {.plain = plain, .in_order = true});
        ASSERT_EQ(std::count(buckets.begin(), buckets.end(), bucket), 1) << count;
      }
    }
    EXPECT_LE(buckets.size(), 200u);
  }
}

// Room for judged prompts enlarges no step that has none.
TEST(Buckets, JudgedPromptsAreStepsOfTheirOwn) {
  const StepLimits plain{.max_tokens = 8192, .max_rows = 100, .max_samples = 100};
  const StepLimits roomy{.max_tokens = 8192, .max_rows = 100, .max_samples = 164};
  for (int32_t rows = 1; rows <= 100; ++rows) {
    EXPECT_EQ(Bucket(Decode(rows), roomy), Bucket(Decode(rows), plain));
    const StepHeader mixed{.num_tokens = 900, .num_rows = rows, .num_samples = rows};
    EXPECT_EQ(Bucket(mixed, roomy), Bucket(mixed, plain));
  }
  const LaunchShape judged =
      Bucket({.num_tokens = 200, .num_rows = 100, .num_samples = 164}, roomy);
  EXPECT_EQ(judged.samples, 164);
  EXPECT_EQ(judged.rows, 100);
  const LaunchShape alone = Bucket({.num_tokens = 64, .num_rows = 1, .num_samples = 64}, roomy);
  EXPECT_EQ(alone.samples, 64);
  EXPECT_FALSE(alone.decode);
}

TEST(RowKinds, AJudgedTokenIsNotPlain) {
  StepHeader header{.num_tokens = 1, .num_rows = 1, .num_samples = 1};
  SlotRow row{.num_tokens = 1, .sample_index = 0, .num_samples = 1};
  SlotJoin join;
  const StepSlot slot{.header = &header, .rows = &row, .joins = &join};
  RowKindTracker tracker(1);
  EXPECT_TRUE(tracker.Update(slot).plain);
  row.next_token = 7;
  EXPECT_FALSE(tracker.Update(slot).plain);
  row = {.num_tokens = 2, .sample_index = 0, .num_samples = 2};
  EXPECT_FALSE(tracker.Update(slot).plain);
  row.num_samples = 1;  // the request itself decodes as others do
  EXPECT_TRUE(tracker.Update(slot).plain);
}

}  // namespace
}  // namespace spry::cuda
