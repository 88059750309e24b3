// The variables of one part of a template: its top, a pass of a loop, a macro's call.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace spry::jinja {

class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> parent) : parent_(std::move(parent)) {}

  // `name` belongs to the template, which outlives the rendering.
  void Set(std::string_view name, Value value) {
    for (auto& [known, held] : variables_) {
      if (known != name) continue;
      held = std::move(value);
      return;
    }
    variables_.emplace_back(name, std::move(value));
  }

  // Here or in a scope around; null when there is none.
  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      for (const auto& [known, held] : scope->variables_) {
        if (known == name) return &held;
      }
    }
    return nullptr;
  }

  void Clear() { variables_.clear(); }

 private:
  std::shared_ptr<Scope> parent_;
  std::vector<std::pair<std::string_view, Value>> variables_;
};

using ScopePtr = std::shared_ptr<Scope>;

}  // namespace spry::jinja
