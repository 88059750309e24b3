#include "app/refusal_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "app/serve_log.h"

namespace spry {
namespace {

constexpr size_t kMostPathBytes = 256;

std::string_view OrDash(std::string_view text) { return text.empty() ? "-" : text; }

}  // namespace

void RefusalLog::Add(const HttpRefusal& refusal) {
  const int64_t now = clock_.NowNanos();
  const double seconds = static_cast<double>(now - refilled_) * 1e-9;
  room_ = std::min<double>(room_ + seconds * kPerSecond, kBurst);
  refilled_ = now;
  if (room_ < 1) {
    ++left_out_;
    return;
  }
  --room_;
  Log(LogLevel::kWarning, "refused",
      {{"id", refusal.request_id},
       {"method", OrDash(refusal.method)},
       {"path", OrDash(refusal.path.substr(0, kMostPathBytes))},
       {"status", std::to_string(refusal.status)},
       {"error", refusal.why},
       {"left_out", std::to_string(std::exchange(left_out_, 0))}});
}

}  // namespace spry
