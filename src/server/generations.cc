#include "server/generations.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/choice_text.h"
#include "engine/choices.h"
#include "server/echo_offsets.h"

namespace spry {
namespace {

int64_t UnixSeconds() {
  using std::chrono::system_clock;
  return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch())
      .count();
}

double Seconds(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

ChoiceTextOptions TextOptions(const ServedModel& model, const ApiRequest& request) {
  ChoiceTextOptions options = MakeChoiceTextOptions(model.tokenizer, request.sampling);
  options.skip_special_tokens = request.skip_special_tokens;
  return options;
}

}  // namespace

ApiError TooManyAnswers(int answers, const ServedModel& model) {
  return {
      .status = 429,
      .message = fmt::format("{} answers are running or waiting, of at most {}; try again later",
                             answers, model.max_choices)};
}

struct Generations::Choice {
  Choice(const ServedModel& model, const ApiRequest& request, int of_index)
      : index(of_index),
        prompt(of_index / request.n),
        text(TextOptions(model, request)),
        logprobs({.kind = request.kind,
                  .tokenizer = model.tokenizer,
                  .tokens_as_ids = request.return_tokens_as_token_ids}) {}

  int index;
  int prompt;
  std::optional<Ticket> ticket;  // once the engine has it
  ChoiceText text;
  ChoiceLogprobs logprobs;
  std::string prompt_logprobs;  // the inside of vLLM's list
  int next_position = 1;        // of the prompt: whose log-probabilities come next
  int64_t characters = 0;       // written so far, the echo included
  bool begun = false;           // its first chunk has been written
  bool ended = false;
  int64_t last_token = 0;  // when; 0: none yet
};

struct Generations::Generation {
  Generation(std::shared_ptr<HttpExchange> of_exchange, ApiRequest of_request, std::string of_id,
             const ServedModel& model)
      : exchange(std::move(of_exchange)),
        request(std::move(of_request)),
        id(std::move(of_id)),
        answer(request, id, model.fingerprint, UnixSeconds()) {}

  bool shows_logprobs() const { return request.sampling.logprobs.has_value(); }
  bool echoes_logprobs() const {
    return request.echo && shows_logprobs() && request.kind == ApiRequest::Kind::kCompletion;
  }

