// A server without a network: endpoints over a real engine of a tiny model, on the null device
// (whose tokens are known beforehand) or another one.
//
// The vocabulary: ids 0 to 255 are the bytes, 256 is <s> and 257 </s>, both special; from 258 on
// id i is the word " wi" (with a vocabulary of 1024 the null device says only such words).
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "device/device.h"
#include "engine/async_engine.h"
#include "server/endpoints.h"
#include "tests/server_rig/fake_exchange.h"

namespace spry {

namespace json = boost::json;

inline constexpr int kBos = 256, kEos = 257;

struct RigOptions {
  std::unique_ptr<Device> device;  // null: the null device
  int step_millis = 0;             // of the null device
  int vocab_size = 1024;
  int max_model_len = 128;
  int max_rows = 8;
  int max_queue = 64;
  int kv_blocks = 256;
  bool add_bos = false;
  std::vector<TokenId> eos_tokens = {TokenId(kEos)};
  std::string chat_template =
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  bool has_tokenizer = true;
  bool trust_request_chat_template = false;
  SamplingParams defaults;
};

class ApiRig {
 public:
  explicit ApiRig(RigOptions options = {});

  using Exchange = std::shared_ptr<FakeExchange>;
  // Hands a request in; Run brings its answer.
  Exchange Send(std::string method, std::string path, std::string body,
                std::string content_type = "application/json");
  void Run(const FakeExchange& exchange);
  void WaitForOutputs();
  // One turn: waits for outputs or read requests and takes them.
  void Turn() {
    WaitForOutputs();
    endpoints_->OnEngineReady();
    endpoints_->OnWorkerReady();
  }
  Exchange Post(std::string path, std::string body);
  // The body of an answer of 200.
  json::object Ask(std::string path, std::string body);
  // The body's "error" of an answer of `status`.
  json::object Refusal(std::string path, std::string body, int status = 400);
  // The chunks of a stream, which must end with [DONE]; that is left out.
  std::vector<json::object> Stream(std::string path, std::string body);

  // What the null device answers to `prompt`, as ids and as text.
  std::vector<TokenId> Expected(std::vector<TokenId> prompt, int count) const;
  std::string Text(const std::vector<TokenId>& ids) const;

  AsyncEngine& engine() { return *engine_; }
  PromptWorker& worker() { return *worker_; }
  Endpoints& endpoints() { return *endpoints_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  ServedModel& model() { return model_; }
  const std::vector<std::string>& ignored() const { return ignored_; }
  struct Ended {
    std::string finish;
    RequestReport report;  // without texts
  };
  const std::vector<Ended>& ended() const { return ended_; }

 private:
  SteadyClock clock_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  ServedModel model_;
  std::unique_ptr<AsyncEngine> engine_;
  std::unique_ptr<PromptWorker> worker_;
  std::unique_ptr<Endpoints> endpoints_;
  std::vector<Endpoints::Endpoint> list_;
  std::vector<std::string> ignored_;
  std::vector<Ended> ended_;
};

// The checkpoint of the rig's model.
Checkpoint RigCheckpoint(const RigOptions& options);
EngineOptions RigEngineOptions(const RigOptions& options);

// The texts of a stream's chunks, by choice.
std::vector<std::string> JoinedTexts(const std::vector<json::object>& chunks, int num_choices);

std::string_view View(const json::value& value);

}  // namespace spry
