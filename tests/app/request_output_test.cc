#include "app/request_output.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <utility>

#include "tests/text/tiny_vocabulary.h"

namespace spry {
namespace {

namespace json = boost::json;

// Tokens of one byte, as an engine would report them.
class RequestOutputTest : public ::testing::Test {
 protected:
  RequestOutput Make(SamplingParams sampling) const {
    return RequestOutput({.tokenizer = tokenizer_.get(), .sampling = std::move(sampling)});
  }
  // The pieces of `text`, token by token, joined; stops where the output does.
  static std::string Feed(RequestOutput& output, const std::string& text,
                          FinishReason at_end = FinishReason::kLength) {
    std::string joined;
    for (size_t i = 0; i < text.size() && !output.finished(); ++i) {
      const bool last = i + 1 == text.size();
      joined += output.Take({.has_token = true,
                             .token = TokenId(static_cast<unsigned char>(text[i])),
                             .finish = last ? at_end : FinishReason::kNone});
    }
    return joined;
  }
  static json::object Json(const RequestOutput& output) {
    return json::parse(output.ToJson()).as_object();
  }

  std::unique_ptr<const Tokenizer> tokenizer_ = Build(ByteVocabulary());
};

TEST_F(RequestOutputTest, AStopStringEndsTheTextBeforeIt) {
  RequestOutput output = Make({.stop = {"###", "end"}});
  EXPECT_EQ(Feed(output, "a b e endless"), "a b e ");
  EXPECT_EQ(output.finish(), FinishReason::kStop);
  EXPECT_EQ(output.text(), "a b e ");
  EXPECT_EQ(Json(output).at("finish_reason"), "stop");
  EXPECT_EQ(Json(output).at("stop_reason"), "end");
  EXPECT_EQ(Json(output).at("token_ids").as_array().size(), 9u);  // up to the d
}

TEST_F(RequestOutputTest, OrAfterItWhenAsked) {
  RequestOutput output = Make({.stop = {"end"}, .include_stop_str_in_output = true});
  EXPECT_EQ(Feed(output, "the end is near"), "the end");
}

TEST_F(RequestOutputTest, WhatWasHeldBackIsGivenWhenTheOutputEndsByLength) {
  RequestOutput output = Make({.stop = {"endless"}});
  EXPECT_EQ(Feed(output, "the end"), "the end");
  EXPECT_EQ(output.finish(), FinishReason::kLength);
  EXPECT_TRUE(Json(output).at("stop_reason").is_null());
}

TEST_F(RequestOutputTest, AStopStringInTheFirstMinTokensDoesNotCount) {
  RequestOutput output = Make({.min_tokens = 5, .stop = {"ab"}});
  EXPECT_EQ(Feed(output, "xabxabxab"), "xabxabx");  // the second b is token 6, its a was passed
}

TEST_F(RequestOutputTest, AStopIdIsNamedAndTheModelsOwnIsNot) {
  RequestOutput asked = Make({.stop_token_ids = {TokenId('!')}});
  EXPECT_EQ(Feed(asked, "hi!", FinishReason::kStop), "hi");
  EXPECT_EQ(Json(asked).at("stop_reason"), int{'!'});
  RequestOutput own = Make({});
  EXPECT_EQ(Feed(own, "hi!", FinishReason::kStop), "hi");
  EXPECT_TRUE(Json(own).at("stop_reason").is_null());
}

}  // namespace
}  // namespace spry
