#include "app/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace spry {
namespace {

constexpr int kLeastWindow = 4;  // two scored tokens have a variance

struct Sums {
  double logprobs = 0;
  double squares = 0;
};

class Windows {
 public:
  Windows(Engine& engine, int size) : engine_(engine), size_(size) {}

  Status Submit(std::span<const TokenId> tokens, std::optional<TokenId> bos) {
    GenerationRequest request;
    request.prompt.assign(tokens.begin(), tokens.end());
    if (bos) request.prompt.front() = *bos;
    request.sampling = {.temperature = 0.0, .max_tokens = 0, .prompt_logprobs = 0};
    SPRY_ASSIGN_OR_RETURN(const RequestId id, engine_.Submit(std::move(request)));
    index_of_[id] = sums_.size();
    sums_.emplace_back();
    return {};
  }

  Status Run() {
    while (!engine_.idle()) {
      SPRY_ASSIGN_OR_RETURN(const std::span<const TokenEvent> events, engine_.Step());
      for (const TokenEvent& event : events) {
        if (event.finish == FinishReason::kError) {
          return Internal(FaultText(event.fault));
        }
        Add(event, sums_[index_of_.at(event.request)]);
      }
    }
    return {};
  }

  // In the order of the text, whichever window ended first.
  Sums Total() const {
    Sums total;
    for (const Sums& sums : sums_) {
      total.logprobs += sums.logprobs;
      total.squares += sums.squares;
    }
    return total;
  }

 private:
  void Add(const TokenEvent& event, Sums& sums) const {
    for (size_t i = 0; i < event.prompt_logprobs.size(); ++i) {
      if (event.first_prompt_logprob + static_cast<int>(i) <= size_ / 2) continue;
      const double logprob = event.prompt_logprobs[i].chosen.logprob;
      sums.logprobs += logprob;
      sums.squares += logprob * logprob;
    }
  }

  Engine& engine_;
  int size_;
  std::vector<Sums> sums_;
  std::unordered_map<RequestId, size_t> index_of_;
};

}  // namespace

Result<Perplexity> MeasurePerplexity(Engine& engine, std::span<const TokenId> tokens,
                                     int64_t window, std::optional<TokenId> bos) {
  const auto size = static_cast<size_t>(window);
  if (size < kLeastWindow || tokens.size() < size) {
    return InvalidArgument(
        fmt::format("the text has {} tokens and a window {}; give a text of at least a window, or "
                    "lower --max-model-len, to no less than {}",
                    tokens.size(), size, kLeastWindow));
  }
  Windows windows(engine, static_cast<int>(size));
  const SteadyClock clock;
  const int64_t begin = clock.NowNanos();
  Perplexity result{.windows = static_cast<int64_t>(tokens.size() / size)};
  for (int64_t w = 0; w < result.windows; ++w) {
    SPRY_RETURN_IF_ERROR(windows.Submit(tokens.subspan(w * size, size), bos));
  }
  SPRY_RETURN_IF_ERROR(windows.Run());
  result.seconds = static_cast<double>(clock.NowNanos() - begin) * 1e-9;

  const Sums total = windows.Total();
  result.scored_tokens = result.windows * static_cast<int64_t>(size - size / 2 - 1);
  const auto count = static_cast<double>(result.scored_tokens);
  result.nll = -total.logprobs / count;
  result.value = std::exp(result.nll);
  const double variance = std::max(total.squares / count - result.nll * result.nll, 0.0);
  result.error = count > 1 ? result.value * std::sqrt(variance / (count - 1)) : 0.0;
  return result;
}

}  // namespace spry
