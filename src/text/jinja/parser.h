// Tokens into a tree, by jinja2's grammar. Nesting is limited, so that no template can overflow the
// stack, here or where the tree is used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"

namespace spry::jinja {

// Errors name the line, what was found and what was expected. Tags and filters that would need
// other files, and unknown ones, are refused by name.
Result<Block> ParseTemplate(std::string_view source);

// Private to the parser's .cc files.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Result<Block> Run();

 private:
  // parser.cc: statements.
  Result<Block> ParseBlock(std::initializer_list<std::string_view> ends);
  Result<std::unique_ptr<Statement>> ParseStatement();
  // The body of a statement, from after its head to one of `ends`, which is passed over.
  Result<Block> ParseBody(std::initializer_list<std::string_view> ends, std::string& end);
  Result<Statement> ParseFor();
  Result<Statement> ParseIf();
  Result<Statement> ParseSet();
  Result<Statement> ParseWith();
  Result<Statement> ParseMacro();
  Result<Statement> ParseCallBlock();
  Result<Statement> ParseFilterBlock();
  Result<Statement> ParseGeneration();
  Status ParsePrint(Block& block);
  Status ParseSignature(MacroDefinition& macro);
  Status ParseMacroBody(MacroDefinition& macro, std::string_view end);
  Result<Target> ParseTarget(bool may_be_attribute, std::string_view end = {});
  Result<Target> ParseTargetPart(bool may_be_attribute);
  Status CheckTargetName(std::string_view name, int line) const;

  // expressions.cc
  Result<ExpressionPtr> ParseExpression();
  Result<ExpressionPtr> ParseTuple(bool with_condition, bool in_parentheses,
                                   std::string_view end = {});
  Result<ExpressionPtr> ParseConditional();
  Result<ExpressionPtr> ParseOr();
  Result<ExpressionPtr> ParseAnd();
  Result<ExpressionPtr> ParseNot();
  Result<ExpressionPtr> ParseCompare();
  Result<ExpressionPtr> ParseSum();
  Result<ExpressionPtr> ParseConcat();
  Result<ExpressionPtr> ParseProduct();
  Result<ExpressionPtr> ParsePower();
  Result<ExpressionPtr> ParseUnary(bool with_filters);
  Result<ExpressionPtr> ParsePrimary();
  Result<ExpressionPtr> ParseName();
  Result<ExpressionPtr> ParseListLiteral();
  Result<ExpressionPtr> ParseDictLiteral();
  Result<ExpressionPtr> ParsePostfix(ExpressionPtr expression);
  Result<ExpressionPtr> ParseFilters(ExpressionPtr expression);
  Result<ExpressionPtr> ParseFilter(ExpressionPtr input);
  Result<ExpressionPtr> ParseTest(ExpressionPtr input);
  Result<ExpressionPtr> ParseSubscript(ExpressionPtr expression);
  Status ParseArguments(CallArguments& arguments);
  Result<ExpressionPtr> ParseBinary(
      Result<ExpressionPtr> (Parser::*operand)(),
      std::initializer_list<std::pair<std::string_view, BinaryOperator>> operators);
  Result<std::string> ParseDottedName();

  Result<ExpressionPtr> Make(Expression expression);

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Skip() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool At(TokenKind kind) const { return current().kind == kind; }
  bool AtOperator(std::string_view text) const {
    return At(TokenKind::kOperator) && current().text == text;
  }
  bool AtName(std::string_view text) const {
    return At(TokenKind::kName) && current().text == text;
  }
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  Status ExpectOperator(std::string_view text);
  Status Expect(TokenKind kind, std::string_view what);
  Result<std::string> ExpectName(std::string_view what);
  Status Unexpected(std::string_view expected) const;
  // A load of a name, for macros that use caller, varargs or kwargs.
  void NoteLoad(std::string_view name);
  void NoteStore(std::string_view name);
  // An unknown filter or test. Within an `if` jinja2 refuses it only when it is reached, and
  // templates rely on that.
  void NoteUnknown(int line, std::string_view what, std::string_view name);

  // The macros around what is parsed, innermost last: which special names they use, and which they
  // have assigned to.
  struct SpecialNames {
    std::vector<std::string> loaded;
    std::vector<std::string> stored;
  };

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;      // around what is parsed, within the innermost macro
  bool soft_ = false;  // within an `if`
  std::vector<Status> unknown_;
  std::vector<SpecialNames> macros_;
};

}  // namespace spry::jinja
