// Statements of the grammar.
#include "text/jinja/parser.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "text/jinja/limits.h"
#include "text/jinja/nesting.h"

namespace spry::jinja {
namespace {

// Tags of jinja2 that need other templates, or change what this evaluator keeps fixed.
constexpr std::string_view kRefusedTags[] = {"autoescape", "block",  "extends",
                                             "from",       "import", "include"};

template <typename Form>
Statement Of(Form form) {
  Statement statement;
  statement.form = std::move(form);
  return statement;
}

}  // namespace

bool Parser::SkipOperator(std::string_view text) {
  if (!AtOperator(text)) return false;
  Skip();
  return true;
}

bool Parser::SkipName(std::string_view text) {
  if (!AtName(text)) return false;
  Skip();
  return true;
}

Status Parser::Unexpected(std::string_view expected) const {
  return ErrorAt(current().line,
                 fmt::format("found {}, expected {}", Describe(current()), expected));
}

Status Parser::ExpectOperator(std::string_view text) {
  return SkipOperator(text) ? Status() : Unexpected(fmt::format("'{}'", text));
}

Status Parser::Expect(TokenKind kind, std::string_view what) {
  if (!At(kind)) return Unexpected(what);
  Skip();
  return {};
}

Result<std::string> Parser::ExpectName(std::string_view what) {
  if (!At(TokenKind::kName)) return Unexpected(what);
  std::string name = current().text;
  Skip();
  return name;
}

void Parser::NoteLoad(std::string_view name) {
  if (name != "caller" && name != "varargs" && name != "kwargs") return;
  for (SpecialNames& macro : macros_) {
    if (std::ranges::find(macro.stored, name) == macro.stored.end()) {
      macro.loaded.emplace_back(name);
    }
  }
}

void Parser::NoteStore(std::string_view name) {
  for (SpecialNames& macro : macros_) {
    if (name == "caller" || name == "varargs" || name == "kwargs") macro.stored.emplace_back(name);
  }
}

Result<Block> ParseTemplate(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return InvalidArgument(fmt::format("the chat template has {} bytes; the limit is {}",
                                       source.size(), kMaxTemplateBytes));
  }
  SPRY_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

Result<Block> Parser::Run() {
  SPRY_ASSIGN_OR_RETURN(Block block, ParseBlock({}));
  if (!unknown_.empty()) return unknown_.front();
  return block;
}

// Up to a tag of `ends`, whose name is then the current token, or to the end of the template.
Result<Block> Parser::ParseBlock(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(nesting_);
  SPRY_RETURN_IF_ERROR(nesting.Check(current().line));
  Block block;
  while (!At(TokenKind::kEnd)) {
    const int line = current().line;
    if (At(TokenKind::kData)) {
      block.push_back(std::make_unique<Statement>(Of(TextStatement{current().text})));
      Skip();
    } else if (At(TokenKind::kVariableBegin)) {
      Skip();
      SPRY_ASSIGN_OR_RETURN(ExpressionPtr expression,
                            ParseTuple(/*with_condition=*/true, /*in_parentheses=*/false));
      block.push_back(std::make_unique<Statement>(Of(OutputStatement{std::move(expression)})));
      SPRY_RETURN_IF_ERROR(Expect(TokenKind::kVariableEnd, "'}}'"));
    } else {
      SPRY_RETURN_IF_ERROR(Expect(TokenKind::kBlockBegin, "'{%'"));
      const bool ended = At(TokenKind::kName) &&
                         std::ranges::find(ends, std::string_view(current().text)) != ends.end();
      if (ended) return block;
      if (SkipName("print")) {
        SPRY_RETURN_IF_ERROR(ParsePrint(block));
      } else {
        SPRY_ASSIGN_OR_RETURN(auto statement, ParseStatement());
        block.push_back(std::move(statement));
      }
      SPRY_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd, "'%}'"));
    }
    if (!block.empty()) block.back()->line = line;
  }
  if (ends.size() > 0) return Unexpected(fmt::format("'{}'", fmt::join(ends, "' or '")));
  return block;
}

