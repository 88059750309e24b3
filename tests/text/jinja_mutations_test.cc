#include "tests/text/jinja_mutations.h"

#include <gtest/gtest.h>

namespace spry {
namespace {

TEST(JinjaMutations, AThousandAreHarmless) {
  ExpectTemplateMutationsAreHarmless(/*first_seed=*/0, /*count=*/1'000);
}

}  // namespace
}  // namespace spry
