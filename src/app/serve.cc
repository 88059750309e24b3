// spry serve: an OpenAI-compatible server over one model. This thread carries the connections, the
// engine's thread computes; SIGTERM lets what runs come to its end first.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/command.h"
#include "app/flag_checks.h"
#include "app/flags.h"
#include "app/load_model.h"
#include "app/loading_signals.h"
#include "app/read_text.h"
#include "app/refusal_log.h"
#include "app/sampling_fields.h"
#include "app/serve_log.h"
#include "base/clock.h"
#include "engine/async_engine.h"
#include "server/endpoints.h"
#include "server/http_server.h"
#include "server/prompt_worker.h"
#include "server/router.h"
#include "server/served_model.h"

namespace spry {
namespace {

constexpr int kQueuePerRow = 4;  // --max-queue, where it is not given
constexpr std::chrono::milliseconds kDrainLook{20};
constexpr size_t kMostNamedFields = 8;  // in a line of the log

using Texts = std::vector<std::pair<std::string, std::string>>;

struct ServeFlags {
  Texts given;  // on the command line, by name
  DeviceFlags device;
  ModelFlags model;
  HttpServerOptions http;
  RouterOptions router;
  std::vector<std::string> names;  // --served-model-name
  std::string chat_template;       // a file
  bool trust_request_chat_template = false;
  std::optional<int> max_queue;
  int shutdown_timeout = 30;  // seconds
};

// The model as loaded, and as the answers see it.
struct Served {
  LoadedModel loaded;
  std::optional<ChatTemplate> chat_template;
  ServedModel model;
};

// The template of --chat-template, which takes the place of the model's.
Result<ChatTemplate> ReadTemplate(const std::string& file, ChatTemplateSource& source) {
  Result<std::string> text = ReadTextFile(file);
  if (!text.ok()) {
    return Status(text.status().code(), "--chat-template " + text.status().message());
  }
  source.text = *std::move(text);
  source.tool_use.clear();
  Result<ChatTemplate> made = ChatTemplate::Create(source);
  if (made.ok()) return made;
  return Status(made.status().code(),
                fmt::format("--chat-template {}: {}", file, made.status().message()));
}

Result<std::unique_ptr<Served>> LoadServed(const ServeFlags& flags) {
  auto served = std::make_unique<Served>();
  SPRY_ASSIGN_OR_RETURN(served->loaded, LoadModel(flags.device, flags.model));
  LoadedModel& loaded = served->loaded;
  ServedModel& model = served->model;
  if (!flags.chat_template.empty()) {
    if (!loaded.chat_template) loaded.chat_template.emplace();
    SPRY_ASSIGN_OR_RETURN(served->chat_template,
                          ReadTemplate(flags.chat_template, *loaded.chat_template));
  } else if (loaded.chat_template) {
    SPRY_ASSIGN_OR_RETURN(served->chat_template, ChatTemplate::Create(*loaded.chat_template));
  }
  if (loaded.chat_template) {
    model.chat_template = &*served->chat_template;
    model.special_texts = loaded.chat_template->special_tokens;
  }
  const MemoryPlan& memory = loaded.engine->memory_plan();
  model.names = flags.names;
  if (model.names.empty()) model.names.push_back(flags.model.model);
  model.tokenizer = loaded.tokenizer.get();
  model.trust_request_chat_template = flags.trust_request_chat_template;
  model.vocab_size = loaded.engine->program().vocab_size;
  model.max_model_len = memory.max_model_len;
  model.max_choices =
      memory.limits.max_rows + flags.max_queue.value_or(kQueuePerRow * memory.limits.max_rows);
  model.defaults = DefaultSampling(loaded.config.sampling_defaults);
  model.created = std::chrono::duration_cast<std::chrono::seconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  model.fingerprint = "spry-" SPRY_VERSION;
  return served;
}

std::string Milliseconds(std::optional<double> seconds) {
  return seconds ? fmt::format("{:.2f}", *seconds * 1e3) : "-";
}

void LogRequest(const RequestReport& report) {
  Log(LogLevel::kInfo, "request",
      {{"id", report.request_id},
       {"endpoint", report.endpoint},
       {"prompt_tokens", std::to_string(report.usage.prompt_tokens)},
       {"cached_tokens", std::to_string(report.usage.cached_tokens)},
       {"output_tokens", std::to_string(report.usage.completion_tokens)},
       {"prompt_ms", Milliseconds(report.prompt_seconds)},
       {"queue_ms", Milliseconds(report.queue_seconds)},
       {"prefill_ms", Milliseconds(report.prefill_seconds)},
       {"first_token_ms", Milliseconds(report.first_token_seconds)},
       {"decode_ms", Milliseconds(report.decode_seconds)},
       {"total_ms", Milliseconds(report.total_seconds)},
       {"finish", report.finish},
       {"error", report.error.empty() ? "-" : report.error}});
}

void LogCut(const HttpCut& cut) {
  Log(LogLevel::kWarning, "cut",
      {{"id", cut.request_id}, {"unsent_bytes", std::to_string(cut.unsent)}, {"error", cut.why}});
}

void LogIgnored(std::string_view request_id, const std::vector<std::string>& fields) {
  std::string names;
  for (size_t i = 0; i < std::min(fields.size(), kMostNamedFields); ++i) {
    names += fmt::format("{}{:.64}", i == 0 ? "" : ",", fields[i]);
  }
  if (fields.size() > kMostNamedFields) names += fmt::format(",...{} in all", fields.size());
  Log(LogLevel::kWarning, "ignored fields", {{"id", request_id}, {"fields", names}});
}

class Server {
 public:
  Server(const ServeFlags& flags, std::unique_ptr<HttpServer> http, Router& router,
         std::unique_ptr<Served> served, std::unique_ptr<AsyncEngine> engine,
         std::unique_ptr<PromptWorker> worker, Texts facts)
      : shutdown_timeout_(flags.shutdown_timeout),
        served_(std::move(served)),
        engine_(std::move(engine)),
        worker_(std::move(worker)),
        http_(std::move(http)),
        endpoints_(*engine_, *worker_, served_->model, clock_,
                   {.version = SPRY_VERSION,
                    .facts = std::move(facts),
                    .flags = flags.given,
                    .on_end = LogRequest,
                    .on_ignored = LogIgnored}) {
    for (Endpoints::Endpoint& endpoint : endpoints_.List()) {
      router.Add(endpoint.method, endpoint.pattern, std::move(endpoint.handler),
                 std::move(endpoint.check));
    }
    http_->Watch(engine_->output_event(), [this] { OnEngineReady(); });
    http_->Watch(worker_->done_event(), [this] { endpoints_.OnWorkerReady(); });
    for (const int signal : {SIGTERM, SIGINT}) {
      http_->OnSignal(signal, [this] { Drain("signal", kExitDone); });
    }
  }