Result<Block> Parser::ParseBody(std::initializer_list<std::string_view> ends, std::string& end) {
  SkipOperator(":");
  SPRY_RETURN_IF_ERROR(Expect(TokenKind::kBlockEnd, "'%}'"));
  SPRY_ASSIGN_OR_RETURN(Block block, ParseBlock(ends));
  end = current().text;
  Skip();
  return block;
}

Result<std::unique_ptr<Statement>> Parser::ParseStatement() {
  const int line = current().line;
  SPRY_ASSIGN_OR_RETURN(const std::string tag, ExpectName("the name of a tag"));
  Result<Statement> statement = Statement();
  if (tag == "for") {
    statement = ParseFor();
  } else if (tag == "if") {
    statement = ParseIf();
  } else if (tag == "set") {
    statement = ParseSet();
  } else if (tag == "with") {
    statement = ParseWith();
  } else if (tag == "macro") {
    statement = ParseMacro();
  } else if (tag == "call") {
    statement = ParseCallBlock();
  } else if (tag == "filter") {
    statement = ParseFilterBlock();
  } else if (tag == "generation") {
    statement = ParseGeneration();
  } else if (tag == "break" || tag == "continue") {
    if (loops_ == 0) return ErrorAt(line, fmt::format("found '{}' outside of a loop", tag));
    statement = tag == "break" ? Of(BreakStatement()) : Of(ContinueStatement());
  } else if (std::ranges::find(kRefusedTags, tag) != std::end(kRefusedTags)) {
    return ErrorAt(line, fmt::format("the tag '{}' is not supported in chat templates", tag));
  } else {
    return ErrorAt(line, fmt::format("found '{}', expected the name of a tag or the end of an "
                                     "open one",
                                     tag.substr(0, 100)));
  }
  if (!statement.ok()) return statement.status();
  return std::make_unique<Statement>(*std::move(statement));
}

Status Parser::CheckTargetName(std::string_view name, int line) const {
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) return ErrorAt(line, fmt::format("'{}' cannot be assigned to", name));
  }
  return {};
}

Result<Target> Parser::ParseTargetPart(bool may_be_attribute) {
  const Nesting nesting(nesting_);
  SPRY_RETURN_IF_ERROR(nesting.Check(current().line));
  Target target;
  target.line = current().line;
  if (SkipOperator("(")) {
    SPRY_ASSIGN_OR_RETURN(target, ParseTarget(may_be_attribute, ")"));
    SPRY_RETURN_IF_ERROR(ExpectOperator(")"));
    return target;
  }
  SPRY_ASSIGN_OR_RETURN(target.name, ExpectName("a name to assign to"));
  SPRY_RETURN_IF_ERROR(CheckTargetName(target.name, target.line));
  if (may_be_attribute && SkipOperator(".")) {
    SPRY_ASSIGN_OR_RETURN(target.attribute, ExpectName("the name of an attribute"));
    target.kind = Target::Kind::kAttribute;
    return target;
  }
  NoteStore(target.name);
  return target;
}

// One target or several with commas, up to the name or operator `end`.
Result<Target> Parser::ParseTarget(bool may_be_attribute, std::string_view end) {
  const auto ended = [&] {
    return At(TokenKind::kBlockEnd) || AtOperator("=") ||
           (!end.empty() && (AtName(end) || AtOperator(end)));
  };
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.line = current().line;
  bool comma = false;
  while (!ended()) {
    if (!tuple.parts.empty() && !comma) break;
    SPRY_ASSIGN_OR_RETURN(Target part, ParseTargetPart(may_be_attribute));
    tuple.parts.push_back(std::move(part));
    comma = SkipOperator(",");
    if (!comma) break;
  }
  if (tuple.parts.empty()) return Unexpected("a name to assign to");
  if (tuple.parts.size() > 1 || comma) return tuple;
  Target single = std::move(tuple.parts[0]);
  return single;
}

