// What a thread does between two looks at a variable that another will change.
#pragma once

namespace spry {

inline void Pause() { __builtin_ia32_pause(); }

}  // namespace spry