  int Run() {
    Log(LogLevel::kInfo, "serving",
        {{"address", http_->address()}, {"model", served_->model.names[0]}});
    http_->Run();
    Log(LogLevel::kInfo, "stopped", {});
    IgnoreFurtherSignals();
    return exit_code_;
  }

 private:
  // What is left is to give things back. With the server its handlers go, and what came late would
  // end the process as if it had not ended well. The other threads take no signals at all.
  static void IgnoreFurtherSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGTERM, SIGINT}) sigaddset(&signals, signal);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  }

  void OnEngineReady() {
    endpoints_.OnEngineReady();
    if (engine_->status().lost) Drain("the device failed", kExitFailed);
  }

  // The first time: no new work, and what runs may end. The second time: the end.
  void Drain(std::string_view why, int exit_code) {
    if (drain_ends_) return Cut();
    exit_code_ = exit_code;
    Log(LogLevel::kInfo, "draining",
        {{"why", why}, {"running", std::to_string(endpoints_.running())}});
    endpoints_.StartDraining();
    http_->StopAccepting();
    drain_ends_ = clock_.NowNanos() + int64_t{shutdown_timeout_} * 1'000'000'000;
    LookWhetherDrained();
  }

  void LookWhetherDrained() {
    const bool done = endpoints_.running() == 0 && http_->connections() == 0;
    if (done || clock_.NowNanos() >= *drain_ends_) return Cut();
    http_->After(kDrainLook, [this] { LookWhetherDrained(); });
  }

  void Cut() {
    if (const int running = endpoints_.running(); running > 0) {
      Log(LogLevel::kWarning, "cutting", {{"running", std::to_string(running)}});
    }
    endpoints_.FailAll();
    http_->Stop();
  }

  const int shutdown_timeout_;
  const SteadyClock clock_;
  std::unique_ptr<Served> served_;
  std::unique_ptr<AsyncEngine> engine_;
  std::unique_ptr<PromptWorker> worker_;
  std::unique_ptr<HttpServer> http_;
  Endpoints endpoints_;
  std::optional<int64_t> drain_ends_;
  int exit_code_ = kExitDone;
};