Result<Statement> Parser::ParseFor() {
  ForStatement loop;
  SPRY_ASSIGN_OR_RETURN(loop.target, ParseTarget(/*may_be_attribute=*/false, "in"));
  if (loop.target.kind == Target::Kind::kName && loop.target.name == "loop") {
    return ErrorAt(loop.target.line, "'loop' cannot be assigned to in a loop");
  }
  if (!SkipName("in")) return Unexpected("'in'");
  SPRY_ASSIGN_OR_RETURN(
      loop.items, ParseTuple(/*with_condition=*/false, /*in_parentheses=*/false, "recursive"));
  const bool soft = std::exchange(soft_, false);
  if (SkipName("if")) {
    SPRY_ASSIGN_OR_RETURN(loop.condition, ParseExpression());
  }
  loop.recursive = SkipName("recursive");
  ++loops_;
  std::string end;
  SPRY_ASSIGN_OR_RETURN(loop.body, ParseBody({"endfor", "else"}, end));
  --loops_;
  if (end == "else") {
    SPRY_ASSIGN_OR_RETURN(loop.otherwise, ParseBody({"endfor"}, end));
  }
  soft_ = soft;
  return Of(std::move(loop));
}

Result<Statement> Parser::ParseIf() {
  IfStatement statement;
  const bool soft = std::exchange(soft_, true);
  std::string end = "if";
  while (end != "endif") {
    IfStatement::Branch branch;
    if (end != "else") {
      SPRY_ASSIGN_OR_RETURN(branch.condition,
                            ParseTuple(/*with_condition=*/false, /*in_parentheses=*/false));
    }
    if (end == "else") {
      SPRY_ASSIGN_OR_RETURN(branch.body, ParseBody({"endif"}, end));
    } else {
      SPRY_ASSIGN_OR_RETURN(branch.body, ParseBody({"elif", "else", "endif"}, end));
    }
    statement.branches.push_back(std::move(branch));
  }
  soft_ = soft;
  return Of(std::move(statement));
}

Result<Statement> Parser::ParseSet() {
  SPRY_ASSIGN_OR_RETURN(Target target, ParseTarget(/*may_be_attribute=*/true));
  if (SkipOperator("=")) {
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr value,
                          ParseTuple(/*with_condition=*/true, /*in_parentheses=*/false));
    return Of(SetStatement{std::move(target), std::move(value)});
  }
  SetBlockStatement block;
  block.target = std::move(target);
  while (SkipOperator("|")) {
    SPRY_ASSIGN_OR_RETURN(block.filter, ParseFilter(std::move(block.filter)));
  }
  const bool soft = std::exchange(soft_, false);
  std::string end;
  SPRY_ASSIGN_OR_RETURN(block.body, ParseBody({"endset"}, end));
  soft_ = soft;
  return Of(std::move(block));
}

Result<Statement> Parser::ParseWith() {
  WithStatement with;
  while (!At(TokenKind::kBlockEnd)) {
    if (!with.variables.empty()) SPRY_RETURN_IF_ERROR(ExpectOperator(","));
    SPRY_ASSIGN_OR_RETURN(Target target, ParseTargetPart(/*may_be_attribute=*/false));
    SPRY_RETURN_IF_ERROR(ExpectOperator("="));
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    with.variables.emplace_back(std::move(target), std::move(value));
  }
  const bool soft = std::exchange(soft_, false);
  std::string end;
  SPRY_ASSIGN_OR_RETURN(with.body, ParseBody({"endwith"}, end));
  soft_ = soft;
  return Of(std::move(with));
}

