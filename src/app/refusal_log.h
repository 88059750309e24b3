// The log's lines of refused requests. Refusing costs a client nothing, so there are only so many
// lines: kBurst at once, and kPerSecond in the long run (a gigabyte in two months). The next line
// says how many were left out.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "server/http_server.h"

namespace spry {

class RefusalLog {
 public:
  static constexpr int kBurst = 100;
  static constexpr int kPerSecond = 1;

  // `clock` must outlive this.
  explicit RefusalLog(const Clock& clock) : clock_(clock), refilled_(clock.NowNanos()) {}

  void Add(const HttpRefusal& refusal);

 private:
  const Clock& clock_;
  int64_t refilled_;
  double room_ = kBurst;  // lines
  uint64_t left_out_ = 0;
};

}  // namespace spry
