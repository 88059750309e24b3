#include "text/jinja/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/compare.h"

namespace spry::jinja {

Result<BoundArguments> BoundArguments::Bind(std::string_view callee, const Arguments& arguments,
                                            std::initializer_list<std::string_view> parameters,
                                            size_t required) {
  BoundArguments bound;
  bound.callee_ = callee;
  bound.parameters_ = parameters;
  bound.values_.resize(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size()) {
    return InvalidArgument(fmt::format("{} takes at most {} arguments, found {}", callee,
                                       parameters.size(), arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(parameters.begin(), parameters.end(), name);
    if (it == parameters.end()) {
      return InvalidArgument(fmt::format("{} has no parameter '{}'", callee, name.substr(0, 100)));
    }
    const auto index = static_cast<size_t>(it - parameters.begin());
    if (bound.values_[index] != nullptr) {
      return InvalidArgument(fmt::format("{} is given '{}' twice", callee, name));
    }
    bound.values_[index] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound.values_[i] != nullptr) continue;
    return InvalidArgument(fmt::format("{} needs its argument '{}'", callee, bound.parameters_[i]));
  }
  return bound;
}

Result<BoundArguments> BoundArguments::BindByPlace(
    std::string_view callee, const Arguments& arguments,
    std::initializer_list<std::string_view> parameters, size_t required) {
  if (arguments.named.empty()) return Bind(callee, arguments, parameters, required);
  return InvalidArgument(fmt::format("{} takes its arguments by place, found one named '{}'",
                                     callee, arguments.named[0].first.substr(0, 100)));
}

const Value* BoundArguments::GetUnlessNone(size_t index) const {
  const Value* value = values_[index];
  return value == nullptr || value->is_none() ? nullptr : value;
}

bool BoundArguments::IsTrueAt(size_t index, bool otherwise) const {
  return values_[index] == nullptr ? otherwise : IsTrue(*values_[index]);
}

Status BoundArguments::Wrong(size_t index, std::string_view expected) const {
  const Value* value = values_[index];
  return InvalidArgument(fmt::format("{}: '{}' must be {}, found a value of type {}", callee_,
                                     parameters_[index], expected,
                                     value == nullptr ? "NoneType" : value->TypeName()));
}

Result<int64_t> BoundArguments::Int(size_t index, std::optional<int64_t> otherwise) const {
  const Value* value = values_[index];
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_int()) return Wrong(index, "an integer");
  return value->as_int();
}

Result<const Text*> BoundArguments::TextAt(size_t index) const {
  const Value* value = values_[index];
  if (value == nullptr || value->text() == nullptr) return Wrong(index, "a string");
  return value->text();
}

Result<std::string_view> BoundArguments::TextAt(size_t index, std::string_view otherwise) const {
  if (values_[index] == nullptr) return otherwise;
  SPRY_ASSIGN_OR_RETURN(const Text* text, TextAt(index));
  return std::string_view(text->bytes);
}

}  // namespace spry::jinja