Status Parser::ParseSignature(MacroDefinition& macro) {
  SPRY_RETURN_IF_ERROR(ExpectOperator("("));
  while (!AtOperator(")")) {
    if (!macro.parameters.empty()) SPRY_RETURN_IF_ERROR(ExpectOperator(","));
    const int line = current().line;
    SPRY_ASSIGN_OR_RETURN(std::string name, ExpectName("the name of a parameter"));
    SPRY_RETURN_IF_ERROR(CheckTargetName(name, line));
    if (std::ranges::find(macro.parameters, name) != macro.parameters.end()) {
      return ErrorAt(line, fmt::format("a macro has two parameters '{}'", name));
    }
    NoteStore(name);
    macro.parameters.push_back(std::move(name));
    if (SkipOperator("=")) {
      SPRY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      macro.defaults.push_back(std::move(value));
    } else if (!macro.defaults.empty()) {
      return ErrorAt(line, "a parameter without a default follows one that has a default");
    }
  }
  return ExpectOperator(")");
}

Status Parser::ParseMacroBody(MacroDefinition& macro, std::string_view end) {
  const int loops = std::exchange(loops_, 0);
  const bool soft = std::exchange(soft_, false);
  macros_.emplace_back();
  std::string found_end;
  SPRY_ASSIGN_OR_RETURN(macro.body, ParseBody({end}, found_end));
  const SpecialNames names = std::move(macros_.back());
  macros_.pop_back();
  const auto uses = [&](std::string_view name) {
    return std::ranges::find(names.loaded, name) != names.loaded.end() &&
           std::ranges::find(macro.parameters, name) == macro.parameters.end();
  };
  macro.uses_caller = uses("caller");
  macro.uses_varargs = uses("varargs");
  macro.uses_kwargs = uses("kwargs");
  loops_ = loops;
  soft_ = soft;
  return {};
}

Result<Statement> Parser::ParseMacro() {
  MacroStatement statement;
  const int line = current().line;
  SPRY_ASSIGN_OR_RETURN(statement.macro.name, ExpectName("the name of a macro"));
  SPRY_RETURN_IF_ERROR(CheckTargetName(statement.macro.name, line));
  NoteStore(statement.macro.name);
  SPRY_RETURN_IF_ERROR(ParseSignature(statement.macro));
  SPRY_RETURN_IF_ERROR(ParseMacroBody(statement.macro, "endmacro"));
  return Of(std::move(statement));
}

Result<Statement> Parser::ParseCallBlock() {
  CallBlockStatement statement;
  statement.caller.name = "caller";
  if (AtOperator("(")) SPRY_RETURN_IF_ERROR(ParseSignature(statement.caller));
  const int line = current().line;
  SPRY_ASSIGN_OR_RETURN(statement.call, ParseExpression());
  if (statement.call->kind != Expression::Kind::kCall) {
    return ErrorAt(line, "a call block needs the call of a macro");
  }
  SPRY_RETURN_IF_ERROR(ParseMacroBody(statement.caller, "endcall"));
  return Of(std::move(statement));
}

Result<Statement> Parser::ParseFilterBlock() {
  FilterBlockStatement statement;
  SPRY_ASSIGN_OR_RETURN(statement.filter, ParseFilter(nullptr));
  while (SkipOperator("|")) {
    SPRY_ASSIGN_OR_RETURN(statement.filter, ParseFilter(std::move(statement.filter)));
  }
  const bool soft = std::exchange(soft_, false);
  std::string end;
  SPRY_ASSIGN_OR_RETURN(statement.body, ParseBody({"endfilter"}, end));
  soft_ = soft;
  return Of(std::move(statement));
}

Result<Statement> Parser::ParseGeneration() {
  // For jinja2 it is the body of a call block.
  MacroDefinition body;
  SPRY_RETURN_IF_ERROR(ParseMacroBody(body, "endgeneration"));
  return Of(GenerationStatement{std::move(body.body)});
}

Status Parser::ParsePrint(Block& block) {
  bool first = true;
  while (!At(TokenKind::kBlockEnd)) {
    if (!first) SPRY_RETURN_IF_ERROR(ExpectOperator(","));
    first = false;
    const int line = current().line;
    SPRY_ASSIGN_OR_RETURN(ExpressionPtr expression, ParseExpression());
    block.push_back(std::make_unique<Statement>(Of(OutputStatement{std::move(expression)})));
    block.back()->line = line;
  }
  return {};
}

}  // namespace spry::jinja
