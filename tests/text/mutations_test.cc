#include "tests/text/mutations.h"

#include <gtest/gtest.h>

namespace spry {
namespace {

TEST(TokenizerFilesMutations, AThousandAreHarmless) {
  ExpectMutationsAreHarmless(/*first_seed=*/0, /*count=*/1'000);
}

}  // namespace
}  // namespace spry
