// The small and large JSON files of a checkpoint folder, read with every type and range checked.
// Errors name the file, the key, what was found and what was expected. A value of null counts as
// absent everywhere, as transformers writes it. Private to src/checkpoint.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/number_range.h"

namespace spry {

// A view: valid as long as the parser it came from.
class JsonFields {
 public:
  // `where` opens every message ("model/config.json"). Errors: not an object; a key twice.
  static Result<JsonFields> Make(simdjson::dom::element element, std::string where);

  bool Has(std::string_view key) const { return Find(key).has_value(); }
  Result<std::optional<int64_t>> Integer(std::string_view key, IntegerRange range) const;
  Result<std::optional<double>> Number(std::string_view key, NumberRange range) const;
  Result<std::optional<bool>> Flag(std::string_view key) const;
  Result<std::optional<std::string>> Text(std::string_view key) const;
  Result<std::optional<JsonFields>> Object(std::string_view key) const;
  // Empty when absent.
  Result<std::vector<std::string>> TextList(std::string_view key) const;
  Result<std::vector<int64_t>> IntegerOrList(std::string_view key, IntegerRange range) const;

  // For keys that must be there.
  Result<int64_t> RequiredInteger(std::string_view key, IntegerRange range) const;
  Result<double> RequiredNumber(std::string_view key, NumberRange range) const;

  // "model/config.json: "key" is <found>, expected <expected>".
  Status Wrong(std::string_view key, std::string_view expected) const;
  Status Missing(std::string_view key) const;

  const std::string& where() const { return where_; }
  simdjson::dom::object object() const { return object_; }

 private:
  JsonFields(simdjson::dom::object object, std::string where)
      : object_(object), where_(std::move(where)) {}
  std::optional<simdjson::dom::element> Find(std::string_view key) const;

  simdjson::dom::object object_;
  std::string where_;
};

// A parsed text and the memory that its JsonFields points into.
class JsonText {
 public:
  static Result<JsonText> Read(const std::filesystem::path& path);
  static Result<JsonText> Parse(std::string_view text, const std::string& where);

  const JsonFields& root() const { return root_; }

 private:
  JsonText(std::unique_ptr<simdjson::dom::parser> parser, JsonFields root)
      : parser_(std::move(parser)), root_(std::move(root)) {}

  std::unique_ptr<simdjson::dom::parser> parser_;
  JsonFields root_;
};

}  // namespace spry
