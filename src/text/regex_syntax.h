// tokenizer.json writes its patterns for Oniguruma; we match with PCRE2. Both read most patterns
// alike, but not these, which are rewritten so that they mean the same:
//   \s has no U+180E; \w and \b are wider; \h is a hexadecimal digit; \p{Han} is the script, not
//   its extensions; classes may nest and intersect ([a[bc]], [\p{L}&&[^x]]); x{1,3}+ repeats the
//   repetition (it is not possessive); {,3}; \uHHHH; newer Unicode data (unicode_tables.h).
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace spry {

// The PCRE2 pattern for the Oniguruma `pattern`. What cannot be carried over is refused by name.
Result<std::string> TranslatePattern(std::string_view pattern);

}  // namespace spry
