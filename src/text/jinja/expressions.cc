// Expressions of the grammar, from the loosest binding to the tightest.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "text/jinja/limits.h"
#include "text/jinja/nesting.h"
#include "text/jinja/parser.h"

namespace spry::jinja {
namespace {

using Kind = Expression::Kind;

int HeightOf(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->height;
}

int HeightBelow(const Expression& expression) {
  int height = std::max(HeightOf(expression.arguments.more_positional),
                        HeightOf(expression.arguments.more_named));
  for (const auto& operand : expression.operands) height = std::max(height, HeightOf(operand));
  for (const auto& value : expression.arguments.positional) {
    height = std::max(height, HeightOf(value));
  }
  for (const auto& [name, value] : expression.arguments.named) {
    height = std::max(height, HeightOf(value));
  }
  return height;
}

template <typename... Operands>
std::vector<ExpressionPtr> Listed(Operands... operands) {
  std::vector<ExpressionPtr> list;
  (list.push_back(std::move(operands)), ...);
  return list;
}

std::optional<CompareOperator> CompareOperatorOf(const Token& token) {
  static constexpr std::pair<std::string_view, CompareOperator> kCompares[] = {
      {"==", CompareOperator::kEqual},  {"!=", CompareOperator::kNotEqual},
      {"<", CompareOperator::kLess},    {"<=", CompareOperator::kLessOrEqual},
      {">", CompareOperator::kGreater}, {">=", CompareOperator::kGreaterOrEqual},
  };
  if (token.kind != TokenKind::kOperator) return {};
  for (const auto& [text, compare] : kCompares) {
    if (token.text == text) return compare;
  }
  return {};
}

}  // namespace

Result<ExpressionPtr> Parser::Make(Expression expression) {
  expression.height = HeightBelow(expression) + 1;
  // Operators in a row make a deep tree without deep recursion here.
  if (expression.height > kMaxTemplateNesting) return TooDeep(expression.line);
  return std::make_unique<Expression>(std::move(expression));
}

void Parser::NoteUnknown(int line, std::string_view what, std::string_view name) {
  if (!soft_) unknown_.push_back(ErrorAt(line, fmt::format("there is no {} '{}'", what, name)));
}

Result<ExpressionPtr> Parser::ParseExpression() { return ParseConditional(); }

// Several expressions with commas are a tuple. `end`: a name that ends it.
Result<ExpressionPtr> Parser::ParseTuple(bool with_condition, bool in_parentheses,
                                         std::string_view end) {
  Expression tuple{.kind = Kind::kTuple, .line = current().line};
  bool comma = false;
  const auto ended = [&] {
    return At(TokenKind::kVariableEnd) || At(TokenKind::kBlockEnd) || AtOperator(")") ||
           (!end.empty() && AtName(end));
  };
  while (!ended()) {
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr part, with_condition ? ParseExpression() : ParseOr());
    tuple.operands.push_back(std::move(part));
    comma = SkipOperator(",");
    if (!comma) break;
  }
  if (tuple.operands.empty() && !in_parentheses) return Unexpected("an expression");
  if (tuple.operands.size() == 1 && !comma) return std::move(tuple.operands[0]);
  return Make(std::move(tuple));
}

Result<ExpressionPtr> Parser::ParseConditional() {
  const Nesting nesting(nesting_);
  SPRY_RETURN_IF_ERROR(nesting.Check(current().line));
  const size_t unknown = unknown_.size();
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  // In any part of a conditional an unknown filter is refused only when it is reached.
  if (AtName("if")) unknown_.resize(unknown);
  while (AtName("if")) {
    Expression conditional{.kind = Kind::kConditional, .line = current().line};
    Skip();
    const bool soft = std::exchange(soft_, true);
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    ExpressionPtr otherwise;
    if (SkipName("else")) {
      SPRY_ASSIGN_OR_RETURN(otherwise, ParseConditional());
    }
    soft_ = soft;
    conditional.operands = Listed(std::move(condition), std::move(value), std::move(otherwise));
    SPRY_ASSIGN_OR_RETURN(value, Make(std::move(conditional)));
  }
  return value;
}

Result<ExpressionPtr> Parser::ParseOr() {
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (AtName("or")) {
    Expression either{.kind = Kind::kOr, .line = current().line};
    Skip();
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    either.operands = Listed(std::move(left), std::move(right));
    SPRY_ASSIGN_OR_RETURN(left, Make(std::move(either)));
  }
  return left;
}

Result<ExpressionPtr> Parser::ParseAnd() {
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (AtName("and")) {
    Expression both{.kind = Kind::kAnd, .line = current().line};
    Skip();
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    both.operands = Listed(std::move(left), std::move(right));
    SPRY_ASSIGN_OR_RETURN(left, Make(std::move(both)));
  }
  return left;
}

