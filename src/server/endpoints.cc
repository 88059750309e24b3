#include "server/endpoints.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

#include "server/chat_page.h"
#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/json_writer.h"
#include "server/sampling_request.h"
#include "server/text_endpoints.h"

namespace spry {
namespace {

constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

void SendJson(HttpExchange& exchange, std::string body) {
  exchange.Send({.body = std::move(body)});
}

void SendPage(HttpExchange& exchange) {
  exchange.Send({.content_type = "text/html; charset=utf-8",
                 .body = std::string(ChatPage()),
                 .fields = {{"Content-Security-Policy", std::string(kChatPagePolicy)},
                            {"X-Content-Type-Options", "nosniff"}}});
}

void WriteText(std::string_view key, std::string_view value, JsonWriter& json) {
  json.Key(key);
  json.String(value);
}

std::optional<HttpResponse> CheckJson(const HttpRequest& head) {
  const std::optional<ApiError> error = CheckJsonType(head.content_type);
  return error ? std::optional(ErrorAnswer(*error)) : std::nullopt;
}

using Reader = std::optional<ApiError> (*)(const boost::json::object&, const ServedModel&,
                                           ApiRequest&);
template <Reader read>
Prepared PrepareGeneration(const HttpRequest& http, const ServedModel& model) {
  const JsonBody body = ParseJsonBody(http);
  if (body.error) return ErrorAnswer(*body.error);
  ApiRequest request;
  const std::optional<ApiError> error = read(body.object, model, request);
  if (error) return ErrorAnswer(*error);
  return request;
}

template <HttpResponse (*answer)(const HttpRequest&, const ServedModel&)>
Prepared PrepareAnswer(const HttpRequest& http, const ServedModel& model) {
  return answer(http, model);
}

}  // namespace

Endpoints::Endpoints(AsyncEngine& engine, PromptWorker& worker, const ServedModel& model,
                     const Clock& clock, EndpointsOptions options)
    : engine_(engine),
      worker_(worker),
      model_(model),
      clock_(clock),
      options_(std::move(options)),
      metrics_(model.names.front(), engine.memory_plan(), options_.on_end),
      generations_(engine, model, clock, metrics_) {}

Endpoints::~Endpoints() {
  for (auto& [job, reading] : reading_) {
    worker_.Cancel(job);
    reading.exchange->OnLeave({});
  }
}

std::vector<Endpoints::Endpoint> Endpoints::List() {
  const auto plain = [](auto answer) {
    return [answer](const Exchange& exchange) { answer(*exchange); };
  };
  const auto read = [this](Prepare prepare) {
    return [this, prepare](Exchange exchange) { Read(std::move(exchange), prepare); };
  };
  const auto health = plain([this](HttpExchange& e) { Health(e); });
  const auto version = plain([this](HttpExchange& e) {
    std::string body;
    JsonWriter json(body);
    json.BeginObject();
    WriteText("version", options_.version, json);
    json.EndObject();
    SendJson(e, std::move(body));
  });
  const auto metrics = plain([this](HttpExchange& e) {
    e.Send({.content_type = kMetricsType, .body = metrics_.Text(engine_.status())});
  });
  const auto check = [this](const HttpRequest& head) { return CheckGeneration(head); };
  return {
      {"POST", "/v1/chat/completions", read(PrepareGeneration<ReadChatRequest>), check},
      {"POST", "/v1/completions", read(PrepareGeneration<ReadCompletionRequest>), check},
      {"GET", "/v1/models", plain([this](HttpExchange& e) { Models(e); })},
      {"GET", "/v1/models/{id}", plain([this](HttpExchange& e) { Model(e); })},
      {"POST", "/tokenize", read(PrepareAnswer<AnswerTokenize>), CheckJson},
      {"POST", "/detokenize", read(PrepareAnswer<AnswerDetokenize>), CheckJson},
      {"GET", "/health", health},
      {"GET", "/ping", health},
      {"POST", "/ping", health},
      {"GET", "/version", version},
      {"GET", "/metrics", metrics},
      {"GET", "/server_info", plain([this](HttpExchange& e) { ServerInfo(e); })},
      {"POST", "/reset_prefix_cache", [this](Exchange e) { ResetPrefixCache(std::move(e)); }},
      {"GET", "/", plain(SendPage)},
  };
}

std::optional<HttpResponse> Endpoints::CheckGeneration(const HttpRequest& head) const {
  if (draining_) {
    return ErrorAnswer(
        {.status = 503, .message = "the server is shutting down and takes no new requests"});
  }
  return CheckJson(head);
}

// A template of the request's own may take a second or two, as long as templates may.
bool Endpoints::IsReadInline(const HttpRequest& request) const {
  return request.body.size() <= kMostInlineBytes && !model_.trust_request_chat_template;
}

// Reads a request, here or on the worker's thread.
void Endpoints::Read(Exchange exchange, Prepare prepare) {
  const int64_t arrival = clock_.NowNanos();
  HttpRequest& http = exchange->request();
  const bool is_inline = IsReadInline(http);
  // Each of those that are being read will be one answer at least.
  const int answers = engine_.live() + static_cast<int>(reading_.size());
  if (!is_inline && answers >= model_.max_choices) {
    return exchange->Send(ErrorAnswer(TooManyAnswers(answers, model_)));
  }
  // An exchange stays on this thread; and a long stream does not keep its body.
  HttpRequest body{.body = std::move(http.body),
                   .lease = std::move(http.lease),
                   .content_type = http.content_type};
  if (is_inline) {
    return Take(std::move(exchange), prepare(body, model_), arrival);
  }
  HttpExchange& client = *exchange;
  const uint64_t job = worker_.Add(
      std::move(body),
      [prepare, model = &model_](const HttpRequest& request) { return prepare(request, *model); });
  reading_.emplace(job, Reading{.exchange = std::move(exchange), .arrival = arrival});
  client.OnLeave([this, job] {
    worker_.Cancel(job);
    reading_.erase(job);
  });
}

void Endpoints::OnWorkerReady() {
  for (PromptWorker::Done& done : worker_.TakeDone()) {
    auto reading = reading_.extract(done.job);
    if (reading.empty()) continue;  // its client has left
    const Reading& of = reading.mapped();
    try {
      Take(of.exchange, std::move(done.prepared), of.arrival);
    } catch (const std::exception&) {
      // Memory is short: the request is dropped, which its exchange says.
    }
  }
}

void Endpoints::Take(Exchange exchange, Prepared prepared, int64_t arrival) {
  if (auto* answer = std::get_if<HttpResponse>(&prepared)) {
    return exchange->Send(std::move(*answer));
  }
  auto& request = std::get<ApiRequest>(prepared);
  if (!request.ignored.empty() && options_.on_ignored) {
    options_.on_ignored(request.id.empty() ? exchange->request().request_id : request.id,
                        request.ignored);
  }
  generations_.Start(std::move(exchange), std::move(request), arrival);
}

void Endpoints::OnEngineReady() {
  outputs_.clear();
  engine_.TakeOutputs(outputs_);
  if (!resets_.empty()) {
    for (const Output& output : outputs_) TakeReset(output);
  }
  generations_.OnOutputs(outputs_);
}

void Endpoints::FailAll() {
  const ApiError error{.status = 503,
                       .message = "the server was stopped before this answer was complete"};
  for (auto& [job, reading] : std::exchange(reading_, {})) {
    worker_.Cancel(job);
    reading.exchange->Send(ErrorAnswer(error));
  }
  for (auto& [ticket, exchange] : std::exchange(resets_, {})) exchange->Send(ErrorAnswer(error));
  generations_.FailAll(error);
}

void Endpoints::WriteModel(std::string_view name, JsonWriter& json) const {
  json.BeginObject();
  WriteText("id", name, json);
  WriteText("object", "model", json);
  json.Key("created");
  json.Integer(model_.created);
  WriteText("owned_by", "spry", json);
  WriteText("root", model_.names.front(), json);
  json.Key("parent");
  json.Null();
  json.Key("max_model_len");
  json.Integer(model_.max_model_len);
  json.EndObject();
}

void Endpoints::Models(HttpExchange& exchange) const {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  WriteText("object", "list", json);
  json.Key("data");
  json.BeginArray();
  for (const std::string& name : model_.names) WriteModel(name, json);
  json.EndArray();
  json.EndObject();
  SendJson(exchange, std::move(body));
}

void Endpoints::Model(HttpExchange& exchange) const {
  const std::string& name = exchange.request().parameter;
  if (!model_.IsServed(name)) return exchange.Send(ErrorAnswer(UnknownModel(name, model_)));
  std::string body;
  JsonWriter json(body);
  WriteModel(name, json);
  SendJson(exchange, std::move(body));
}

void Endpoints::Health(HttpExchange& exchange) const {
  if (engine_.status().lost) {
    return exchange.Send(
        ErrorAnswer({.status = 503, .message = "the device has failed; restart the server"}));
  }
  if (draining_) {
    return exchange.Send(ErrorAnswer({.status = 503, .message = "the server is shutting down"}));
  }
  SendJson(exchange, "{}");
}

void Endpoints::ServerInfo(HttpExchange& exchange) const {
  const MemoryPlan& plan = engine_.memory_plan();
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  WriteText("version", options_.version, json);
  json.Key("served_model_names");
  json.BeginArray();
  for (const std::string& name : model_.names) json.String(name);
  json.EndArray();
  for (const auto& [name, value] : options_.facts) WriteText(name, value, json);
  json.Key("flags");
  json.BeginObject();
  for (const auto& [name, value] : options_.flags) WriteText(name, value, json);
  json.EndObject();
  json.Key("limits");
  json.BeginObject();
  const auto number = [&](std::string_view name, int64_t value) {
    json.Key(name);
    json.Integer(value);
  };
  number("max_model_len", plan.max_model_len);
  number("max_num_seqs", plan.limits.max_rows);
  number("max_num_batched_tokens", plan.limits.max_tokens);
  number("block_size", plan.limits.block_size);
  number("num_blocks", plan.limits.num_blocks);
  json.EndObject();
  json.EndObject();
  SendJson(exchange, std::move(body));
}

void Endpoints::ResetPrefixCache(Exchange exchange) {
  const Ticket ticket = engine_.ResetPrefixCache();
  resets_.emplace(ticket, std::move(exchange));
}

void Endpoints::TakeReset(const Output& output) {
  const auto reset = resets_.extract(output.ticket);
  if (reset.empty()) return;
  if (output.finish == FinishReason::kStop) {
    SendJson(*reset.mapped(), R"({"reset":true})");
  } else {
    reset.mapped()->Send(ErrorAnswer(
        {.status = 503,
         .message = "running requests hold cached prefixes; try again when they have ended"}));
  }
}

}  // namespace spry
