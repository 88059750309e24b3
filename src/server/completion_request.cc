#include "server/completion_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/echo_offsets.h"
#include "server/sampling_request.h"

namespace spry {
namespace {

namespace json = boost::json;

constexpr int kDefaultMaxTokens = 16;  // OpenAI's
constexpr const char* kForms =
    "a string, a list of strings, a list of token ids or a list of lists of token ids";

std::optional<ApiError> ReadIds(const json::array& list, std::string_view name,
                                const ServedModel& model, ApiPrompt& prompt) {
  std::optional<ApiError> wrong = ReadTokenIds(list, name, model.vocab_size, prompt.ids);
  if (wrong) wrong->param = "prompt";
  return wrong;
}

// The prompts of a field that is a list: of ids, which are one prompt, or of prompts.
std::optional<ApiError> ReadList(const json::array& list, bool add_special_tokens,
                                 const ServedModel& model, ApiRequest& request) {
  if (list.empty())
    return BadRequest("prompt is an empty list; give " + std::string(kForms), "prompt");
  const bool prompts = list[0].is_string() || list[0].is_array();
  if (!prompts) return ReadIds(list, "prompt", model, request.prompts.emplace_back());
  if (list.size() > static_cast<size_t>(model.max_choices)) {
    return BadRequest(fmt::format("prompt has {} entries; this server takes at most {} at once",
                                  list.size(), model.max_choices),
                      "prompt");
  }
  for (size_t i = 0; i < list.size(); ++i) {
    ApiPrompt& prompt = request.prompts.emplace_back();
    std::optional<ApiError> wrong;
    if (list[i].kind() != list[0].kind()) {
      wrong = BadRequest(fmt::format("prompt[{}] is {} and prompt[0] is {}; prompt must be {}", i,
                                     Described(list[i]), Described(list[0]), kForms),
                         "prompt");
    } else if (list[i].is_string()) {
      wrong = EncodePrompt(list[i].get_string(), add_special_tokens, model, prompt);
    } else {
      wrong = ReadIds(list[i].get_array(), fmt::format("prompt[{}]", i), model, prompt);
    }
    if (wrong) return wrong;
  }
  return {};
}

std::optional<ApiError> ReadPrompts(RequestFields& fields, const ServedModel& model,
                                    ApiRequest& request) {
  bool add_special_tokens = true;
  Assign(add_special_tokens, fields.Bool("add_special_tokens"));
  const json::value* prompt = fields.Find("prompt");
  if (fields.failed()) return fields.error();
  if (prompt == nullptr)
    return BadRequest(fmt::format("prompt is missing; give {}", kForms), "prompt");
  if (const json::string* text = prompt->if_string()) {
    return EncodePrompt(*text, add_special_tokens, model, request.prompts.emplace_back());
  }
  if (const json::array* list = prompt->if_array()) {
    return ReadList(*list, add_special_tokens, model, request);
  }
  return BadRequest(fmt::format("prompt is {}; it must be {}", Described(*prompt), kForms),
                    "prompt");
}

// The echo of a prompt: the text that was given, or else what its ids say.
void SpellEcho(const ServedModel& model, bool skip_special_tokens, ApiPrompt& prompt) {
  if (model.tokenizer == nullptr) return;
  if (prompt.text.empty()) {
    prompt.text = model.tokenizer->Decode(prompt.ids, skip_special_tokens);
    prompt.spelled_special = !skip_special_tokens;
    return;
  }
  prompt.spelled_special = true;
  const bool bos = model.tokenizer->IsSpecial(prompt.ids.front()) &&
                   !prompt.text.starts_with(model.tokenizer->TokenBytes(prompt.ids.front()));
  prompt.added = bos ? 1 : 0;
}

void CheckBestOf(RequestFields& fields, const ApiRequest& request) {
  const auto best_of = fields.Integer("best_of", {1, std::numeric_limits<int>::max()});
  if (!best_of || *best_of == request.n) return;
  fields.Fail("best_of", fmt::format("best_of is {} and n is {}; this server does not choose among "
                                     "answers: leave best_of out",
                                     *best_of, request.n));
}

// What `echo` and `logprobs` ask of the engine.
void ReadEcho(RequestFields& fields, PromptFit& fit, ApiRequest& request) {
  Assign(request.echo, fields.Bool("echo"));
  Assign(request.sampling.logprobs, fields.Integer("logprobs", {0, kMaxLogprobs}));
  if (request.echo && request.sampling.logprobs && !request.sampling.prompt_logprobs) {
    request.sampling.prompt_logprobs = request.sampling.logprobs;
  }
  constexpr int kNone = 0;
  fit.max_tokens = ReadMaxTokens(fields, kNone);
  if (fit.max_tokens == 0 && !request.echo) {
    const bool newer = fields.Find("max_completion_tokens") != nullptr;
    const std::string name = newer ? "max_completion_tokens" : "max_tokens";
    fields.Fail(name, name +
                          " is 0; it must be 1 or more, or else echo must be true: then the "
                          "answer is the prompt alone, with its logprobs");
  }
  fit.otherwise = kDefaultMaxTokens;
  // The engine ends without a token only what is scored.
  if (fit.max_tokens == 0 && !request.sampling.prompt_logprobs) {
    request.sampling.prompt_logprobs = 0;
  }
}

}  // namespace

std::optional<ApiError> CheckPromptBytes(size_t bytes, const ServedModel& model,
                                         std::string_view field) {
  const int64_t most = model.max_model_len * kMostBytesPerToken;
  if (static_cast<int64_t>(bytes) <= most) return {};
  return ApiError{.message = fmt::format("the {} has {} bytes; with a max_model_len of {} tokens "
                                         "this server takes at most {}: shorten it",
                                         field, bytes, model.max_model_len, most),
                  .param = std::string(field),
                  .code = "context_length_exceeded"};
}

std::optional<ApiError> EncodePrompt(std::string_view text, bool add_special_tokens,
                                     const ServedModel& model, ApiPrompt& prompt) {
  if (model.tokenizer == nullptr) {
    return BadRequest("the model has no tokenizer; give the prompt as token ids", "prompt");
  }
  if (auto wrong = CheckPromptBytes(text.size(), model, "prompt")) return wrong;
  prompt.text = text;
  prompt.ids = model.tokenizer->Encode(text, add_special_tokens);
  return {};
}

std::optional<ApiError> ReadCompletionRequest(const json::object& body, const ServedModel& model,
                                              ApiRequest& request) {
  RequestFields fields(body);
  request.kind = ApiRequest::Kind::kCompletion;
  ReadCommonFields(fields, model, request);
  CheckBestOf(fields, request);
  PromptFit fit = ReadTruncation(fields, model);
  ReadEcho(fields, fit, request);
  if (fields.failed()) return fields.error();  // before the prompt is worked on
  if (std::optional<ApiError> wrong = ReadPrompts(fields, model, request)) return wrong;
  for (ApiPrompt& prompt : request.prompts) {
    if (std::optional<ApiError> wrong = FitPrompt(fit, model, prompt)) return wrong;
    if (request.echo) {
      SpellEcho(model, request.skip_special_tokens, prompt);
      MakeEcho(prompt);
    } else {
      prompt.text.clear();
    }
  }
  request.ignored = fields.Unknown();
  return {};
}

}  // namespace spry
