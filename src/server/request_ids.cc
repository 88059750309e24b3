#include "server/request_ids.h"

#include <fmt/format.h>

namespace spry {

std::string RequestIds::Next() {
  const uint64_t high = generator_();
  return fmt::format("{:016x}{:016x}", high, generator_());
}

}  // namespace spry
