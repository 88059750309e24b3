#include "text/jinja/format.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "text/jinja/compare.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/repr.h"

namespace spry::jinja {
namespace {

Result<std::string> ReprOf(Runtime& runtime, const Value& value) {
  std::string text;
  SPRY_RETURN_IF_ERROR(AppendRepr(runtime, value, text));
  return text;
}

// "%s" % values.
class PercentFormat {
 public:
  PercentFormat(Runtime& runtime, std::string_view format, const Value& values)
      : runtime_(runtime), rest_(format), values_(values) {}

  Result<std::string> Run() {
    std::string out;
    for (size_t at; (at = rest_.find('%')) != rest_.npos;) {
      out += rest_.substr(0, at);
      rest_.remove_prefix(at + 1);
      SPRY_ASSIGN_OR_RETURN(const std::string converted, Convert());
      out += converted;
      SPRY_RETURN_IF_ERROR(runtime_.CheckText(out.size()));
    }
    out += rest_;
    // Values that could be looked up by name need not be used.
    const bool by_name = values_.dict() != nullptr || values_.is_list() ||
                         values_.range() != nullptr || values_.is_undefined();
    const bool all =
        values_.is_tuple() ? used_ == values_.sequence()->items.size() : used_ > 0 || by_name;
    if (!all) return InvalidArgument("a format with % has more values than places");
    return out;
  }

 private:
  Result<Value> NextValue() {
    if (!values_.is_tuple()) {
      if (used_++ == 0) return values_;
    } else if (used_ < values_.sequence()->items.size()) {
      return values_.sequence()->items[used_++];
    }
    return InvalidArgument("a format with % has more places than values");
  }

  Result<int64_t> Number() {
    int64_t number = 0;
    if (!rest_.empty() && rest_[0] == '*') {
      rest_.remove_prefix(1);
      SPRY_ASSIGN_OR_RETURN(const Value value, NextValue());
      if (!value.is_int()) return InvalidArgument("a format with %* needs an integer");
      number = value.as_int();
      SPRY_RETURN_IF_ERROR(CheckFormatWidth(number < 0 ? -(number + 1) : number));
      return number;
    }
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
      number = number * 10 + (rest_[0] - '0');
      SPRY_RETURN_IF_ERROR(CheckFormatWidth(number));
      rest_.remove_prefix(1);
    }
    return number;
  }

  Result<std::optional<Value>> Named() {
    if (rest_.empty() || rest_[0] != '(') return std::optional<Value>();
    const size_t end = rest_.find(')');
    if (end == rest_.npos) return InvalidArgument("a format with %( lacks its ')'");
    if (values_.dict() == nullptr) return InvalidArgument("a format with %(name) needs a dict");
    const std::string_view name = rest_.substr(1, end - 1);
    const Value* found = values_.dict()->Find(name);
    if (found == nullptr) {
      return InvalidArgument(
          fmt::format("a format names '{}', which is not given", name.substr(0, 100)));
    }
    rest_.remove_prefix(end + 1);
    return std::optional<Value>(*found);
  }