Result<ExpressionPtr> Parser::ParseNot() {
  if (!AtName("not")) return ParseCompare();
  const Nesting nesting(nesting_);
  SPRY_RETURN_IF_ERROR(nesting.Check(current().line));
  Expression negation{.kind = Kind::kNot, .line = current().line};
  Skip();
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  negation.operands = Listed(std::move(operand));
  return Make(std::move(negation));
}

Result<ExpressionPtr> Parser::ParseCompare() {
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr left, ParseSum());
  Expression compare{.kind = Kind::kCompare, .line = current().line};
  while (true) {
    std::optional<CompareOperator> op = CompareOperatorOf(current());
    if (AtName("in")) op = CompareOperator::kIn;
    if (AtName("not") && next().kind == TokenKind::kName && next().text == "in") {
      op = CompareOperator::kNotIn;
      Skip();
    }
    if (!op) break;
    Skip();
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr right, ParseSum());
    if (compare.operands.empty()) compare.operands.push_back(std::move(left));
    compare.compares.push_back(*op);
    compare.operands.push_back(std::move(right));
  }
  if (compare.operands.empty()) return left;
  return Make(std::move(compare));
}

Result<ExpressionPtr> Parser::ParseBinary(
    Result<ExpressionPtr> (Parser::*operand)(),
    std::initializer_list<std::pair<std::string_view, BinaryOperator>> operators) {
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr left, (this->*operand)());
  while (true) {
    const auto* found = std::ranges::find_if(
        operators, [&](const auto& candidate) { return AtOperator(candidate.first); });
    if (found == operators.end()) return left;
    Expression binary{.kind = Kind::kBinary, .line = current().line, .op = found->second};
    Skip();
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr right, (this->*operand)());
    binary.operands = Listed(std::move(left), std::move(right));
    SPRY_ASSIGN_OR_RETURN(left, Make(std::move(binary)));
  }
}

Result<ExpressionPtr> Parser::ParseSum() {
  return ParseBinary(&Parser::ParseConcat,
                     {{"+", BinaryOperator::kAdd}, {"-", BinaryOperator::kSubtract}});
}

Result<ExpressionPtr> Parser::ParseConcat() {
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr first, ParseProduct());
  if (!AtOperator("~")) return first;
  Expression concat{.kind = Kind::kConcat, .line = current().line};
  concat.operands.push_back(std::move(first));
  while (SkipOperator("~")) {
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseProduct());
    concat.operands.push_back(std::move(operand));
  }
  return Make(std::move(concat));
}

Result<ExpressionPtr> Parser::ParseProduct() {
  return ParseBinary(&Parser::ParsePower, {{"*", BinaryOperator::kMultiply},
                                           {"//", BinaryOperator::kFloorDivide},
                                           {"/", BinaryOperator::kDivide},
                                           {"%", BinaryOperator::kModulo}});
}

// In jinja2 powers group from the left, unlike Python's.
Result<ExpressionPtr> Parser::ParsePower() {
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr left, ParseUnary(/*with_filters=*/true));
  while (AtOperator("**")) {
    Expression power{.kind = Kind::kBinary, .line = current().line, .op = BinaryOperator::kPower};
    Skip();
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr right, ParseUnary(/*with_filters=*/true));
    power.operands = Listed(std::move(left), std::move(right));
    SPRY_ASSIGN_OR_RETURN(left, Make(std::move(power)));
  }
  return left;
}

Result<ExpressionPtr> Parser::ParseUnary(bool with_filters) {
  ExpressionPtr expression;
  if (AtOperator("-") || AtOperator("+")) {
    const Nesting nesting(nesting_);
    SPRY_RETURN_IF_ERROR(nesting.Check(current().line));
    Expression unary{.kind = AtOperator("-") ? Kind::kNegative : Kind::kPositive,
                     .line = current().line};
    Skip();
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseUnary(/*with_filters=*/false));
    unary.operands = Listed(std::move(operand));
    SPRY_ASSIGN_OR_RETURN(expression, Make(std::move(unary)));
  } else {
    SPRY_ASSIGN_OR_RETURN(expression, ParsePrimary());
  }
  SPRY_ASSIGN_OR_RETURN(expression, ParsePostfix(std::move(expression)));
  return with_filters ? ParseFilters(std::move(expression)) : std::move(expression);
}

