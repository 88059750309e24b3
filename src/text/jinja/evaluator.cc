// Expressions.
#include "text/jinja/evaluator.h"

#include <fmt/format.h>

#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/compare.h"
#include "text/jinja/evaluation_depth.h"
#include "text/jinja/limits.h"
#include "text/jinja/operators.h"

namespace spry::jinja {

using Kind = Expression::Kind;

namespace {

Result<bool> Negated(Result<bool> value) { return value.ok() ? Result<bool>(!*value) : value; }

}  // namespace

Evaluator::Evaluator(Runtime& runtime, const Dict& variables)
    : runtime_(runtime), variables_(variables) {}

Evaluator::~Evaluator() {
  for (const ScopePtr& scope : captured_) scope->Clear();
}

Result<Value> Evaluator::Evaluate(const Expression& expression, const ScopePtr& scope) {
  const EvaluationDepth depth(depth_);
  SPRY_RETURN_IF_ERROR(depth.Check());
  SPRY_RETURN_IF_ERROR(runtime_.Charge(1));
  return EvaluateKind(expression, scope);
}

Result<Value> Evaluator::EvaluateKind(const Expression& expression, const ScopePtr& scope) {
  switch (expression.kind) {
    case Kind::kConstant: return expression.value;
    case Kind::kName: return EvaluateName(expression, scope);
    case Kind::kAttribute:
    case Kind::kItem: return EvaluateItem(expression, scope);
    case Kind::kSlice: return EvaluateSlice(expression, scope);
    case Kind::kCall: return EvaluateCall(expression, scope, /*caller=*/nullptr);
    case Kind::kFilter: {
      SPRY_ASSIGN_OR_RETURN(const Value input, Evaluate(*expression.operands[0], scope));
      return ApplyFilter(expression, scope, input);
    }
    case Kind::kTest: return EvaluateTest(expression, scope);
    case Kind::kNot: {
      SPRY_ASSIGN_OR_RETURN(const bool value, IsTrueAt(*expression.operands[0], scope));
      return Value::Bool(!value);
    }
    case Kind::kNegative:
    case Kind::kPositive: {
      SPRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0], scope));
      runtime_.set_line(expression.line);
      return expression.kind == Kind::kNegative ? Negative(value) : Positive(value);
    }
    case Kind::kBinary: return EvaluateBinary(expression, scope);
    case Kind::kConcat: return EvaluateConcat(expression, scope);
    case Kind::kAnd:
    case Kind::kOr: return EvaluateLogic(expression, scope);
    case Kind::kCompare: return EvaluateCompare(expression, scope);
    case Kind::kConditional: return EvaluateConditional(expression, scope);
    case Kind::kList:
    case Kind::kTuple: return EvaluateList(expression, scope);
    case Kind::kDict: return EvaluateDict(expression, scope);
  }
  return Internal("an expression of a kind that is unknown");
}

Result<Value> Evaluator::EvaluateName(const Expression& expression, const ScopePtr& scope) const {
  if (const Value* found = scope->Find(expression.name)) return *found;
  if (const Value* found = variables_.Find(expression.name)) return *found;
  if (const Value* found = GlobalFunctions().Find(expression.name)) return *found;
  return Value::Undefined(fmt::format("'{}' is undefined", expression.name.substr(0, 100)));
}

Result<Value> Evaluator::EvaluateItem(const Expression& expression, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0], scope));
  if (expression.kind == Kind::kAttribute) {
    runtime_.set_line(expression.line);
    return runtime_.GetAttribute(value, expression.name);
  }
  SPRY_ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.operands[1], scope));
  runtime_.set_line(expression.line);
  return runtime_.GetItem(value, key);
}

Result<Value> Evaluator::EvaluateSlice(const Expression& expression, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0], scope));
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    parts[i] = Value::None();
    if (expression.operands[i + 1] == nullptr) continue;
    SPRY_ASSIGN_OR_RETURN(parts[i], Evaluate(*expression.operands[i + 1], scope));
  }
  runtime_.set_line(expression.line);
  return Slice(runtime_, value, {.start = parts[0], .stop = parts[1], .step = parts[2]});
}

Result<Arguments> Evaluator::EvaluateArguments(const CallArguments& arguments,
                                               const ScopePtr& scope) {
  Arguments values;
  values.positional.reserve(arguments.positional.size());
  for (const auto& argument : arguments.positional) {
    SPRY_ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    values.positional.push_back(std::move(value));
  }
  if (arguments.more_positional != nullptr) {
    SPRY_ASSIGN_OR_RETURN(const Value more, Evaluate(*arguments.more_positional, scope));
    SPRY_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime_.ItemsOf(more));
    values.positional.insert(values.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, argument] : arguments.named) {
    SPRY_ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    values.named.emplace_back(name, std::move(value));
  }
  if (arguments.more_named != nullptr) {
    SPRY_ASSIGN_OR_RETURN(const Value more, Evaluate(*arguments.more_named, scope));
    if (more.dict() == nullptr) return InvalidArgument("'**' in a call needs a dict");
    SPRY_RETURN_IF_ERROR(runtime_.Charge(static_cast<int64_t>(more.dict()->entries().size())));
    for (const auto& [key, value] : more.dict()->entries()) {
      if (key.text() == nullptr) return InvalidArgument("'**' in a call needs strings as keys");
      values.named.emplace_back(key.text()->bytes, value);
    }
  }
  return values;
}

Result<Value> Evaluator::EvaluateCall(const Expression& expression, const ScopePtr& scope,
                                      const Value* caller) {
  SPRY_ASSIGN_OR_RETURN(const Value callee, Evaluate(*expression.operands[0], scope));
  SPRY_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression.arguments, scope));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  runtime_.set_line(expression.line);
  return runtime_.Call(callee, std::move(arguments));
}

