// What a template may cost. A template comes with a model and is as trusted as the model's author:
// it may be wrong or hostile, but it must not take the server down. Each refusal names its limit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace spry::jinja {

inline constexpr size_t kMaxTemplateBytes = 1 << 20;  // the largest known has 17 kB
// Of brackets, operators in a row, and blocks, as they are written.
inline constexpr int kMaxTemplateNesting = 200;
// Of what is evaluated inside what: macros that call macros add up.
inline constexpr int kMaxEvaluationDepth = 1000;
inline constexpr int kMaxMacroDepth = 100;
// Of lists and objects inside each other.
inline constexpr int kMaxValueDepth = 100;
// A step is one evaluated node, one element of a list made, kBytesPerStep of text made or looked
// through, or kCharactersPerStep of text gone through by characters: each some 50 ns.
inline constexpr int64_t kMaxSteps = 8'000'000;
inline constexpr int64_t kBytesPerStep = 64;
inline constexpr int64_t kCharactersPerStep = 4;
inline constexpr size_t kMaxOutputBytes = 16 << 20;
inline constexpr size_t kMaxTextBytes = 16 << 20;   // of one value
inline constexpr int64_t kMaxListItems = 1 << 20;   // of one value
inline constexpr int64_t kMaxRangeItems = 100'000;  // jinja2's sandbox has the same
inline constexpr int64_t kMaxFormatWidth = 10'000;  // width and precision of a format
inline constexpr size_t kMaxStripBytes = 1000;      // of the set of characters to strip
inline constexpr size_t kMaxMessageBytes = 1000;    // of an error

}  // namespace spry::jinja