Result<ExpressionPtr> Parser::ParseName() {
  const std::string& name = current().text;
  Expression expression{.kind = Kind::kConstant, .line = current().line};
  if (name == "true" || name == "True") {
    expression.value = Value::Bool(true);
  } else if (name == "false" || name == "False") {
    expression.value = Value::Bool(false);
  } else if (name == "none" || name == "None") {
    expression.value = Value::None();
  } else {
    NoteLoad(name);
    expression.kind = Kind::kName;
    expression.name = name;
  }
  Skip();
  return Make(std::move(expression));
}

Result<ExpressionPtr> Parser::ParsePrimary() {
  Expression constant{.kind = Kind::kConstant, .line = current().line};
  switch (current().kind) {
    case TokenKind::kName: return ParseName();
    case TokenKind::kText: {
      std::string text;
      for (; At(TokenKind::kText); Skip()) text += current().text;
      constant.value = Value::String(std::move(text));
      return Make(std::move(constant));
    }
    case TokenKind::kInteger:
      constant.value = Value::Int(current().integer);
      Skip();
      return Make(std::move(constant));
    case TokenKind::kFloat:
      constant.value = Value::Float(current().number);
      Skip();
      return Make(std::move(constant));
    default: break;
  }
  if (AtOperator("[")) return ParseListLiteral();
  if (AtOperator("{")) return ParseDictLiteral();
  if (!SkipOperator("(")) return Unexpected("an expression");
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr inner,
                        ParseTuple(/*with_condition=*/true, /*in_parentheses=*/true));
  SPRY_RETURN_IF_ERROR(ExpectOperator(")"));
  return inner;
}

Result<ExpressionPtr> Parser::ParseListLiteral() {
  Expression list{.kind = Kind::kList, .line = current().line};
  Skip();
  while (!AtOperator("]")) {
    if (!list.operands.empty()) {
      SPRY_RETURN_IF_ERROR(ExpectOperator(","));
      if (AtOperator("]")) break;
    }
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    list.operands.push_back(std::move(item));
  }
  Skip();
  return Make(std::move(list));
}

Result<ExpressionPtr> Parser::ParseDictLiteral() {
  Expression dict{.kind = Kind::kDict, .line = current().line};
  Skip();
  while (!AtOperator("}")) {
    if (!dict.operands.empty()) {
      SPRY_RETURN_IF_ERROR(ExpectOperator(","));
      if (AtOperator("}")) break;
    }
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    SPRY_RETURN_IF_ERROR(ExpectOperator(":"));
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    dict.operands.push_back(std::move(key));
    dict.operands.push_back(std::move(value));
  }
  Skip();
  return Make(std::move(dict));
}

Result<ExpressionPtr> Parser::ParsePostfix(ExpressionPtr expression) {
  while (true) {
    if (AtOperator(".") || AtOperator("[")) {
      SPRY_ASSIGN_OR_RETURN(expression, ParseSubscript(std::move(expression)));
    } else if (AtOperator("(")) {
      Expression call{.kind = Kind::kCall, .line = current().line};
      SPRY_RETURN_IF_ERROR(ParseArguments(call.arguments));
      call.operands = Listed(std::move(expression));
      SPRY_ASSIGN_OR_RETURN(expression, Make(std::move(call)));
    } else {
      return expression;
    }
  }
}

Result<ExpressionPtr> Parser::ParseFilters(ExpressionPtr expression) {
  while (true) {
    if (SkipOperator("|")) {
      SPRY_ASSIGN_OR_RETURN(expression, ParseFilter(std::move(expression)));
    } else if (AtName("is")) {
      SPRY_ASSIGN_OR_RETURN(expression, ParseTest(std::move(expression)));
    } else if (AtOperator("(")) {
      SPRY_ASSIGN_OR_RETURN(expression, ParsePostfix(std::move(expression)));
    } else {
      return expression;
    }
  }
}

Result<std::string> Parser::ParseDottedName() {
  SPRY_ASSIGN_OR_RETURN(std::string name, ExpectName("a name"));
  while (SkipOperator(".")) {
    SPRY_ASSIGN_OR_RETURN(const std::string part, ExpectName("a name"));
    name += "." + part;
  }
  return name;
}

Result<ExpressionPtr> Parser::ParseFilter(ExpressionPtr input) {
  Expression filter{.kind = Kind::kFilter, .line = current().line};
  SPRY_ASSIGN_OR_RETURN(filter.name, ParseDottedName());
  filter.filter = FindFilter(filter.name);
  if (filter.filter == nullptr) NoteUnknown(filter.line, "filter", filter.name);
  if (AtOperator("(")) SPRY_RETURN_IF_ERROR(ParseArguments(filter.arguments));
  filter.operands = Listed(std::move(input));
  return Make(std::move(filter));
}

