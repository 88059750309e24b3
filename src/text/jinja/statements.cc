// Statements.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja/compare.h"
#include "text/jinja/evaluation_depth.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/limits.h"
#include "text/jinja/loop.h"

namespace spry::jinja {
namespace {

class Macro final : public Object {
 public:
  // `scope` is kept by the evaluator.
  Macro(Evaluator& evaluator, const MacroDefinition& definition, std::weak_ptr<Scope> scope)
      : evaluator_(evaluator), definition_(definition), scope_(std::move(scope)) {}

  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime&, Arguments arguments) override {
    return evaluator_.CallMacro(definition_, scope_.lock(), std::move(arguments));
  }
  Result<std::optional<Value>> Attribute(Runtime&, std::string_view name) override {
    if (name != "name") return std::optional<Value>();
    return std::optional<Value>(Value::String(definition_.name));
  }

 private:
  Evaluator& evaluator_;
  const MacroDefinition& definition_;
  std::weak_ptr<Scope> scope_;
};

// Takes the argument `name` out of `arguments`.
std::optional<Value> TakeNamed(Arguments& arguments, std::string_view name) {
  const auto it =
      std::ranges::find_if(arguments.named, [&](const auto& entry) { return entry.first == name; });
  if (it == arguments.named.end()) return {};
  Value value = std::move(it->second);
  arguments.named.erase(it);
  return value;
}

}  // namespace

Result<std::string> Evaluator::Run(const Block& block) {
  std::string text;
  SPRY_RETURN_IF_ERROR(Capture(block, std::make_shared<Scope>(nullptr), text).status());
  return text;
}

Status Evaluator::Write(std::string_view text) {
  if (out_->size() + text.size() > kMaxOutputBytes) {
    return InvalidArgument(
        fmt::format("the template writes more than the limit of {} bytes", kMaxOutputBytes));
  }
  SPRY_RETURN_IF_ERROR(runtime_.ChargeText(text.size()));
  *out_ += text;
  return {};
}

Result<Evaluator::Flow> Evaluator::Capture(const Block& block, const ScopePtr& scope,
                                           std::string& text) {
  std::string* const outer = std::exchange(out_, &text);
  Result<Flow> flow = Execute(block, scope);
  out_ = outer;
  return flow;
}

Result<Evaluator::Flow> Evaluator::Execute(const Block& block, const ScopePtr& scope) {
  const EvaluationDepth depth(depth_);
  SPRY_RETURN_IF_ERROR(depth.Check());
  for (const auto& statement : block) {
    SPRY_RETURN_IF_ERROR(runtime_.Charge(1));
    SPRY_ASSIGN_OR_RETURN(const Flow flow, ExecuteOne(*statement, scope));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::ExecuteOne(const Statement& statement, const ScopePtr& scope) {
  runtime_.set_line(statement.line);
  Status status;
  if (const auto* text = std::get_if<TextStatement>(&statement.form)) {
    status = Write(text->text);
  } else if (const auto* output = std::get_if<OutputStatement>(&statement.form)) {
    status = Output(*output, scope);
  } else if (const auto* condition = std::get_if<IfStatement>(&statement.form)) {
    return ExecuteIf(*condition, scope);
  } else if (const auto* loop = std::get_if<ForStatement>(&statement.form)) {
    SPRY_ASSIGN_OR_RETURN(const Value items, Evaluate(*loop->items, scope));
    status = ExecuteFor(*loop, scope, items, /*depth=*/0);
  } else if (const auto* set = std::get_if<SetStatement>(&statement.form)) {
    status = ExecuteSet(*set, scope);
  } else if (const auto* set_block = std::get_if<SetBlockStatement>(&statement.form)) {
    return ExecuteSetBlock(*set_block, scope);
  } else if (const auto* filter = std::get_if<FilterBlockStatement>(&statement.form)) {
    return ExecuteFilterBlock(*filter, scope);
  } else if (const auto* with = std::get_if<WithStatement>(&statement.form)) {
    return ExecuteWith(*with, scope);
  } else if (const auto* macro = std::get_if<MacroStatement>(&statement.form)) {
    scope->Set(macro->macro.name, MakeMacro(macro->macro, scope));
  } else if (const auto* call = std::get_if<CallBlockStatement>(&statement.form)) {
    status = ExecuteCallBlock(*call, scope);
  } else if (const auto* generation = std::get_if<GenerationStatement>(&statement.form)) {
    return Execute(generation->body, std::make_shared<Scope>(scope));
  } else {
    return std::holds_alternative<BreakStatement>(statement.form) ? Flow::kBreak : Flow::kContinue;
  }
  if (!status.ok()) return status;
  return Flow::kNext;
}

Status Evaluator::Output(const OutputStatement& output, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*output.expression, scope));
  if (value.text() != nullptr) return Write(value.text()->bytes);
  SPRY_ASSIGN_OR_RETURN(const std::string text, runtime_.ToText(value));
  return Write(text);
}

