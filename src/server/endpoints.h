// What the server answers to, path by path. Owns the running requests; lives on the I/O thread.
// Requests with large bodies are read by the PromptWorker.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/async_engine.h"
#include "server/api_request.h"
#include "server/generations.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/prompt_worker.h"
#include "server/served_model.h"

namespace spry {

struct EndpointsOptions {
  std::string version;
  // For /server_info, beside "version", "served_model_names" and "limits"; `flags` as an object.
  std::vector<std::pair<std::string, std::string>> facts;
  std::vector<std::pair<std::string, std::string>> flags;  // as the server was started with
  std::function<void(const RequestReport&)> on_end;        // of each request for text; may be empty
  // Of fields that nobody knows, with the request's id; may be empty.
  std::function<void(std::string_view request_id, const std::vector<std::string>& fields)>
      on_ignored;
};

// A larger body is not read on the I/O thread. The slowest text, one without spaces, takes about
// 5 ms for as much.
inline constexpr size_t kMostInlineBytes = 16 << 10;

class Endpoints {
 public:
  // All references must outlive this.
  Endpoints(AsyncEngine& engine, PromptWorker& worker, const ServedModel& model, const Clock& clock,
            EndpointsOptions options);
  ~Endpoints();

  struct Endpoint {
    std::string method;
    std::string pattern;  // a path; "{id}" at its end takes the rest
    HttpHandler handler;  // until this is gone; not for what `check` refuses
    HttpHeadCheck check;  // may be empty
  };
  std::vector<Endpoint> List();

  // The engine has outputs to take.
  void OnEngineReady();
  // The worker has read requests.
  void OnWorkerReady();

  // From now on new work is refused with 503.
  void StartDraining() { draining_ = true; }
  // Ends what runs: every client is told, as far as its connection takes it at once.
  void FailAll();
  // Requests that have not been answered to their end.
  int running() const {
    return generations_.running() + static_cast<int>(resets_.size() + reading_.size());
  }

 private:
  using Exchange = std::shared_ptr<HttpExchange>;
  using Prepare = Prepared (*)(const HttpRequest&, const ServedModel&);
  // A request that the worker has.
  struct Reading {
    Exchange exchange;
    int64_t arrival = 0;
  };

  bool IsReadInline(const HttpRequest& request) const;
  std::optional<HttpResponse> CheckGeneration(const HttpRequest& head) const;
  void Read(Exchange exchange, Prepare prepare);
  void Take(Exchange exchange, Prepared prepared, int64_t arrival);
  void Models(HttpExchange& exchange) const;
  void Model(HttpExchange& exchange) const;
  void Health(HttpExchange& exchange) const;
  void ServerInfo(HttpExchange& exchange) const;
  void ResetPrefixCache(Exchange exchange);
  void TakeReset(const Output& output);
  void WriteModel(std::string_view name, JsonWriter& json) const;

  AsyncEngine& engine_;
  PromptWorker& worker_;
  const ServedModel& model_;
  const Clock& clock_;
  const EndpointsOptions options_;
  Metrics metrics_;
  Generations generations_;
  bool draining_ = false;
  std::unordered_map<uint64_t, Reading> reading_;  // by the worker's job
  std::unordered_map<Ticket, Exchange> resets_;    // waiting for the engine's word
  std::vector<Output> outputs_;
};

}  // namespace spry
