// Profiled steps in words: what each kind of op takes, what it would take at the bound (its
// weights, keys and values read once at the memory's rate, or its products at the highest rate,
// whichever takes longer), and the share of the bound that this is.
#pragma once

#include <span>
#include <string>

#include "app/device_peaks.h"
#include "device/step_profile.h"
#include "program/program.h"

namespace spry {

// Two tables: steps in which every token is a row's next (decode), and the others.
std::string ProfileText(const Program& program, std::span<const ProfiledStep> steps,
                        const DevicePeaks& peaks);

// Chrome's trace events as JSON, which ui.perfetto.dev opens: a track of steps above one of ops.
std::string ProfileTrace(const Program& program, std::span<const ProfiledStep> steps);

}  // namespace spry