Result<Evaluator::Flow> Evaluator::ExecuteIf(const IfStatement& statement, const ScopePtr& scope) {
  for (const IfStatement::Branch& branch : statement.branches) {
    bool taken = true;
    if (branch.condition != nullptr) {
      SPRY_ASSIGN_OR_RETURN(taken, IsTrueAt(*branch.condition, scope));
    }
    if (taken) return Execute(branch.body, scope);
  }
  return Flow::kNext;
}

Status Evaluator::ExecuteFor(const ForStatement& loop, const ScopePtr& scope, const Value& items,
                             int depth) {
  Loop::Options options{.depth = depth};
  SPRY_ASSIGN_OR_RETURN(options.items, runtime_.ItemsOf(items));
  if (loop.condition != nullptr) {
    options.condition = [this, &loop, &scope](const Value& item) -> Result<bool> {
      const auto inner = std::make_shared<Scope>(scope);
      SPRY_RETURN_IF_ERROR(Assign(loop.target, inner, item));
      return IsTrueAt(*loop.condition, inner);
    };
  }
  if (loop.recursive) {
    options.again = [this, &loop, &scope, depth](const Value& more) {
      return RunLoopAgain(loop, scope, more, depth + 1);
    };
  }
  const auto state = std::make_shared<Loop>(std::move(options));
  // Whatever keeps the loop, and however the body ends, its items are let go.
  struct Finisher {
    Loop& loop;
    ~Finisher() { loop.Finish(); }
  } const finisher{*state};
  bool completed = false;  // a pass of the body
  while (true) {
    SPRY_ASSIGN_OR_RETURN(const std::optional<Value> item, state->Next());
    if (!item) break;
    SPRY_RETURN_IF_ERROR(runtime_.Charge(1));
    const auto inner = std::make_shared<Scope>(scope);
    inner->Set("loop", Value::Of(std::shared_ptr<Object>(state)));
    SPRY_RETURN_IF_ERROR(Assign(loop.target, inner, *item));
    SPRY_ASSIGN_OR_RETURN(const Flow flow, Execute(loop.body, inner));
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  // In jinja2 a pass that `break` or `continue` cuts short does not keep `else` from running.
  if (completed || loop.otherwise.empty()) return {};
  return Execute(loop.otherwise, std::make_shared<Scope>(scope)).status();
}

Result<Value> Evaluator::RunLoopAgain(const ForStatement& loop, const ScopePtr& scope,
                                      const Value& items, int depth) {
  const EvaluationDepth guard(depth_);
  SPRY_RETURN_IF_ERROR(guard.Check());
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const Status status = ExecuteFor(loop, scope, items, depth);
  out_ = outer;
  SPRY_RETURN_IF_ERROR(status);
  return runtime_.MakeText(std::move(text));
}

Status Evaluator::ExecuteSet(const SetStatement& set, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*set.value, scope));
  return Assign(set.target, scope, value);
}

Status Evaluator::Assign(const Target& target, const ScopePtr& scope, const Value& value) {
  if (target.kind == Target::Kind::kName) {
    scope->Set(target.name, value);
    return {};
  }
  if (target.kind == Target::Kind::kAttribute) {
    runtime_.set_line(target.line);
    const Value* found = scope->Find(target.name);
    if (found == nullptr) found = variables_.Find(target.name);
    auto* space = found == nullptr ? nullptr : dynamic_cast<Namespace*>(found->object());
    if (space == nullptr) {
      return InvalidArgument(fmt::format(
          "'{}' is given an attribute, which only a namespace can have; found a value of type {}",
          target.name, found == nullptr ? "Undefined" : found->TypeName()));
    }
    if (target.attribute.starts_with('_')) {
      return InvalidArgument(
          fmt::format("an attribute of a namespace must not start with an "
                      "underscore, found '{}'",
                      target.attribute));
    }
    space->attributes().Set(target.attribute, value);
    return {};
  }
  SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime_.ItemsOf(value));
  if (items.size() != target.parts.size()) {
    return InvalidArgument(
        fmt::format("found {} values to assign, expected {}", items.size(), target.parts.size()));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    SPRY_RETURN_IF_ERROR(Assign(target.parts[i], scope, items[i]));
  }
  return {};
}

Result<Evaluator::Flow> Evaluator::ExecuteSetBlock(const SetBlockStatement& set,
                                                   const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  std::string text;
  SPRY_ASSIGN_OR_RETURN(const Flow flow, Capture(set.body, inner, text));
  if (flow != Flow::kNext) return flow;
  SPRY_ASSIGN_OR_RETURN(Value value, runtime_.MakeText(std::move(text)));
  if (set.filter != nullptr) {
    SPRY_ASSIGN_OR_RETURN(value, ApplyFilters(*set.filter, inner, value));
  }
  SPRY_RETURN_IF_ERROR(Assign(set.target, scope, value));
  return flow;
}

