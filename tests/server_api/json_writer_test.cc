#include "server/json_writer.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "text/utf8.h"

namespace spry {
namespace {

TEST(JsonWriterTest, PutsCommasWhereTheyBelong) {
  std::string out = "data: ";
  JsonWriter json(out);
  json.BeginObject();
  json.Key("a");
  json.BeginArray();
  json.Integer(1);
  json.Integer(-2);
  json.BeginObject();
  json.EndObject();
  json.Null();
  json.EndArray();
  json.Key("b");
  json.Bool(true);
  json.Key("c");
  json.String("x,[");
  json.Key("d");
  json.Raw("{}");
  json.EndObject();
  EXPECT_EQ(out, R"(data: {"a":[1,-2,{},null],"b":true,"c":"x,[","d":{}})");
}

TEST(JsonWriterTest, NumbersReadBackAsTheSame) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const double value = std::bit_cast<double>(random());
    if (!std::isfinite(value)) continue;
    std::string out;
    JsonWriter(out).Number(value);
    EXPECT_EQ(std::strtod(out.c_str(), nullptr), value) << out;
    const auto small = static_cast<float>(static_cast<int32_t>(random())) * 1e-7f;
    std::string text;
    JsonWriter(text).Number(small);
    EXPECT_EQ(std::strtof(text.c_str(), nullptr), small) << text;
  }
}

TEST(JsonWriterTest, HasNoWordForWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  std::string out;
  JsonWriter json(out);
  json.BeginArray();
  for (const double value : {infinity, -infinity, std::nan(""), 3.0, -0.0}) json.Number(value);
  json.EndArray();
  EXPECT_EQ(out, "[null,null,null,3.0,-0.0]");
}

TEST(JsonWriterTest, AnyBytesBecomeValidJsonThatReadsBackLossy) {
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes(random() % 24, '\0');
    for (char& byte : bytes) {
      byte = static_cast<char>(random() % 3 == 0 ? random() % 256 : 0x20 + random() % 0x60);
    }
    std::string out, expected;
    JsonWriter(out).String(bytes);
    ASSERT_TRUE(IsValidUtf8(out));
    AppendLossy(bytes, expected);
    const boost::json::value read = boost::json::parse(out);
    EXPECT_EQ(std::string(read.as_string()), expected);
  }
}

}  // namespace
}  // namespace spry