// Secrets are not shown.
Texts GivenFlags(const CLI::App& parser) {
  Texts given;
  for (const CLI::Option* option : parser.get_options()) {
    if (option->count() == 0) continue;
    const bool secret = option->get_name() == "--api-key";
    given.emplace_back(option->get_name(),
                       secret ? "***" : fmt::format("{}", fmt::join(option->results(), ",")));
  }
  return given;
}

Result<int> RunServe(const ServeFlags& flags) {
  std::signal(SIGPIPE, SIG_IGN);  // who reads the log may go away
  Router router(flags.router);
  // Bound before the model is loaded: a port in use is known at once, and early clients wait.
  HttpServerOptions options = flags.http;
  const SteadyClock clock;
  RefusalLog refusals(clock);
  options.on_refused = [&refusals](const HttpRefusal& refusal) { refusals.Add(refusal); };
  options.on_cut = LogCut;
  options.check_head = [&router](const HttpRequest& head) { return router.CheckHead(head); };
  SPRY_ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> http,
                        HttpServer::Listen(options, [&router](auto exchange) {
                          router.Handle(std::move(exchange));
                        }));
  std::optional<LoadingSignals> signals;
  signals.emplace([&http] { http->RemoveSocketFile(); });
  SPRY_ASSIGN_OR_RETURN(std::unique_ptr<Served> served, LoadServed(flags));
  Texts facts = {{"model", flags.model.model},
                 {"device", served->loaded.device},
                 {"memory_plan", served->loaded.engine->memory_plan().ToString()}};
  SPRY_ASSIGN_OR_RETURN(std::unique_ptr<AsyncEngine> engine,
                        AsyncEngine::Start(std::move(served->loaded.engine),
                                           {.max_live = served->model.max_choices}));
  SPRY_ASSIGN_OR_RETURN(std::unique_ptr<PromptWorker> worker, PromptWorker::Start());
  Server server(flags, std::move(http), router, std::move(served), std::move(engine),
                std::move(worker), std::move(facts));
  signals.reset();  // the server takes them now
  return server.Run();
}

void AddServerFlags(CLI::App& parser, ServeFlags& flags) {
  const char* group = "Server";
  const auto add = [&parser, group](const char* name, auto& value, const char* help) {
    return parser.add_option(name, value, help)->group(group);
  };
  add("--host", flags.http.host, "Address or name to listen at; 0.0.0.0 or ::: all [127.0.0.1]");
  add("--port", flags.http.port, "TCP port; 0: any free one [8000]")->check(Between(0, 65535));
  add("--uds", flags.http.unix_socket, "Unix socket to listen at; host and port are not used then")
      ->type_name("PATH");
  add("--ssl-certfile", flags.http.tls_cert_file, "Certificate chain for TLS, PEM")
      ->type_name("FILE");
  add("--ssl-keyfile", flags.http.tls_key_file, "Its private key, PEM")->type_name("FILE");
  add("--api-key", flags.router.api_keys, "Key that clients must send; may be repeated")
      ->allow_extra_args(false);
  add("--allowed-origins", flags.router.allowed_origins, "Origins that browsers may come from [*]")
      ->check(Origin())
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--served-model-name", flags.names,
      "What clients call the model; may be repeated, the first is in answers [MODEL]")
      ->allow_extra_args(false);
  add("--chat-template", flags.chat_template, "Chat template to use instead of the model's")
      ->type_name("FILE");
  parser
      .add_flag("--trust-request-chat-template", flags.trust_request_chat_template,
                "Let requests bring chat templates of their own")
      ->group(group);
  add("--max-queue", flags.max_queue,
      "Requests that may wait beyond those running; more get 429 [4x --max-num-seqs]")
      ->check(Between(0, 1 << 20));
  add("--shutdown-timeout", flags.shutdown_timeout,
      "Seconds that running requests have to end after SIGTERM [30]")
      ->check(Between(0, 86400));
}

}  // namespace

Command AddServe(CLI::App& parent) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App& parser = *parent.add_subcommand("serve", "Serve a model: OpenAI's API and a chat page");
  parser.footer(
      "SIGTERM or Ctrl-C stops taking requests and lets running ones end; a second one ends "
      "all.\n\n"
      "Examples:\n"
      "  spry serve SmolLM2-135M-Instruct.Q4_1.gguf --served-model-name smollm2\n"
      "  spry serve ./SmolLM2-135M --host 0.0.0.0 --api-key secret --max-num-seqs 32");
  AddModelFlags(parser, flags->model);
  AddServerFlags(parser, *flags);
  AddDeviceFlags(parser, flags->device);
  return {.parser = &parser, .run = [flags, &parser] {
            flags->given = GivenFlags(parser);
            return RunServe(*flags);
          }};
}

}  // namespace spry