Result<Evaluator::Flow> Evaluator::ExecuteFilterBlock(const FilterBlockStatement& block,
                                                      const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  std::string text;
  SPRY_ASSIGN_OR_RETURN(const Flow flow, Capture(block.body, inner, text));
  if (flow != Flow::kNext) return flow;
  SPRY_ASSIGN_OR_RETURN(const Value input, runtime_.MakeText(std::move(text)));
  SPRY_ASSIGN_OR_RETURN(const Value value, ApplyFilters(*block.filter, inner, input));
  SPRY_ASSIGN_OR_RETURN(const std::string filtered, runtime_.ToText(value));
  SPRY_RETURN_IF_ERROR(Write(filtered));
  return flow;
}

Result<Evaluator::Flow> Evaluator::ExecuteWith(const WithStatement& with, const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  for (const auto& [target, expression] : with.variables) {
    SPRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression, scope));
    SPRY_RETURN_IF_ERROR(Assign(target, inner, value));
  }
  return Execute(with.body, inner);
}

Value Evaluator::MakeMacro(const MacroDefinition& macro, const ScopePtr& scope) {
  if (captured_.empty() || captured_.back() != scope) captured_.push_back(scope);
  return Value::Of(std::shared_ptr<Object>(std::make_shared<Macro>(*this, macro, scope)));
}

Status Evaluator::ExecuteCallBlock(const CallBlockStatement& block, const ScopePtr& scope) {
  const Value caller = MakeMacro(block.caller, scope);
  SPRY_ASSIGN_OR_RETURN(const Value value, EvaluateCall(*block.call, scope, &caller));
  SPRY_ASSIGN_OR_RETURN(const std::string text, runtime_.ToText(value));
  return Write(text);
}

// Sorts the arguments of a call into the variables of the macro.
Status Evaluator::BindParameters(const MacroDefinition& macro, Arguments& arguments,
                                 const ScopePtr& scope) {
  const size_t count = macro.parameters.size();
  std::vector<size_t> missing;
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = std::move(arguments.positional[i]);
    } else {
      value = TakeNamed(arguments, name);
    }
    if (!value) missing.push_back(i);
    scope->Set(name, value ? *std::move(value)
                           : Value::Undefined(fmt::format("parameter '{}' is not given", name)));
  }
  if (macro.uses_caller) {
    const std::optional<Value> caller = TakeNamed(arguments, "caller");
    scope->Set("caller", caller ? *caller : Value::Undefined("there is no caller"));
  }
  if (macro.uses_kwargs) {
    Dict dict;
    for (auto& [name, value] : arguments.named) dict.Set(name, std::move(value));
    SPRY_ASSIGN_OR_RETURN(Value kwargs, runtime_.MakeDict(std::move(dict)));
    scope->Set("kwargs", std::move(kwargs));
  } else if (!arguments.named.empty()) {
    return InvalidArgument(fmt::format("the macro '{}' has no parameter '{}' left to give",
                                       macro.name, arguments.named[0].first.substr(0, 100)));
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < arguments.positional.size(); ++i) {
      rest.push_back(std::move(arguments.positional[i]));
    }
    SPRY_ASSIGN_OR_RETURN(Value varargs,
                          runtime_.MakeSequence(SequenceKind::kTuple, std::move(rest)));
    scope->Set("varargs", std::move(varargs));
  } else if (arguments.positional.size() > count) {
    return InvalidArgument(fmt::format("the macro '{}' takes at most {} arguments, found {}",
                                       macro.name, count, arguments.positional.size()));
  }
  const size_t without_default = count - macro.defaults.size();
  for (const size_t i : missing) {
    if (i < without_default) continue;
    SPRY_ASSIGN_OR_RETURN(Value value, Evaluate(*macro.defaults[i - without_default], scope));
    scope->Set(macro.parameters[i], std::move(value));
  }
  return {};
}

Result<Value> Evaluator::CallMacro(const MacroDefinition& macro, const ScopePtr& scope,
                                   Arguments arguments) {
  struct Counter {
    int& depth;
    ~Counter() { --depth; }
  } const counter{++macro_depth_};
  if (macro_depth_ > kMaxMacroDepth) {
    return InvalidArgument(
        fmt::format("macros call each other deeper than the limit of {}", kMaxMacroDepth));
  }
  const auto inner = std::make_shared<Scope>(scope);
  SPRY_RETURN_IF_ERROR(BindParameters(macro, arguments, inner));
  std::string text;
  SPRY_RETURN_IF_ERROR(Capture(macro.body, inner, text).status());
  return runtime_.MakeText(std::move(text));
}

}  // namespace spry::jinja
