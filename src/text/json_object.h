// A JSON object together with the place where it stands, so that every error names file and field:
// "tokenizer.json: model.vocab is a string; expected an object". Only for this folder's .cc files.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace spry {

class JsonObject {
 public:
  using Element = simdjson::dom::element;

  JsonObject(simdjson::dom::object object, std::string where)
      : object_(object), where_(std::move(where)) {}

  // The member, unless it is absent or null.
  std::optional<Element> Find(std::string_view key) const;

  // Absent or null gives `otherwise`; another type is an error.
  Result<bool> Bool(std::string_view key, bool otherwise) const;
  Result<std::string_view> String(std::string_view key, std::string_view otherwise) const;
  // These must be there.
  Result<std::string_view> String(std::string_view key) const;
  Result<JsonObject> Object(std::string_view key) const;
  Result<simdjson::dom::array> Array(std::string_view key) const;
  // An id of a token: not negative, fits in 31 bits.
  Result<int32_t> Id(std::string_view key) const;

  // Element `index` of the array `key`, which must be an object.
  Result<JsonObject> ObjectAt(std::string_view key, size_t index, Element element) const;

  Status Wrong(std::string_view key, std::string_view what) const;        // InvalidArgument
  Status Unsupported(std::string_view key, std::string_view what) const;  // Unimplemented
  std::string PathOf(std::string_view key) const;

  simdjson::dom::object raw() const { return object_; }

 private:
  Status WrongType(std::string_view key, std::string_view expected) const;

  simdjson::dom::object object_;
  std::string where_;  // "tokenizer.json: model"
};

// A parsed file; keeps what its objects point into.
class JsonFile {
 public:
  // Refuses files over `max_bytes` unread.
  static Result<JsonFile> Read(const std::filesystem::path& path, size_t max_bytes);

  JsonObject root() const { return root_; }

 private:
  JsonFile(std::unique_ptr<simdjson::dom::parser> parser, JsonObject root)
      : parser_(std::move(parser)), root_(std::move(root)) {}

  std::unique_ptr<simdjson::dom::parser> parser_;
  JsonObject root_;
};

// The bytes of a file; refuses one over `max_bytes`.
Result<std::string> ReadTextFile(const std::filesystem::path& path, size_t max_bytes);

// The token id in `element`, which stands at `where`.
Result<int32_t> TokenIdIn(simdjson::dom::element element, std::string_view where);

}  // namespace spry
