// SPRY_INLINE: for every function that is shared by files compiled for different instruction sets.
// Such a function must not exist out of line: the linker would keep one copy, perhaps one that the
// machine cannot run.
#pragma once

#define SPRY_INLINE inline __attribute__((always_inline))
