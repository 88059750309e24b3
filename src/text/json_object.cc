#include "text/json_object.h"

#include <fmt/format.h>

#include <fstream>

#include "text/json_parse.h"

namespace spry {
namespace {

std::string_view TypeName(simdjson::dom::element element) {
  switch (element.type()) {
    case simdjson::dom::element_type::ARRAY: return "an array";
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::BOOL: return "a boolean";
    case simdjson::dom::element_type::NULL_VALUE: return "null";
    default: return "a number";
  }
}

}  // namespace

std::optional<JsonObject::Element> JsonObject::Find(std::string_view key) const {
  Element element;
  if (object_.at_key(key).get(element) != simdjson::SUCCESS || element.is_null()) return {};
  return element;
}

std::string JsonObject::PathOf(std::string_view key) const {
  return fmt::format("{}{}{}", where_, where_.ends_with(": ") ? "" : ".", key);
}

Status JsonObject::Wrong(std::string_view key, std::string_view what) const {
  return InvalidArgument(fmt::format("{} {}", PathOf(key), what));
}

Status JsonObject::Unsupported(std::string_view key, std::string_view what) const {
  return Unimplemented(fmt::format("{} {}", PathOf(key), what));
}

Status JsonObject::WrongType(std::string_view key, std::string_view expected) const {
  const auto element = Find(key);
  return Wrong(
      key, fmt::format("is {}; expected {}", element ? TypeName(*element) : "missing", expected));
}

Result<bool> JsonObject::Bool(std::string_view key, bool otherwise) const {
  const auto element = Find(key);
  if (!element) return otherwise;
  bool value = false;
  if (element->get(value) != simdjson::SUCCESS) return WrongType(key, "a boolean");
  return value;
}

Result<std::string_view> JsonObject::String(std::string_view key,
                                            std::string_view otherwise) const {
  return Find(key) ? String(key) : otherwise;
}

Result<std::string_view> JsonObject::String(std::string_view key) const {
  const auto element = Find(key);
  std::string_view value;
  if (!element || element->get(value) != simdjson::SUCCESS) return WrongType(key, "a string");
  return value;
}

Result<JsonObject> JsonObject::Object(std::string_view key) const {
  const auto element = Find(key);
  simdjson::dom::object value;
  if (!element || element->get(value) != simdjson::SUCCESS) return WrongType(key, "an object");
  return JsonObject(value, PathOf(key));
}

Result<simdjson::dom::array> JsonObject::Array(std::string_view key) const {
  const auto element = Find(key);
  simdjson::dom::array value;
  if (!element || element->get(value) != simdjson::SUCCESS) return WrongType(key, "an array");
  return value;
}

Result<int32_t> JsonObject::Id(std::string_view key) const {
  const auto element = Find(key);
  if (!element) return WrongType(key, "a token id");
  return TokenIdIn(*element, PathOf(key));
}

Result<JsonObject> JsonObject::ObjectAt(std::string_view key, size_t index, Element element) const {
  const std::string where = fmt::format("{}[{}]", PathOf(key), index);
  simdjson::dom::object value;
  if (element.get(value) != simdjson::SUCCESS) {
    return InvalidArgument(fmt::format("{} is {}; expected an object", where, TypeName(element)));
  }
  return JsonObject(value, where);
}

Result<int32_t> TokenIdIn(simdjson::dom::element element, std::string_view where) {
  int64_t id = 0;
  if (element.get(id) != simdjson::SUCCESS) {
    return InvalidArgument(fmt::format("{} is {}; expected a token id", where, TypeName(element)));
  }
  if (id < 0 || id > INT32_MAX) {
    return InvalidArgument(fmt::format("{} is {}; token ids are 0 to {}", where, id, INT32_MAX));
  }
  return static_cast<int32_t>(id);
}

Result<std::string> ReadTextFile(const std::filesystem::path& path, size_t max_bytes) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return NotFound(fmt::format("{}: {}", path.string(), error.message()));
  if (size > max_bytes) {
    return InvalidArgument(
        fmt::format("{} has {} bytes; the limit is {}", path.string(), size, max_bytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file || file.gcount() != static_cast<std::streamsize>(size)) {
    return Internal(fmt::format("{} cannot be read", path.string()));
  }
  return text;
}

Result<JsonFile> JsonFile::Read(const std::filesystem::path& path, size_t max_bytes) {
  SPRY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, max_bytes));
  auto parser = std::make_unique<simdjson::dom::parser>();
  simdjson::dom::element root;
  if (const auto error = ParseJson(text, *parser, root); error != simdjson::SUCCESS) {
    return InvalidArgument(
        fmt::format("{}: not JSON: {}", path.string(), simdjson::error_message(error)));
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return InvalidArgument(
        fmt::format("{}: is {}; expected an object", path.string(), TypeName(root)));
  }
  return JsonFile(std::move(parser), JsonObject(object, path.string() + ": "));
}

}  // namespace spry
