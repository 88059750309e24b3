#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <optional>

#include "base/check.h"
#include "text/regex_syntax.h"
#include "text/utf8.h"

namespace spry {
namespace {

constexpr size_t kMaxPatternBytes = 16 << 10;  // the longest known is 4 KiB
constexpr uint32_t kMatchLimit = 20'000'000;   // backtracking steps per match: about 0.1 s
constexpr uint32_t kHeapLimitKib = 64 << 10;   // per match, when the JIT's stack is too small

}  // namespace

struct Pattern::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  bool jit = false;

  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

Pattern::Pattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Result<Pattern> Pattern::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return InvalidArgument(
        fmt::format("a pattern of {} bytes; the limit is {}", pattern.size(), kMaxPatternBytes));
  }
  SPRY_ASSIGN_OR_RETURN(const std::string translated, TranslatePattern(pattern));
  auto code = std::make_unique<Code>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  // ^ and $ also match at line ends, as in Oniguruma.
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, nullptr);
  if (code->code == nullptr) {
    PCRE2_UCHAR message[256];
    pcre2_get_error_message(error, message, sizeof message);
    return InvalidArgument(fmt::format("the pattern \"{}\" does not compile: {}", pattern,
                                       reinterpret_cast<const char*>(message)));
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  code->context = pcre2_match_context_create(nullptr);
  CHECK(code->context != nullptr);
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  return Pattern(std::move(code));
}

struct Pattern::Matcher::Data {
  const Code* code;
  pcre2_match_data* match;
  std::string_view text;
  size_t position = 0;
  std::optional<size_t> last_end;  // of the last match

  ~Data() { pcre2_match_data_free(match); }

  bool Search() {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (code->jit) {
      rc = pcre2_jit_match(code->code, subject, text.size(), position, 0, match, code->context);
    }
    // The JIT's stack is 32 KiB of the machine's; the interpreter takes what it needs from the
    // heap.
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code->code, subject, text.size(), position,
                       PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, code->context);
    }
    return rc >= 0;
  }
};

Pattern::Matcher::Matcher(const Pattern& pattern) : data_(new Data) {
  data_->code = pattern.code_.get();
  // One pair: captures are of no interest.
  data_->match = pcre2_match_data_create(1, nullptr);
  CHECK(data_->match != nullptr);
}
Pattern::Matcher::Matcher(Matcher&&) noexcept = default;
Pattern::Matcher::~Matcher() = default;

void Pattern::Matcher::Start(std::string_view text) {
  data_->text = text;
  data_->position = 0;
  data_->last_end.reset();
}

bool Pattern::Matcher::Next(Span& match) {
  Data& data = *data_;
  while (data.position <= data.text.size()) {
    if (!data.Search()) {
      data.position = data.text.size() + 1;
      return false;
    }
    const PCRE2_SIZE* pair = pcre2_get_ovector_pointer(data.match);
    if (pair[0] != pair[1] || data.last_end != pair[1]) {
      data.position = pair[1];
      data.last_end = pair[1];
      match = {pair[0], pair[1]};
      return true;
    }
    const std::string_view rest = data.text.substr(data.position);
    data.position += rest.empty() ? 1 : DecodeUtf8(rest).length;
  }
  return false;
}

}  // namespace spry
