// transformers writes int(1e30) as model_max_length where a tokenizer has none: every such folder
// was refused as "not JSON".
#include <gtest/gtest.h>

#include "checkpoint/json_fields.h"
#include "text/json_parse.h"

namespace spry {
namespace {

constexpr char kConfig[] =
    R"({"model_max_length": 1000000000000000019884624838656, "list": [-99999999999999999999],)"
    R"( "text": "\"12345678901234567890123", "pi": 3.14159265358979323846264338327950,)"
    R"( "most": 9223372036854775807, "small": 1e-30})";

TEST(LongIntegers, BecomeDoublesAndNothingElseChanges) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  ASSERT_EQ(ParseJson(kConfig, parser, root), simdjson::SUCCESS);
  EXPECT_EQ(double(root["model_max_length"]), 1e30);
  EXPECT_EQ(double(root["list"].at(0)), -1e20);
  EXPECT_EQ(std::string_view(root["text"]), "\"12345678901234567890123");
  EXPECT_EQ(double(root["pi"]), 3.14159265358979323846);
  EXPECT_EQ(int64_t(root["most"]), INT64_MAX);
  EXPECT_EQ(double(root["small"]), 1e-30);
}

TEST(LongIntegers, AreNoIntegersOfAConfig) {
  const Result<JsonText> read = JsonText::Parse(kConfig, "config.json");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_FALSE(read->root().Integer("model_max_length", {.min = 0, .max = INT64_MAX}).ok());
  EXPECT_EQ(**read->root().Number("model_max_length", {.min = 0, .max = 1e300}), 1e30);
}

TEST(LongIntegers, WhatIsNoNumberIsStillRefused) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  for (const char* text :
       {R"({"a": 012345678901234567890123})", R"({"a": 1.2.3})", R"({"a": -})"}) {
    EXPECT_NE(ParseJson(text, parser, root), simdjson::SUCCESS) << text;
  }
}

}  // namespace
}  // namespace spry
