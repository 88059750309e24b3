// The arguments of a call of something built in, sorted by its parameters.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/value.h"

namespace spry::jinja {

class BoundArguments {
 public:
  // `callee` is for messages. The first `required` parameters must be given.
  static Result<BoundArguments> Bind(std::string_view callee, const Arguments& arguments,
                                     std::initializer_list<std::string_view> parameters,
                                     size_t required);
  // The same for parameters that are known by their place alone.
  static Result<BoundArguments> BindByPlace(std::string_view callee, const Arguments& arguments,
                                            std::initializer_list<std::string_view> parameters,
                                            size_t required);

  // Null where the argument is not given.
  const Value* Get(size_t index) const { return values_[index]; }
  // The same, and null for None too.
  const Value* GetUnlessNone(size_t index) const;
  bool IsTrueAt(size_t index, bool otherwise) const;
  // These refuse values of another type. Without `otherwise` the argument must be given.
  Result<int64_t> Int(size_t index, std::optional<int64_t> otherwise = {}) const;
  Result<const Text*> TextAt(size_t index) const;
  Result<std::string_view> TextAt(size_t index, std::string_view otherwise) const;

 private:
  Status Wrong(size_t index, std::string_view expected) const;

  std::string callee_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;  // of the Arguments
};

}  // namespace spry::jinja
