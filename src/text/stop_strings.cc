#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace spry {
namespace {

std::vector<int> Fallbacks(std::string_view stop) {
  std::vector<int> fallback(stop.size(), 0);
  int matched = 0;
  for (size_t i = 1; i < stop.size(); ++i) {
    while (matched > 0 && stop[i] != stop[matched]) matched = fallback[matched - 1];
    if (stop[i] == stop[matched]) ++matched;
    fallback[i] = matched;
  }
  return fallback;
}

}  // namespace

StopScanner::StopScanner(std::vector<std::string> stops, Include include) : include_(include) {
  for (std::string& stop : stops) {
    CHECK(!stop.empty());
    std::vector<int> fallback = Fallbacks(stop);
    searches_.push_back({.stop = std::move(stop), .fallback = std::move(fallback)});
  }
}

void StopScanner::Append(std::string_view piece, std::string& text) {
  if (found_) return;
  for (const char byte : piece) {
    held_ += byte;
    int most = 0;
    for (size_t i = 0; i < searches_.size(); ++i) {
      Search& search = searches_[i];
      while (search.matched > 0 && byte != search.stop[search.matched]) {
        search.matched = search.fallback[search.matched - 1];
      }
      if (byte == search.stop[search.matched]) ++search.matched;
      const bool complete = search.matched == static_cast<int>(search.stop.size());
      if (complete && (!found_ || search.stop.size() > searches_[*found_].stop.size())) {
        found_ = static_cast<int>(i);
      }
      most = std::max(most, search.matched);
    }
    if (found_) {
      const size_t dropped = include_ == Include::kYes ? 0 : searches_[*found_].stop.size();
      text.append(held_, 0, held_.size() - dropped);
      held_.clear();
      return;
    }
    const size_t known = held_.size() - most;
    text.append(held_, 0, known);
    held_.erase(0, known);
  }
}

void StopScanner::Pass(std::string_view piece, std::string& text) {
  if (found_) return;
  Finish(text);
  text += piece;
}

void StopScanner::Finish(std::string& text) {
  text += held_;
  held_.clear();
  for (Search& search : searches_) search.matched = 0;
}

}  // namespace spry
