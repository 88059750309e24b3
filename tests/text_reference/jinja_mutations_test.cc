#include "tests/text/jinja_mutations.h"

#include <gtest/gtest.h>

namespace spry {
namespace {

// The same as the quick test of tests/text, with other seeds and more of them.
TEST(JinjaMutations, TenThousandAreHarmless) {
  ExpectTemplateMutationsAreHarmless(/*first_seed=*/1'000, /*count=*/10'000);
}

}  // namespace
}  // namespace spry
