// The server's own cost of a streamed token (detokenising, JSON, events; no sockets): CPU time and
// heap allocations of the I/O thread, and the heap that a running stream holds, engine included.
// Usage: stream_cost [STREAMS] [TOKENS]
#include <fmt/format.h>
#include <malloc.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/allocation_counter.h"
#include "tests/server_rig/api_rig.h"
#include "tests/support/cpu_time.h"

namespace spry {
namespace {

class CountingExchange final : public HttpExchange {
 public:
  explicit CountingExchange(std::string body) {
    request_.method = "POST";
    request_.path = "/v1/chat/completions";
    request_.body = std::move(body);
    request_.content_type = "application/json";
  }
  HttpRequest& request() override { return request_; }
  void AddField(std::string, std::string) override {}
  void Send(HttpResponse response) override {
    fmt::print(stderr, "refused: {}\n", response.body);
    std::exit(1);
  }
  void StartStream(HttpResponse) override {}
  void Append(std::string_view bytes) override { bytes_ += bytes.size(); }
  void Flush() override {}
  void EndStream() override { done_ = true; }
  std::string_view cut() const override { return {}; }
  void OnLeave(std::function<void()>) override {}

  size_t bytes() const { return bytes_; }
  bool done() const { return done_; }

 private:
  HttpRequest request_;
  size_t bytes_ = 0;
  bool done_ = false;
};

void Measure(const char* what, int streams, int tokens, const std::string& fields) {
  const auto heap = [] { return static_cast<double>(mallinfo2().uordblks); };
  ApiRig rig({.step_millis = 5,
              .max_model_len = tokens + 64,
              .max_rows = streams,
              .max_queue = streams,
              .kv_blocks = streams * (tokens + 64) / 8});
  const double heap_before = heap();
  std::vector<std::shared_ptr<CountingExchange>> exchanges;
  for (int i = 0; i < streams; ++i) {
    exchanges.push_back(std::make_shared<CountingExchange>(fmt::format(
        R"({{"messages":[{{"role":"user","content":"n{}"}}],"stream":true,"max_tokens":{}{}}})", i,
        tokens, fields)));
    for (const Endpoints::Endpoint& endpoint : rig.endpoints().List()) {
      if (endpoint.pattern == "/v1/chat/completions") endpoint.handler(exchanges.back());
    }
  }
  double held = 0, cpu = 0;
  uint64_t allocations = 0;
  while (rig.endpoints().running() > 0) {
    rig.WaitForOutputs();
    const uint64_t allocated = ThreadAllocations();
    const double begin = ThreadCpuSeconds();
    rig.endpoints().OnEngineReady();
    cpu += ThreadCpuSeconds() - begin;
    allocations += ThreadAllocations() - allocated;
    if (rig.endpoints().running() == streams) held = heap() - heap_before;
  }
  size_t bytes = 0;
  for (const auto& exchange : exchanges) bytes += exchange->bytes();
  const double total = static_cast<double>(streams) * tokens;
  fmt::print(
      "{}: {} streams of {} tokens: {:.2f} us of CPU a token, {:.2f} allocations, {:.0f} "
      "bytes written; {:.1f} KiB of heap a stream\n",
      what, streams, tokens, cpu * 1e6 / total, static_cast<double>(allocations) / total,
      static_cast<double>(bytes) / total, held / streams / 1024);
}

}  // namespace
}  // namespace spry

int main(int argc, char** argv) {
  const int streams = argc > 1 ? std::atoi(argv[1]) : 256;
  const int tokens = argc > 2 ? std::atoi(argv[2]) : 128;
  spry::Measure("text", streams, tokens, "");
  spry::Measure("text with stop strings", streams, tokens, R"(,"stop":["###","\n\nUser:"])");
  spry::Measure("logprobs, 5 of each", streams, tokens, R"(,"logprobs":true,"top_logprobs":5)");
}
