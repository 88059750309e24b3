// Seeded damage for files: the ways in which downloads, disks and hostile people spoil them.
#pragma once

#include <cstdint>
#include <string>

namespace spry {

// One to three of: flipped bytes, a cut end, a chunk doubled, a number edited (decimal digits in
// text; a 4- or 8-byte integer set to an extreme anywhere). Half of the seeds edit numbers of one
// kind alone, since little else gets past a parser. The same seed gives the same bytes.
std::string Mutate(const std::string& original, uint64_t seed);

}  // namespace spry
