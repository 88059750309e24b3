// The filters by kind; builtins.h finds them by name. Only for this folder.
#pragma once

#include <span>

#include "text/jinja/builtins.h"

namespace spry::jinja {

std::span<const Filter> TextFilters();      // upper, trim, indent, replace ...
std::span<const Filter> SequenceFilters();  // length, first, join, batch ...
std::span<const Filter> ChoiceFilters();    // map, select, sort, unique, groupby ...
std::span<const Filter> ValueFilters();     // default, int, round, tojson ...

}  // namespace spry::jinja
