#include "tests/server_rig/api_rig.h"

#include <poll.h>

#include <chrono>

#include "device/null/null_device.h"
#include "tests/support/tiny_models.h"
#include "tests/text/tiny_vocabulary.h"
#include "text/utf8.h"

namespace spry {
namespace {

VocabSource RigVocabulary(const RigOptions& options) {
  VocabSource source = ByteVocabulary();
  source.bos = AddToken(Special("<s>"), source);
  source.eos = AddToken(Special("</s>"), source);
  for (int id = kEos + 1; id < options.vocab_size; ++id) {
    source.pieces.push_back(Spelled(" w" + std::to_string(id)));
  }
  source.add_bos = options.add_bos;
  source.chat_template = options.chat_template;
  return source;
}

}  // namespace

Checkpoint RigCheckpoint(const RigOptions& options) {
  ModelConfig config = TinyLlamaConfig();
  config.vocab_size = options.vocab_size;
  config.eos_tokens = options.eos_tokens;
  config.max_position = std::max<int64_t>(config.max_position, options.max_model_len);
  return DummyCheckpoint(config);
}

EngineOptions RigEngineOptions(const RigOptions& options) {
  EngineOptions engine;
  engine.runner.memory = {.max_rows = options.max_rows,
                          .max_step_tokens = 64,
                          .max_model_len = options.max_model_len,
                          .block_size = 8,
                          .kv_bytes = int64_t{options.kv_blocks} << 13,
                          .run_ahead = 1};
  return engine;
}

ApiRig::ApiRig(RigOptions options) {
  const VocabSource vocabulary = RigVocabulary(options);
  tokenizer_ = Build(vocabulary);
  std::optional<ChatTemplateSource> source = ChatTemplateOf(vocabulary);
  if (source) {
    auto chat = ChatTemplate::Create(*source);
    CHECK(chat.ok());
    chat_template_ = *std::move(chat);
    model_.special_texts = source->special_tokens;
  }
  const NullDeviceOptions null{.step_nanos = int64_t{options.step_millis} * 1'000'000,
                               .clock = &clock_};
  auto device = options.device ? std::move(options.device) : MakeNullDevice(null);
  auto engine =
      Engine::Create(std::move(device), RigCheckpoint(options), RigEngineOptions(options));
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  auto async =
      AsyncEngine::Start(*std::move(engine), {.max_live = options.max_rows + options.max_queue});
  CHECK(async.ok());
  engine_ = *std::move(async);
  auto worker = PromptWorker::Start();
  CHECK(worker.ok());
  worker_ = *std::move(worker);
  model_.names = {"tiny", "org/tiny"};
  model_.tokenizer = options.has_tokenizer ? tokenizer_.get() : nullptr;
  model_.chat_template = chat_template_ ? &*chat_template_ : nullptr;
  model_.trust_request_chat_template = options.trust_request_chat_template;
  model_.vocab_size = options.vocab_size;
  model_.max_model_len = options.max_model_len;
  model_.max_choices = options.max_rows + options.max_queue;
  model_.defaults = options.defaults;
  model_.created = 1700000000;
  model_.fingerprint = "spry-test";
  EndpointsOptions rest{
      .version = "1.2.3", .facts = {{"device", "null"}}, .flags = {{"--port", "1"}}};
  rest.on_end = [this](const RequestReport& report) {
    ended_.push_back({std::string(report.finish), report});
    // What lives no longer than the call.
    ended_.back().report.request_id = ended_.back().report.finish = {};
    ended_.back().report.error = {};
  };
  rest.on_ignored = [this](std::string_view, const std::vector<std::string>& fields) {
    ignored_ = fields;
  };
  endpoints_ = std::make_unique<Endpoints>(*engine_, *worker_, model_, clock_, std::move(rest));
  list_ = endpoints_->List();
}

ApiRig::Exchange ApiRig::Send(std::string method, std::string path, std::string body,
                              std::string content_type) {
  auto exchange =
      std::make_shared<FakeExchange>(HttpRequest{.method = method,
                                                 .path = path,
                                                 .body = std::move(body),
                                                 .content_type = std::move(content_type),
                                                 .request_id = "r1"});
  for (const Endpoints::Endpoint& endpoint : list_) {
    const size_t brace = endpoint.pattern.find('{');
    const bool fits = brace == std::string::npos
                          ? path == endpoint.pattern
                          : path.starts_with(endpoint.pattern.substr(0, brace));
    if (!fits || method != endpoint.method) continue;
    if (brace != std::string::npos) exchange->request().parameter = path.substr(brace);
    auto refusal = endpoint.check ? endpoint.check(exchange->request()) : std::nullopt;
    refusal ? exchange->Send(*std::move(refusal)) : endpoint.handler(exchange);
    return exchange;
  }
  ADD_FAILURE() << "no endpoint " << method << " " << path;
  return exchange;
}

void ApiRig::WaitForOutputs() {
  pollfd waited[] = {{.fd = engine_->output_event(), .events = POLLIN, .revents = 0},
                     {.fd = worker_->done_event(), .events = POLLIN, .revents = 0}};
  constexpr int kMillis = 20'000;
  ASSERT_GE(poll(waited, std::size(waited), kMillis), 1) << "engine and worker say nothing";
}

void ApiRig::Run(const FakeExchange& exchange) {
  while (!exchange.done() && !testing::Test::HasFatalFailure()) Turn();
}

ApiRig::Exchange ApiRig::Post(std::string path, std::string body) {
  Exchange exchange = Send("POST", std::move(path), std::move(body));
  Run(*exchange);
  return exchange;
}

json::object ApiRig::Ask(std::string path, std::string body) {
  const Exchange exchange = Post(std::move(path), std::move(body));
  EXPECT_EQ(exchange->answer().status, 200) << exchange->answer().body;
  EXPECT_TRUE(IsValidUtf8(exchange->answer().body));
  return json::parse(exchange->answer().body).as_object();
}

json::object ApiRig::Refusal(std::string path, std::string body, int status) {
  const Exchange exchange = Post(std::move(path), body);
  EXPECT_EQ(exchange->answer().status, status) << body << "\n" << exchange->answer().body;
  const json::value answer = json::parse(exchange->answer().body);
  const json::value* error = answer.as_object().if_contains("error");
  return error == nullptr ? json::object() : error->as_object();
}

std::vector<json::object> ApiRig::Stream(std::string path, std::string body) {
  const Exchange exchange = Post(std::move(path), std::move(body));
  EXPECT_TRUE(exchange->streams()) << exchange->answer().body;
  EXPECT_EQ(exchange->answer().content_type, "text/event-stream; charset=utf-8");
  std::vector<std::string> events = exchange->Events();
  EXPECT_EQ(events.back(), "[DONE]");
  std::vector<json::object> chunks;
  for (const std::string& event : events) {
    EXPECT_TRUE(IsValidUtf8(event));
    if (event != "[DONE]") chunks.push_back(json::parse(event).as_object());
  }
  return chunks;
}

std::vector<TokenId> ApiRig::Expected(std::vector<TokenId> prompt, int count) const {
  std::vector<TokenId> outputs;
  int token = prompt.back().value();
  int position = static_cast<int>(prompt.size()) - 1;
  for (int i = 0; i < count; ++i) {
    token = NullToken(token, position++, static_cast<int>(model_.vocab_size));
    outputs.emplace_back(token);
  }
  return outputs;
}

std::string ApiRig::Text(const std::vector<TokenId>& ids) const {
  constexpr bool kSkipSpecialTokens = true;
  return tokenizer_->Decode(ids, kSkipSpecialTokens);
}

std::string_view View(const json::value& value) {
  const json::string& text = value.as_string();
  return {text.data(), text.size()};
}

std::vector<std::string> JoinedTexts(const std::vector<json::object>& chunks, int num_choices) {
  std::vector<std::string> texts(num_choices);
  for (const json::object& chunk : chunks) {
    for (const json::value& choice : chunk.at("choices").as_array()) {
      const json::object& fields = choice.as_object();
      const json::value* text = fields.if_contains("text");
      if (text == nullptr) text = fields.at("delta").as_object().if_contains("content");
      if (text != nullptr) texts.at(fields.at("index").to_number<int>()) += View(*text);
    }
  }
  return texts;
}

}  // namespace spry
