// Writes the JSON of answers by appending to a string that its owner reuses. Commas are put where
// they belong: what was written last tells, so fragments may be appended in between. The output is
// always valid UTF-8: broken bytes become U+FFFD.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace spry {

class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  void BeginObject() { Begin('{'); }
  void EndObject() { out_ += '}'; }
  void BeginArray() { Begin('['); }
  void EndArray() { out_ += ']'; }
  // `key` needs no escapes.
  void Key(std::string_view key);

  void String(std::string_view text) { String({}, text); }
  // One string of two parts, of which the first has its escapes already.
  void String(std::string_view escaped, std::string_view text);
  void Integer(int64_t value);
  // The shortest text that reads back as the same number, with a point or an exponent. What is not
  // finite becomes null, since JSON has no word for it.
  void Number(double value) { Floating(value); }
  void Number(float value) { Floating(value); }
  void Bool(bool value);
  void Null();
  // A value that is JSON already.
  void Raw(std::string_view json);

  std::string& out() { return out_; }

 private:
  void Separate();
  void Begin(char bracket) {
    Separate();
    out_ += bracket;
  }
  template <typename Float>
  void Floating(Float value);

  std::string& out_;
};

// Appends `text` with JSON's escapes, without quotes.
void AppendEscaped(std::string_view text, std::string& out);

}  // namespace spry
