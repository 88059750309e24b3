// A compiled regular expression over valid UTF-8 (PCRE2 with its just-in-time compiler).
// Immutable; any number of threads may use one, each with its own Matcher.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace spry {

class Pattern {
 public:
  // `pattern` as tokenizer.json writes it (regex_syntax.h).
  static Result<Pattern> Compile(std::string_view pattern);

  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  struct Span {
    size_t begin;
    size_t end;
  };

  // Goes through the matches in one text after another. The Pattern must outlive it.
  class Matcher {
   public:
    explicit Matcher(const Pattern& pattern);
    Matcher(Matcher&&) noexcept;
    ~Matcher();

    void Start(std::string_view text);
    // The next match that is not empty, or is empty and not at the end of the one before; false
    // when there is none. A text on which the pattern runs into the limit for backtracking has no
    // further match: no real text does that with a pattern made for tokenizing.
    bool Next(Span& match);

   private:
    struct Data;
    std::unique_ptr<Data> data_;
  };

 private:
  struct Code;
  explicit Pattern(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace spry
