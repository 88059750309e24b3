// A config.json whose embeddings were wider than a CPU worker's scratch memory ended the program by
// a failed CHECK.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/app/program_run.h"

namespace spry {
namespace {

using ::testing::HasSubstr;

TEST_F(ProgramTest, WidthsBeyondAWorkersMemoryAreRefused) {
  const auto generate = [this](const std::string& key, int width) {
    MakeModel("m");
    return Shell("sed -i 's/\"" + key + "\": 16/\"" + key + "\": " + std::to_string(width) +
                 "/' m/config.json; echo '{\"prompt_token_ids\": [5], \"max_tokens\": 1}' > in; "
                 "\"$SPRY\" generate m --load-format dummy --device cpu --input in --json");
  };
  for (const char* key : {"word_embed_proj_dim", "hidden_size"}) {
    const ProgramResult refused = generate(key, 1 << 19);
    EXPECT_EQ(refused.exit_code, 1) << key << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(key));
    EXPECT_THAT(refused.err, HasSubstr("262144"));
  }
  const ProgramResult widest = generate("word_embed_proj_dim", 1 << 18);
  EXPECT_EQ(widest.exit_code, 0) << widest.err;
}

}  // namespace
}  // namespace spry
