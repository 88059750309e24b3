// One choice of a request as text: its tokens are spelled as they come, what may become a stop
// string is held back, and a stop string ends it (the engine knows tokens alone: whoever holds this
// cancels the request then).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/row.h"
#include "api/sampling_params.h"
#include "base/ids.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"

namespace spry {

struct ChoiceTextOptions {
  const Tokenizer* tokenizer = nullptr;  // must outlive the ChoiceText; null: there is no text
  bool skip_special_tokens = true;
  // What of the request's sampling shapes text.
  std::vector<std::string> stop;
  bool include_stop_str_in_output = false;
  int min_tokens = 0;  // stop strings are not looked for in the text of that many tokens
  std::vector<TokenId> stop_token_ids;
};
ChoiceTextOptions MakeChoiceTextOptions(const Tokenizer* tokenizer, const SamplingParams& sampling);

class ChoiceText {
 public:
  explicit ChoiceText(ChoiceTextOptions options);

  // Takes a token, or none, and the engine's verdict. Gives the text that became readable, valid
  // until the next call. An end or stop id is counted but not spelled. Not after the end.
  std::string_view Take(std::optional<TokenId> token, FinishReason finish);

  bool finished() const { return finish_ != FinishReason::kNone; }
  FinishReason finish() const { return finish_; }
  const std::string& text() const { return text_; }
  // What the last token made readable, stop strings not looked for.
  std::string_view spelled() const { return spelled_; }
  const std::vector<TokenId>& token_ids() const { return token_ids_; }
  // Why a choice that finished with kStop did; both empty: by an end id of the model.
  const std::string* stop_string() const;
  std::optional<TokenId> stop_token() const;

 private:
  void Spell(std::optional<TokenId> token);

  ChoiceTextOptions options_;
  std::optional<Detokenizer> detokenizer_;
  StopScanner stops_;
  std::string spelled_;  // of this token
  std::string text_;
  std::vector<TokenId> token_ids_;
  FinishReason finish_ = FinishReason::kNone;
};

}  // namespace spry
