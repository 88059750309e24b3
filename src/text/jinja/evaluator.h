// Runs a parsed template once. Private to this folder; template.h is the way in.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/jinja/runtime.h"
#include "text/jinja/scope.h"
#include "text/jinja/syntax.h"

namespace spry::jinja {

class Evaluator {
 public:
  // All must outlive this.
  Evaluator(Runtime& runtime, const Dict& variables);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  Result<std::string> Run(const Block& block);

  // For macros and loops, when they are called.
  Result<Value> CallMacro(const MacroDefinition& macro, const ScopePtr& scope, Arguments arguments);
  Result<Value> RunLoopAgain(const ForStatement& loop, const ScopePtr& scope, const Value& items,
                             int depth);

 private:
  enum class Flow { kNext, kBreak, kContinue };

  // statements.cc
  Result<Flow> Execute(const Block& block, const ScopePtr& scope);
  Result<Flow> ExecuteOne(const Statement& statement, const ScopePtr& scope);
  Status Output(const OutputStatement& output, const ScopePtr& scope);
  Result<Flow> ExecuteIf(const IfStatement& statement, const ScopePtr& scope);
  Status ExecuteFor(const ForStatement& loop, const ScopePtr& scope, const Value& items, int depth);
  Status ExecuteSet(const SetStatement& set, const ScopePtr& scope);
  Result<Flow> ExecuteSetBlock(const SetBlockStatement& set, const ScopePtr& scope);
  Result<Flow> ExecuteFilterBlock(const FilterBlockStatement& block, const ScopePtr& scope);
  Result<Flow> ExecuteWith(const WithStatement& with, const ScopePtr& scope);
  Status ExecuteCallBlock(const CallBlockStatement& block, const ScopePtr& scope);
  Status Assign(const Target& target, const ScopePtr& scope, const Value& value);
  Status Write(std::string_view text);
  // What `block` writes, apart.
  Result<Flow> Capture(const Block& block, const ScopePtr& scope, std::string& text);
  Value MakeMacro(const MacroDefinition& macro, const ScopePtr& scope);
  Status BindParameters(const MacroDefinition& macro, Arguments& arguments, const ScopePtr& scope);

  // evaluator.cc
  Result<Value> Evaluate(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateKind(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateName(const Expression& expression, const ScopePtr& scope) const;
  Result<Value> EvaluateItem(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateSlice(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateCall(const Expression& expression, const ScopePtr& scope,
                             const Value* caller);
  Result<Value> ApplyFilter(const Expression& expression, const ScopePtr& scope,
                            const Value& input);
  // The filters of a block, whose innermost input is `input`.
  Result<Value> ApplyFilters(const Expression& expression, const ScopePtr& scope,
                             const Value& input);
  Result<Value> EvaluateTest(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateBinary(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateConcat(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateLogic(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateCompare(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateConditional(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateList(const Expression& expression, const ScopePtr& scope);
  Result<Value> EvaluateDict(const Expression& expression, const ScopePtr& scope);
  Result<bool> IsTrueAt(const Expression& expression, const ScopePtr& scope);
  Result<Arguments> EvaluateArguments(const CallArguments& arguments, const ScopePtr& scope);

  Runtime& runtime_;
  const Dict& variables_;
  std::string* out_ = nullptr;
  int depth_ = 0;
  int macro_depth_ = 0;
  // Scopes that macros refer to. A macro lies in a scope itself, so it cannot own one.
  std::vector<ScopePtr> captured_;
};

}  // namespace spry::jinja