  Result<std::string> Convert() {
    SPRY_ASSIGN_OR_RETURN(std::optional<Value> named, Named());
    FormatSpec spec;
    spec.align = '>';
    for (; !rest_.empty() && std::string_view("-+ #0").find(rest_[0]) != std::string_view::npos;
         rest_.remove_prefix(1)) {
      if (rest_[0] == '-') spec.align = '<';
      if (rest_[0] == '+') spec.sign = '+';
      if (rest_[0] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (rest_[0] == '#') spec.alternate = true;
      if (rest_[0] == '0') spec.fill = "0";
    }
    SPRY_ASSIGN_OR_RETURN(spec.width, Number());
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (!rest_.empty() && rest_[0] == '.') {
      rest_.remove_prefix(1);
      SPRY_ASSIGN_OR_RETURN(spec.precision, Number());
      if (spec.precision < 0) spec.precision = 0;
    }
    while (!rest_.empty() && (rest_[0] == 'h' || rest_[0] == 'l' || rest_[0] == 'L')) {
      rest_.remove_prefix(1);
    }
    if (rest_.empty()) return InvalidArgument("a format ends in the middle of a %");
    spec.type = rest_[0];
    rest_.remove_prefix(1);
    if (spec.type == '%') return std::string("%");
    if (!named) {
      SPRY_ASSIGN_OR_RETURN(named, NextValue());
    } else {
      used_ = used_ == 0 ? 1 : used_;
    }
    return ConvertValue(*named, spec);
  }

  Result<std::string> ConvertValue(const Value& value, FormatSpec spec) {
    if (spec.align == '<') spec.fill = " ";
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a': {
        spec.fill = " ";
        const bool plain = spec.type == 's';
        SPRY_ASSIGN_OR_RETURN(std::string text,
                              plain ? runtime_.ToText(value) : ReprOf(runtime_, value));
        spec.type = 's';
        return FormatValue(runtime_, Value::String(std::move(text)), spec);
      }
      case 'c':
        if (value.text() != nullptr && value.text()->length == 1) {
          spec.type = 's';
          return FormatValue(runtime_, value, spec);
        }
        return FormatValue(runtime_, value, spec);
      default: return ConvertNumber(value, spec);
    }
  }

  Result<std::string> ConvertNumber(Value value, FormatSpec spec) {
    const bool integral = std::string_view("diuoxX").find(spec.type) != std::string_view::npos;
    if (!value.is_number() ||
        (value.is_float() && std::string_view("oxX").find(spec.type) != std::string_view::npos)) {
      return InvalidArgument(
          fmt::format("%{} needs a number, found a value of type {}", spec.type, value.TypeName()));
    }
    if (spec.fill == "0") spec.align = '=';
    if (!integral) return FormatValue(runtime_, value, spec);
    if (value.is_float()) {
      const double whole = std::trunc(value.as_double());
      if (!(std::fabs(whole) < 9.2e18)) return InvalidArgument("%d: the number is too large");
      value = Value::Int(static_cast<int64_t>(whole));
    }
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    const int64_t digits = std::exchange(spec.precision, -1);
    if (digits < 0) return FormatValue(runtime_, value, spec);
    // The precision of an integer is its least number of digits.
    FormatSpec inner = spec;
    inner.fill = "0";
    inner.align = '=';
    inner.width = digits + (value.as_int() < 0 || spec.sign != '-' ? 1 : 0);
    SPRY_ASSIGN_OR_RETURN(std::string text, FormatValue(runtime_, value, inner));
    FormatSpec outer;
    outer.width = spec.width;
    outer.align = spec.align == '<' ? '<' : '>';
    return FormatValue(runtime_, Value::String(std::move(text)), outer);
  }

  Runtime& runtime_;
  std::string_view rest_;
  const Value& values_;
  size_t used_ = 0;
};

// "{}".format(values).
class BraceFormat {
 public:
  BraceFormat(Runtime& runtime, const Arguments& arguments)
      : runtime_(runtime), arguments_(arguments) {}

  // Formats stand inside formats once: "{:{width}}".
  Result<std::string> Run(std::string_view format, bool inner) {
    std::string out;
    while (!format.empty()) {
      const size_t at = std::min(format.find_first_of("{}"), format.size());
      out += format.substr(0, at);
      format.remove_prefix(at);
      if (format.empty()) break;
      if (format.size() > 1 && format[1] == format[0]) {
        out += format[0];
        format.remove_prefix(2);
        continue;
      }
      if (format[0] == '}') return InvalidArgument("a format has a '}' without its '{'");
      SPRY_ASSIGN_OR_RETURN(const size_t length, FieldLength(format));
      SPRY_ASSIGN_OR_RETURN(const std::string text, Field(format.substr(1, length - 2), inner));
      out += text;
      format.remove_prefix(length);
      SPRY_RETURN_IF_ERROR(runtime_.CheckText(out.size()));
    }
    return out;
  }

 private:
  static Result<size_t> FieldLength(std::string_view format) {
    int depth = 0;
    for (size_t i = 0; i < format.size(); ++i) {
      if (format[i] == '{') ++depth;
      if (format[i] == '}' && --depth == 0) return i + 1;
    }
    return InvalidArgument("a format has a '{' without its '}'");
  }