Result<Value> Evaluator::ApplyFilter(const Expression& expression, const ScopePtr& scope,
                                     const Value& input) {
  if (expression.filter == nullptr) {
    runtime_.set_line(expression.line);
    return InvalidArgument(fmt::format("there is no filter '{}'", expression.name));
  }
  SPRY_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression.arguments, scope));
  runtime_.set_line(expression.line);
  return expression.filter->function(runtime_, input, arguments);
}

Result<Value> Evaluator::ApplyFilters(const Expression& expression, const ScopePtr& scope,
                                      const Value& input) {
  const EvaluationDepth depth(depth_);
  SPRY_RETURN_IF_ERROR(depth.Check());
  if (expression.operands[0] == nullptr) return ApplyFilter(expression, scope, input);
  SPRY_ASSIGN_OR_RETURN(const Value inner, ApplyFilters(*expression.operands[0], scope, input));
  return ApplyFilter(expression, scope, inner);
}

Result<Value> Evaluator::EvaluateTest(const Expression& expression, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(const Value input, Evaluate(*expression.operands[0], scope));
  if (expression.test == nullptr) {
    runtime_.set_line(expression.line);
    return InvalidArgument(fmt::format("there is no test '{}'", expression.name));
  }
  SPRY_ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(expression.arguments, scope));
  runtime_.set_line(expression.line);
  SPRY_ASSIGN_OR_RETURN(const bool passes, expression.test->function(runtime_, input, arguments));
  return Value::Bool(passes);
}

Result<Value> Evaluator::EvaluateBinary(const Expression& expression, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(const Value left, Evaluate(*expression.operands[0], scope));
  SPRY_ASSIGN_OR_RETURN(const Value right, Evaluate(*expression.operands[1], scope));
  runtime_.set_line(expression.line);
  return Apply(runtime_, expression.op, left, right);
}

Result<Value> Evaluator::EvaluateConcat(const Expression& expression, const ScopePtr& scope) {
  std::string joined;
  for (const auto& operand : expression.operands) {
    SPRY_ASSIGN_OR_RETURN(const Value value, Evaluate(*operand, scope));
    runtime_.set_line(expression.line);
    SPRY_ASSIGN_OR_RETURN(const std::string text, runtime_.ToText(value));
    joined += text;
    SPRY_RETURN_IF_ERROR(runtime_.CheckText(joined.size()));
  }
  return runtime_.MakeText(std::move(joined));
}

Result<Value> Evaluator::EvaluateLogic(const Expression& expression, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0], scope));
  const bool decided = IsTrue(left) == (expression.kind == Kind::kOr);
  return decided ? Result<Value>(std::move(left)) : Evaluate(*expression.operands[1], scope);
}

Result<Value> Evaluator::EvaluateCompare(const Expression& expression, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0], scope));
  for (size_t i = 0; i < expression.compares.size(); ++i) {
    SPRY_ASSIGN_OR_RETURN(Value right, Evaluate(*expression.operands[i + 1], scope));
    runtime_.set_line(expression.line);
    Result<bool> holds = false;
    switch (expression.compares[i]) {
      case CompareOperator::kEqual: holds = runtime_.Equal(left, right); break;
      case CompareOperator::kNotEqual: holds = Negated(runtime_.Equal(left, right)); break;
      case CompareOperator::kLess: holds = runtime_.Less(left, right); break;
      case CompareOperator::kGreater: holds = runtime_.Less(right, left); break;
      case CompareOperator::kLessOrEqual: holds = runtime_.LessOrEqual(left, right); break;
      case CompareOperator::kGreaterOrEqual: holds = runtime_.LessOrEqual(right, left); break;
      case CompareOperator::kIn:
      case CompareOperator::kNotIn: holds = Contains(runtime_, right, left); break;
    }
    if (!holds.ok()) return holds.status();
    if (*holds == (expression.compares[i] == CompareOperator::kNotIn)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> Evaluator::EvaluateConditional(const Expression& expression, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(const bool condition, IsTrueAt(*expression.operands[0], scope));
  if (condition) return Evaluate(*expression.operands[1], scope);
  if (expression.operands[2] != nullptr) return Evaluate(*expression.operands[2], scope);
  return Value::Undefined("the condition of an 'if' without an 'else' is false");
}

Result<Value> Evaluator::EvaluateList(const Expression& expression, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(expression.operands.size());
  for (const auto& operand : expression.operands) {
    SPRY_ASSIGN_OR_RETURN(Value item, Evaluate(*operand, scope));
    items.push_back(std::move(item));
  }
  runtime_.set_line(expression.line);
  const bool list = expression.kind == Kind::kList;
  return runtime_.MakeSequence(list ? SequenceKind::kList : SequenceKind::kTuple, std::move(items));
}

Result<Value> Evaluator::EvaluateDict(const Expression& expression, const ScopePtr& scope) {
  Dict dict;
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    SPRY_ASSIGN_OR_RETURN(Value key, Evaluate(*expression.operands[i], scope));
    SPRY_ASSIGN_OR_RETURN(Value value, Evaluate(*expression.operands[i + 1], scope));
    runtime_.set_line(expression.line);
    SPRY_RETURN_IF_ERROR(runtime_.CheckKey(key));
    dict.Set(std::move(key), std::move(value));
  }
  return runtime_.MakeDict(std::move(dict));
}

Result<bool> Evaluator::IsTrueAt(const Expression& expression, const ScopePtr& scope) {
  SPRY_ASSIGN_OR_RETURN(const Value value, Evaluate(expression, scope));
  return IsTrue(value);
}

}  // namespace spry::jinja
