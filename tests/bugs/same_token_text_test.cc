// Two tokens that read alike (0xC3 and 0xE2 alone are both U+FFFD) gave one object of top_logprobs
// the same key twice, and each parser of JSON chose for itself.
#include <gtest/gtest.h>

#include <string>

#include "server/choice_logprobs.h"
#include "tests/text/tiny_vocabulary.h"

namespace spry {
namespace {

std::string TopLogprobs(const TokenLogprobs& token, bool tokens_as_ids) {
  const auto tokenizer = Build(ByteVocabulary());
  ChoiceLogprobs logprobs({.tokenizer = tokenizer.get(), .tokens_as_ids = tokens_as_ids});
  logprobs.Add(token, /*offset=*/0);
  std::string out;
  JsonWriter json(out);
  logprobs.Write(json);
  const size_t begin = out.find("\"top_logprobs\":");
  return out.substr(begin, out.size() - begin - 1);
}

TEST(SameTokenText, TheMostLikelyStandsForAll) {
  TokenLogprobs token{.rank = 5, .num_top = 3, .chosen = {TokenId(0xA9), -4.0f}};
  token.top[0] = {TokenId(0xC3), -0.5f};
  token.top[1] = {TokenId('a'), -1.5f};
  token.top[2] = {TokenId(0xE2), -2.5f};
  EXPECT_EQ(TopLogprobs(token, /*tokens_as_ids=*/false),
            "\"top_logprobs\":[{\"\xEF\xBF\xBD\":-0.5,\"a\":-1.5}]");
  EXPECT_EQ(TopLogprobs(token, /*tokens_as_ids=*/true),
            R"("top_logprobs":[{"token_id:195":-0.5,"token_id:97":-1.5,"token_id:226":-2.5,)"
            R"("token_id:169":-4.0}])");
}

}  // namespace
}  // namespace spry