  Result<std::string> Field(std::string_view field, bool inner) {
    std::string_view spec_text;
    const size_t colon = field.find(':');
    if (colon != field.npos) {
      spec_text = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    char conversion = 0;
    if (field.size() >= 2 && field[field.size() - 2] == '!') {
      conversion = field.back();
      field.remove_suffix(2);
    }
    SPRY_ASSIGN_OR_RETURN(Value value, Lookup(field));
    if (conversion == 'r' || conversion == 'a') {
      SPRY_ASSIGN_OR_RETURN(std::string text, ReprOf(runtime_, value));
      value = Value::String(std::move(text));
    } else if (conversion == 's') {
      SPRY_ASSIGN_OR_RETURN(std::string text, runtime_.ToText(value));
      value = Value::String(std::move(text));
    } else if (conversion != 0) {
      return InvalidArgument("a format has a conversion other than !r, !s and !a");
    }
    std::string spec(spec_text);
    if (spec.find('{') != spec.npos) {
      if (inner) return InvalidArgument("a format nests deeper than one field in another");
      SPRY_ASSIGN_OR_RETURN(spec, Run(spec_text, /*inner=*/true));
    }
    if (spec.empty()) return runtime_.ToText(value);
    SPRY_ASSIGN_OR_RETURN(const FormatSpec parsed, ParseFormatSpec(spec));
    return FormatValue(runtime_, value, parsed);
  }

  // "0.name[key]": an argument, then attributes and items of it.
  Result<Value> Lookup(std::string_view field) {
    const std::string_view first = field.substr(0, field.find_first_of(".["));
    field.remove_prefix(first.size());
    SPRY_ASSIGN_OR_RETURN(Value value, Argument(first));
    while (!field.empty()) {
      const bool item = field[0] == '[';
      const size_t end =
          item ? field.find(']') : std::min(field.find_first_of(".[", 1), field.size());
      if (end == field.npos) return InvalidArgument("a format has a '[' without its ']'");
      const std::string_view name = field.substr(1, end - 1);
      if (name.empty()) return InvalidArgument("a format has a field with an empty name");
      if (!item) {
        SPRY_ASSIGN_OR_RETURN(value, runtime_.GetAttribute(value, name));
      } else if (const std::optional<int64_t> index = Index(name)) {
        SPRY_ASSIGN_OR_RETURN(value, runtime_.GetItem(value, Value::Int(*index)));
      } else {
        SPRY_ASSIGN_OR_RETURN(value, runtime_.GetItem(value, Value::String(std::string(name))));
      }
      field.remove_prefix(end + (item ? 1 : 0));
    }
    return value;
  }

  static std::optional<int64_t> Index(std::string_view text) {
    if (text.empty() || text.size() > 9) return {};
    int64_t index = 0;
    for (const char c : text) {
      if (c < '0' || c > '9') return {};
      index = index * 10 + (c - '0');
    }
    return index;
  }

  Result<Value> Argument(std::string_view name) {
    std::optional<int64_t> index = Index(name);
    if (name.empty()) index = next_++;
    if (index) {
      if (static_cast<size_t>(*index) < arguments_.positional.size()) {
        return arguments_.positional[static_cast<size_t>(*index)];
      }
      return InvalidArgument("a format has more places than values");
    }
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return InvalidArgument(
        fmt::format("a format names '{}', which is not given", name.substr(0, 100)));
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  int64_t next_ = 0;
};

}  // namespace

Result<std::string> FormatWithPercent(Runtime& runtime, std::string_view format,
                                      const Value& values) {
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(format.size()));
  return PercentFormat(runtime, format, values).Run();
}

Result<std::string> FormatWithBraces(Runtime& runtime, std::string_view format,
                                     const Arguments& arguments) {
  SPRY_RETURN_IF_ERROR(runtime.ChargeText(format.size()));
  return BraceFormat(runtime, arguments).Run(format, /*inner=*/false);
}

}  // namespace spry::jinja
