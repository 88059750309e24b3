// A template as a tree. Immutable once parsed; any number of renderings may read one.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace spry::jinja {

enum class CompareOperator {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *x
  ExpressionPtr more_named;       // **x
};

struct Expression {
  enum class Kind {
    kConstant,     // value
    kName,         // name
    kAttribute,    // operands[0].name
    kItem,         // operands[0][operands[1]]
    kSlice,        // operands[0][operands[1]:operands[2]:operands[3]], each may be null
    kCall,         // operands[0](arguments)
    kFilter,       // operands[0] | filter(arguments); operands[0] is null in a filter block
    kTest,         // operands[0] is test(arguments)
    kNot,          // not operands[0]
    kNegative,     // -operands[0]
    kPositive,     // +operands[0]
    kBinary,       // operands[0] op operands[1]
    kConcat,       // operands, joined by ~
    kAnd,          // two operands
    kOr,           // two operands
    kCompare,      // operands[0] compares[0] operands[1] compares[1] ...
    kConditional,  // operands[1] if operands[0] else operands[2], which may be null
    kList,         // operands
    kTuple,        // operands
    kDict,         // key, value, key, value ...
  };

  Kind kind = Kind::kConstant;
  int line = 1;
  int height = 1;  // of the tree below
  std::string name;
  Value value;
  std::vector<ExpressionPtr> operands;
  CallArguments arguments;
  BinaryOperator op = BinaryOperator::kAdd;
  std::vector<CompareOperator> compares;
  const Filter* filter = nullptr;  // null: unknown, which is an error when it is reached
  const Test* test = nullptr;
};

// What a value may be assigned to.
struct Target {
  enum class Kind { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  int line = 1;
  std::string name;
  std::string attribute;  // of a namespace
  std::vector<Target> parts;
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct TextStatement {
  std::string text;
};
struct OutputStatement {
  ExpressionPtr expression;
};
struct IfStatement {
  struct Branch {
    ExpressionPtr condition;  // null: else
    Block body;
  };
  std::vector<Branch> branches;
};
struct ForStatement {
  Target target;
  ExpressionPtr items;
  ExpressionPtr condition;  // null: none
  bool recursive = false;
  Block body;
  Block otherwise;
};
struct SetStatement {
  Target target;
  ExpressionPtr value;
};
struct SetBlockStatement {
  Target target;
  ExpressionPtr filter;  // null: none
  Block body;
};
struct FilterBlockStatement {
  ExpressionPtr filter;
  Block body;
};
struct WithStatement {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Block body;
};
// The parameters and the body of a macro or of a call block.
struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  Block body;
};
struct MacroStatement {
  MacroDefinition macro;
};
struct CallBlockStatement {
  ExpressionPtr call;
  MacroDefinition caller;
};
// {% generation %}: what it holds is output, and what is set in it stays in it.
struct GenerationStatement {
  Block body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  int line = 1;
  std::variant<TextStatement, OutputStatement, IfStatement, ForStatement, SetStatement,
               SetBlockStatement, FilterBlockStatement, WithStatement, MacroStatement,
               CallBlockStatement, GenerationStatement, BreakStatement, ContinueStatement>
      form;
};

}  // namespace spry::jinja