Result<ExpressionPtr> Parser::ParseTest(ExpressionPtr input) {
  Expression test{.kind = Kind::kTest, .line = current().line};
  Skip();
  const bool negated = SkipName("not");
  SPRY_ASSIGN_OR_RETURN(test.name, ParseDottedName());
  test.test = FindTest(test.name);
  if (test.test == nullptr) NoteUnknown(test.line, "test", test.name);
  const bool ends = AtName("else") || AtName("or") || AtName("and");
  if (AtName("is")) return Unexpected("one test, not several in a row");
  const bool has_argument = At(TokenKind::kText) || At(TokenKind::kInteger) ||
                            At(TokenKind::kFloat) || AtOperator("[") || AtOperator("{") ||
                            (At(TokenKind::kName) && !ends);
  if (AtOperator("(")) {
    SPRY_RETURN_IF_ERROR(ParseArguments(test.arguments));
  } else if (has_argument) {
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    SPRY_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test.arguments.positional.push_back(std::move(argument));
  }
  test.operands = Listed(std::move(input));
  const int line = test.line;
  SPRY_ASSIGN_OR_RETURN(ExpressionPtr made, Make(std::move(test)));
  if (!negated) return made;
  Expression negation{.kind = Kind::kNot, .line = line};
  negation.operands = Listed(std::move(made));
  return Make(std::move(negation));
}

Result<ExpressionPtr> Parser::ParseSubscript(ExpressionPtr expression) {
  Expression subscript{.line = current().line};
  if (SkipOperator(".")) {
    if (At(TokenKind::kName)) {
      subscript.kind = Kind::kAttribute;
      subscript.name = current().text;
      subscript.operands = Listed(std::move(expression));
      Skip();
      return Make(std::move(subscript));
    }
    if (!At(TokenKind::kInteger)) return Unexpected("the name of an attribute");
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr index, ParsePrimary());
    subscript.kind = Kind::kItem;
    subscript.operands = Listed(std::move(expression), std::move(index));
    return Make(std::move(subscript));
  }
  Skip();
  ExpressionPtr parts[3];
  int part = 0;
  for (; part < 3; ++part) {
    if (!AtOperator(":") && !AtOperator("]")) {
      SPRY_ASSIGN_OR_RETURN(parts[part], ParseExpression());
    }
    if (!AtOperator(":") || part == 2) break;
    Skip();
  }
  if (part == 0 && parts[0] == nullptr) return Unexpected("an index");
  if (part == 0 && AtOperator(",")) {
    // Several indices are one key, a tuple.
    Expression key{.kind = Kind::kTuple, .line = current().line};
    key.operands = Listed(std::move(parts[0]));
    while (SkipOperator(",")) {
      SPRY_ASSIGN_OR_RETURN(ExpressionPtr index, ParseExpression());
      key.operands.push_back(std::move(index));
    }
    SPRY_ASSIGN_OR_RETURN(parts[0], Make(std::move(key)));
  }
  if (!AtOperator("]")) return Unexpected("']'");
  Skip();
  if (part == 0) {
    subscript.kind = Kind::kItem;
    subscript.operands = Listed(std::move(expression), std::move(parts[0]));
  } else {
    subscript.kind = Kind::kSlice;
    subscript.operands = Listed(std::move(expression), std::move(parts[0]), std::move(parts[1]),
                                std::move(parts[2]));
  }
  return Make(std::move(subscript));
}

Status Parser::ParseArguments(CallArguments& arguments) {
  SPRY_RETURN_IF_ERROR(ExpectOperator("("));
  bool first = true;
  while (!AtOperator(")")) {
    if (!first) {
      SPRY_RETURN_IF_ERROR(ExpectOperator(","));
      if (AtOperator(")")) break;
    }
    first = false;
    const int line = current().line;
    const bool plain = arguments.more_positional == nullptr && arguments.more_named == nullptr;
    if (SkipOperator("*")) {
      if (!plain) return ErrorAt(line, "found '*' after another '*' or '**' in a call");
      SPRY_ASSIGN_OR_RETURN(arguments.more_positional, ParseExpression());
    } else if (SkipOperator("**")) {
      if (arguments.more_named != nullptr) return ErrorAt(line, "found '**' twice in a call");
      SPRY_ASSIGN_OR_RETURN(arguments.more_named, ParseExpression());
    } else if (At(TokenKind::kName) && next().kind == TokenKind::kOperator && next().text == "=") {
      if (arguments.more_named != nullptr)
        return ErrorAt(line, "found a name after '**' in a call");
      std::string name = current().text;
      Skip();
      Skip();
      SPRY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      arguments.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!plain || !arguments.named.empty()) {
        return ErrorAt(line, "found a value without a name after those with names in a call");
      }
      SPRY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      arguments.positional.push_back(std::move(value));
    }
  }
  Skip();
  return {};
}

}  // namespace spry::jinja
