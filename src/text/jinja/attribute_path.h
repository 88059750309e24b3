// The `attribute` of filters: "function.name" or "items.0" or 0, looked up part by part.
#pragma once

#include <vector>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace spry::jinja {

class AttributePath {
 public:
  // Null: the item itself.
  static Result<AttributePath> Parse(const Value* attribute);

  // `otherwise`, unless null, takes the place of every part that is undefined.
  Result<Value> Of(Runtime& runtime, const Value& item, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace spry::jinja