  std::shared_ptr<HttpExchange> exchange;
  ApiRequest request;
  std::string id;
  OpenAiAnswer answer;
  uint64_t number = 0;
  std::vector<Choice> choices;
  std::vector<std::vector<int64_t>> echo_offsets;  // by prompt, when the echo has logprobs
  std::vector<int64_t> cached;                     // by prompt
  Usage usage;
  int unfinished = 0;
  bool stream_begun = false;
  bool touched = false;
  bool ended = false;
  RowFault fault = RowFault::kNone;
  // When; 0: not yet.
  int64_t arrival = 0;
  int64_t submitted = 0;
  int64_t admitted = 0;  // its first choice
  int64_t first_token = 0;
  int64_t last_token = 0;
};

Generations::Generations(AsyncEngine& engine, const ServedModel& model, const Clock& clock,
                         GenerationObserver& observer)
    : engine_(engine),
      model_(model),
      clock_(clock),
      observer_(observer),
      random_(std::random_device()()) {}

Generations::~Generations() {
  for (auto& [number, generation] : running_) generation->exchange->OnLeave({});
}

std::string Generations::NewId() { return fmt::format("{:016x}{:016x}", random_(), random_()); }

void Generations::Start(std::shared_ptr<HttpExchange> exchange, ApiRequest request,
                        int64_t arrival) {
  std::string id = request.id.empty() ? exchange->request().request_id : request.id;
  if (id.empty()) id = NewId();
  const bool chat = request.kind == ApiRequest::Kind::kChat;
  auto generation = std::make_unique<Generation>(std::move(exchange), std::move(request),
                                                 (chat ? "chatcmpl-" : "cmpl-") + id, model_);
  generation->number = next_number_++;
  generation->arrival = arrival;
  generation->submitted = clock_.NowNanos();
  const uint64_t number = generation->number;
  touched_.reserve(running_.size() + 1);
  ended_.reserve(running_.size() + 1);
  Generation& started = *running_.emplace(number, std::move(generation)).first->second;
  const std::shared_ptr<HttpExchange> client = started.exchange;
  const auto forget = [&] {
    client->OnLeave({});
    CancelChoices(started);
    running_.erase(number);
  };
  std::optional<ApiError> error;
  try {
    error = Submit(started);
    if (!error) client->OnLeave([this, number] { Leave(number); });
  } catch (const std::exception&) {
    forget();
    throw;
  }
  if (!error) return;
  forget();
  client->Send(ErrorAnswer(*error));
}

// Hands every choice to the engine; on an error some may have been.
std::optional<ApiError> Generations::Submit(Generation& generation) {
  ApiRequest& request = generation.request;
  if (request.num_choices() > model_.max_choices) {
    const std::string asked =
        request.prompts.size() == 1
            ? fmt::format("n is {}", request.n)
            : fmt::format("{} prompts with n = {} are {} answers", request.prompts.size(),
                          request.n, request.num_choices());
    return BadRequest(
        fmt::format("{}; this server gives at most {} at once", asked, model_.max_choices), "n");
  }
  if (engine_.live() + request.num_choices() > model_.max_choices) {
    return TooManyAnswers(engine_.live(), model_);
  }
  generation.cached.resize(request.prompts.size());
  generation.choices.reserve(request.num_choices());
  generation.unfinished = request.num_choices();
  GenerationRequest of_prompt{.sampling = request.sampling};
  of_prompt.cache_salt = request.cache_salt;
  of_prompt.priority = request.priority;
  for (int index = 0; index < request.num_choices(); ++index) {
    Choice& choice = generation.choices.emplace_back(model_, request, index);
    const ApiPrompt& prompt = request.prompts[choice.prompt];
    if (index % request.n == 0) {
      of_prompt.prompt = prompt.ids;
      of_prompt.sampling.max_tokens = prompt.max_tokens;
    }
    GenerationRequest engine_request = MakeChoice(of_prompt, index % request.n);
    // Echoes need the prompt's scores in the order of each stream.
    if (generation.echoes_logprobs()) {
      engine_request.sampling.prompt_logprobs = request.sampling.prompt_logprobs;
    }
    const Result<Ticket> ticket = engine_.Submit(std::move(engine_request));
    if (!ticket.ok()) return ToApiError(ticket.status());
    choice.ticket = *ticket;
    places_[*ticket] = {&generation, index};
    if (index % request.n == 0) generation.usage.prompt_tokens += prompt.ids.size();
  }
  const bool needs_ids = request.return_token_ids || generation.echoes_logprobs();
  for (ApiPrompt& prompt : request.prompts) {
    if (generation.echoes_logprobs()) {
      generation.echo_offsets.push_back(
          EchoOffsets(prompt, model_.tokenizer, request.skip_special_tokens));
    }
    if (!needs_ids) std::vector<TokenId>().swap(prompt.ids);
  }
  return {};
}

void Generations::OnOutputs(std::span<const Output> outputs) {
  working_ = true;
  now_ = clock_.NowNanos();
  for (const Output& output : outputs) {
    const auto found = places_.find(output.ticket);
    if (found == places_.end()) continue;
    const Place place = found->second;
    try {
      Take(output, place);
    } catch (const std::exception& failure) {
      FailSafely(*place.generation, [&] { return ToApiError(failure); });
    }
  }
  for (Generation* generation : touched_) {
    generation->touched = false;
    if (!generation->ended) generation->exchange->Flush();
  }
  touched_.clear();
  working_ = false;
  Settle();
}

void Generations::Take(const Output& output, Place place) {
  Generation& generation = *place.generation;
  Choice& choice = generation.choices[place.choice];
  if (generation.admitted == 0) generation.admitted = output.admitted_at;
  TakePrompt(output, generation, choice);
  if (output.finish == FinishReason::kError) {
    generation.fault = output.fault;
    const bool asked_for_nothing = output.fault == RowFault::kNothingAllowed;
    return Fail(generation, {.status = asked_for_nothing ? 400 : 500, .message = output.error});
  }
  if (output.has_token) TakeTimes(generation, choice);
  const bool stream = generation.request.stream;
  out_.clear();
  if (stream && !choice.begun && (output.has_token || output.finish != FinishReason::kNone)) {
    WriteFirst(generation, choice);
  }
  const std::string_view text = choice.text.Take(
      output.has_token ? std::optional(output.token) : std::nullopt, output.finish);
  if (output.logprobs && generation.shows_logprobs()) {
    choice.logprobs.Add(*output.logprobs, choice.characters);
  }
  choice.characters += CountCharacters(choice.text.spelled());
  if (stream) WriteNext(output, generation, choice, text);
  if (choice.text.finished() && !generation.ended) EndChoice(output, generation, choice);
}

// Of the prompt: how much of it was cached, and its log-probabilities, in order. A request that was
// pre-empted may bring some again.
void Generations::TakePrompt(const Output& output, Generation& generation, Choice& choice) {
  int64_t& cached = generation.cached[choice.prompt];
  if (choice.index % generation.request.n == 0 && output.num_cached_tokens > cached) {
    generation.usage.cached_tokens += output.num_cached_tokens - cached;
    cached = output.num_cached_tokens;
  }
  if (choice.prompt_logprobs.empty()) {  // the first output
    choice.prompt_logprobs = "null";
    if (generation.echoes_logprobs()) {
      const ApiPrompt& prompt = generation.request.prompts[choice.prompt];
      choice.logprobs.AddUnforetold(prompt.ids[0], generation.echo_offsets[choice.prompt][0]);
      choice.characters = prompt.echo_characters;
    }
  }
  int position = output.first_prompt_position;
  for (const TokenLogprobs& token : output.prompt_logprobs) {
    if (position++ != choice.next_position) continue;
    if (generation.echoes_logprobs()) {
      choice.logprobs.Add(token, generation.echo_offsets[choice.prompt][choice.next_position]);
    }
    if (generation.request.prompt_logprobs) {
      JsonWriter json(choice.prompt_logprobs);
      WritePromptLogprobs(token, model_.tokenizer, json);
    }
    ++choice.next_position;
  }
}

void Generations::TakeTimes(Generation& generation, Choice& choice) {
  ++generation.usage.completion_tokens;
  if (generation.first_token == 0) {
    generation.first_token = now_;
    observer_.OnFirstToken(Seconds(now_ - generation.arrival));
  }
  generation.last_token = now_;
  const bool first = choice.last_token == 0;
  observer_.OnToken(first ? std::nullopt : std::optional(Seconds(now_ - choice.last_token)));
  choice.last_token = now_;
}

// A chat begins with its role; completions with their echo, if any.
void Generations::WriteFirst(Generation& generation, Choice& choice) {
  choice.begun = true;
  const ApiRequest& request = generation.request;
  const ApiPrompt& prompt = request.prompts[choice.prompt];
  const bool chat = request.kind == ApiRequest::Kind::kChat;
  if (!chat && !request.echo && !request.return_token_ids) return;
  generation.answer.WriteChunk({.index = choice.index,
                                .echo = prompt.echo,
                                .logprobs = choice.logprobs.empty() ? nullptr : &choice.logprobs,
                                .prompt_ids = prompt.ids,
                                .role = chat},
                               generation.usage, out_);
  choice.logprobs.Clear();
}

// The chunk of one output; none while nothing of it can be read.
void Generations::WriteNext(const Output& output, Generation& generation, Choice& choice,
                            std::string_view text) {
  const bool says_ids = generation.request.return_token_ids && output.has_token;
  if (!text.empty() || choice.text.finished() || says_ids || !choice.logprobs.empty()) {
    const std::span<const TokenId> ids = choice.text.token_ids();
    generation.answer.WriteChunk({.index = choice.index,
                                  .text = text,
                                  .logprobs = choice.logprobs.empty() ? nullptr : &choice.logprobs,
                                  .finish = choice.text.finish(),
                                  .stop_string = choice.text.stop_string(),
                                  .stop_token = choice.text.stop_token(),
                                  .token_ids = ids.last(output.has_token ? 1 : 0)},
                                 generation.usage, out_);
    choice.logprobs.Clear();
  }
  if (!out_.empty()) AppendOut(generation);
}

void Generations::AppendOut(Generation& generation) {
  if (!generation.stream_begun) {
    generation.exchange->StartStream({.content_type = "text/event-stream; charset=utf-8",
                                      .fields = {{"Cache-Control", "no-cache"}}});
    generation.stream_begun = true;
  }
  generation.exchange->Append(out_);
  if (generation.touched) return;
  generation.touched = true;
  touched_.push_back(&generation);
}

void Generations::EndChoice(const Output& output, Generation& generation, Choice& choice) {
  choice.ended = true;
  places_.erase(*choice.ticket);
  if (output.finish == FinishReason::kNone) engine_.Cancel(*choice.ticket);  // a stop string
  if (--generation.unfinished > 0) return;
  if (generation.request.stream) {
    out_.clear();
    generation.answer.WriteUsageChunk(generation.usage, out_);
    out_ += kStreamEnd;
    generation.exchange->Append(out_);
    generation.exchange->EndStream();
  } else {
    SendWhole(generation);
  }
  const std::string_view cut = generation.exchange->cut();
  End(generation, cut.empty() ? FinishWord(generation.choices.front().text.finish()) : "abort",
      cut);
}

void Generations::SendWhole(Generation& generation) {
  HttpResponse response;
  size_t size = 0;  // of what is mostly the largest part
  for (const Choice& choice : generation.choices) {
    size += generation.request.prompts[choice.prompt].echo.size() + choice.text.text().size();
  }
  response.body.reserve(size + size / 8);
  generation.answer.BeginWhole(response.body);
  ChoicePiece first;
  for (const Choice& choice : generation.choices) {
    const ApiPrompt& prompt = generation.request.prompts[choice.prompt];
    const Choice& scorer = generation.choices[choice.prompt * generation.request.n];
    const ChoicePiece piece{.index = choice.index,
                            .echo = prompt.echo,
                            .text = choice.text.text(),
                            .logprobs = generation.shows_logprobs() ? &choice.logprobs : nullptr,
                            .finish = choice.text.finish(),
                            .stop_string = choice.text.stop_string(),
                            .stop_token = choice.text.stop_token(),
                            .token_ids = choice.text.token_ids(),
                            .prompt_ids = prompt.ids,
                            .prompt_logprobs = scorer.prompt_logprobs};
    generation.answer.WriteChoice(piece, response.body);
    if (choice.index == 0) first = piece;
  }
  generation.answer.EndWhole(first, generation.usage, response.body);
  generation.exchange->Send(std::move(response));
}

void Generations::Fail(Generation& generation, const ApiError& error) {
  CancelChoices(generation);
  if (generation.stream_begun) {
    out_ = "data: ";
    WriteError(error, out_);
    out_ += "\n\n";
    out_ += kStreamEnd;
    generation.exchange->Append(out_);
    generation.exchange->EndStream();
  } else {
    HttpResponse answer = ErrorAnswer(error);
    answer.refusal.clear();  // End says it
    generation.exchange->Send(std::move(answer));
  }
  End(generation, "error", error.message);
}

// When memory is too short even for that, the client's connection ends with the generation.
void Generations::FailSafely(Generation& generation, const std::function<ApiError()>& error) {
  try {
    Fail(generation, error());
  } catch (const std::exception&) {
    CancelChoices(generation);
    if (!std::exchange(generation.ended, true)) ended_.push_back(generation.number);
  }
}

void Generations::FailAll(const ApiError& error) {
  for (auto& [number, generation] : running_) FailSafely(*generation, [&] { return error; });
  Settle();
}

void Generations::Leave(uint64_t number) {
  const auto found = running_.find(number);
  if (found == running_.end() || found->second->ended) return;
  CancelChoices(*found->second);
  End(*found->second, "abort", found->second->exchange->cut());
  if (!working_) Settle();
}

void Generations::CancelChoices(Generation& generation) {
  for (Choice& choice : generation.choices) {
    if (choice.ended || !choice.ticket) continue;
    choice.ended = true;
    places_.erase(*choice.ticket);
    engine_.Cancel(*choice.ticket);
  }
}

void Generations::End(Generation& generation, std::string_view finish, std::string_view error) {
  if (generation.ended) return;  // the client left while its last bytes were written
  generation.ended = true;
  ended_.push_back(generation.number);
  const int64_t now = clock_.NowNanos();
  RequestReport report{
      .request_id = generation.id,
      .endpoint = generation.request.kind == ApiRequest::Kind::kChat ? "chat" : "completions",
      .finish = finish,
      .error = error,
      .usage = generation.usage,
      .n = generation.request.n,
      .num_prompts = static_cast<int>(generation.request.prompts.size()),
      .max_tokens = generation.request.prompts.front().max_tokens,
      .fault = generation.fault,
      .prompt_seconds = Seconds(generation.submitted - generation.arrival),
      .decode_seconds = Seconds(generation.last_token - generation.first_token),
      .total_seconds = Seconds(now - generation.arrival)};
  if (generation.admitted != 0) {
    report.queue_seconds = Seconds(generation.admitted - generation.submitted);
  }
  if (generation.first_token != 0) {
    report.prefill_seconds = Seconds(generation.first_token - generation.admitted);
    report.first_token_seconds = Seconds(generation.first_token - generation.arrival);
  }
  try {
    observer_.OnEnd(report);
  } catch (const std::exception&) {
    // Memory is short: its line is lost, not the end itself.
  }
}

void Generations::Settle() {
  for (const uint64_t number : ended_) running_.erase(number);
  ended_.clear();
}

}  // namespace spry
