#include "tests/text/mutations.h"

#include <gtest/gtest.h>

namespace spry {
namespace {

// The same as the quick test of tests/text, with other seeds and more of them.
TEST(TokenizerFilesMutations, TwentyThousandAreHarmless) {
  ExpectMutationsAreHarmless(/*first_seed=*/1'000, /*count=*/20'000);
}

}  // namespace
}  // namespace spry
