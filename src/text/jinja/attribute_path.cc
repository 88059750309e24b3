#include "text/jinja/attribute_path.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace spry::jinja {

Result<AttributePath> AttributePath::Parse(const Value* attribute) {
  AttributePath path;
  if (attribute == nullptr) return path;
  if (attribute->text() == nullptr) {
    path.parts_.push_back(*attribute);
    return path;
  }
  std::string_view rest = attribute->text()->bytes;
  for (bool more = true; more;) {
    const size_t point = rest.find('.');
    const std::string_view part = rest.substr(0, point);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool digits = !part.empty() && part[0] != '-' && end == part.data() + part.size();
    if (digits && error == std::errc()) {
      path.parts_.push_back(Value::Int(index));
    } else {
      path.parts_.push_back(Value::String(std::string(part)));
    }
    more = point != rest.npos;
    if (more) rest.remove_prefix(point + 1);
  }
  return path;
}

Result<Value> AttributePath::Of(Runtime& runtime, const Value& item, const Value* otherwise) const {
  Value value = item;
  for (const Value& part : parts_) {
    SPRY_RETURN_IF_ERROR(runtime.Charge(1));
    SPRY_ASSIGN_OR_RETURN(value, runtime.GetItem(value, part));
    if (otherwise != nullptr && value.is_undefined()) value = *otherwise;
  }
  return value;
}

}  // namespace spry::jinja
