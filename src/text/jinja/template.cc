#include "text/jinja/template.h"

#include <algorithm>
#include <utility>

#include "text/jinja/evaluator.h"
#include "text/jinja/limits.h"
#include "text/jinja/parser.h"
#include "text/jinja/runtime.h"
#include "text/utf8.h"

namespace spry::jinja {

Result<Template> Template::Parse(std::string_view source) {
  std::string valid;
  AppendLossy(source, valid);
  SPRY_ASSIGN_OR_RETURN(Block block, ParseTemplate(valid));
  return Template(std::move(block));
}

Result<std::string> Template::Render(const Dict& variables, const std::tm& now) const {
  Runtime runtime(now);
  Result<std::string> text = Evaluator(runtime, variables).Run(block_);
  if (text.ok()) return text;
  // What a template says for itself may have several lines; an error has one.
  std::string message = text.status().message();
  std::ranges::replace(message, '\n', ' ');
  return Status(text.status().code(),
                ErrorAt(runtime.line(), message.substr(0, kMaxMessageBytes)).message());
}

}  // namespace spry::jinja
