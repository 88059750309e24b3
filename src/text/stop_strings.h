// Ends a text at the first stop string in it, however the text is cut into pieces. A string is
// found at the byte that completes it; of several completed by one byte the longest counts. What
// might be the beginning of one is held back until it is or is not, and not a byte more.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace spry {

class StopScanner {
 public:
  // Without empty strings among them. include: a stop string that is found is part of the text.
  enum class Include { kNo, kYes };
  StopScanner(std::vector<std::string> stops, Include include);

  // Takes the next piece and appends to `text` what is now known to belong to it. After a string
  // has been found nothing is taken any more.
  void Append(std::string_view piece, std::string& text);
  // Appends without looking: before min_tokens nothing stops. What was held back is let go.
  void Pass(std::string_view piece, std::string& text);
  // The text has ended otherwise: appends what was held back.
  void Finish(std::string& text);

  // Which of the strings ended the text.
  std::optional<int> found() const { return found_; }

 private:
  // The search of one string (Knuth, Morris, Pratt).
  struct Search {
    std::string stop;
    std::vector<int> fallback;  // [size]: the longest proper prefix that ends a prefix
    int matched = 0;            // bytes of `stop` that the text ends with
  };

  std::vector<Search> searches_;
  Include include_;
  std::string held_;  // the end of the text that has been taken and not given
  std::optional<int> found_;
};

}  // namespace spry
