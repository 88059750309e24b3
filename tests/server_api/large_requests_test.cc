// Requests with large bodies, which a thread of their own reads: beside streams, with clients that
// leave, and at the server's end.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tests/server_rig/api_rig.h"

namespace spry {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr const char* kCompletions = "/v1/completions";
// Prompts may have 16 MiB.
RigOptions LongModel() {
  constexpr int kTokens = 65536;
  return {.max_model_len = kTokens, .kv_blocks = kTokens / 64};
}

// Keeps the worker busy until it is let go, or this is gone.
class BusyWorker {
 public:
  explicit BusyWorker(PromptWorker& worker) {
    const auto began = std::make_shared<std::promise<void>>();
    std::future<void> has_begun = began->get_future();
    // The worker may still be at it when this is gone.
    worker.Add({}, [began, ends = std::shared_future(ends_.get_future())](const HttpRequest&) {
      began->set_value();
      ends.wait();
      return Prepared(HttpResponse());
    });
    has_begun.wait();
  }
  ~BusyWorker() { LetGo(); }
  void LetGo() {
    if (!std::exchange(let_go_, true)) ends_.set_value();
  }

 private:
  std::promise<void> ends_;
  bool let_go_ = false;
};

std::string Body(const std::string& prompt, const std::string& fields = "") {
  return "{\"prompt\":\"" + prompt + "\",\"max_tokens\":3" + fields + "}";
}

std::string Letters(size_t count) {
  std::string text(count, 'a');
  for (size_t i = 0; i < count; ++i) text[i] = static_cast<char>('a' + (i * 7919 >> 3) % 26);
  return text;
}

TEST(LargeRequestsTest, AreAnsweredAsSmallOnes) {
  ApiRig rig(LongModel());
  const std::string prompt = Letters(40000);
  const auto exchange = rig.Send("POST", kCompletions, Body(prompt));
  EXPECT_FALSE(exchange->done());
  EXPECT_EQ(rig.endpoints().running(), 1);
  EXPECT_EQ(rig.engine().live(), 0);
  EXPECT_TRUE(exchange->request().body.empty());
  rig.Run(*exchange);
  const json::object answer = json::parse(exchange->answer().body).as_object();
  const auto ids = rig.tokenizer().Encode(prompt, false);
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 40000);
  EXPECT_EQ(View(answer.at("choices").at(0).at("text")), rig.Text(rig.Expected(ids, 3)));
  EXPECT_EQ(rig.endpoints().running(), 0);
  EXPECT_GT(rig.ended().back().report.prompt_seconds, 0);

  const auto chat = rig.Stream(
      "/v1/chat/completions",
      R"({"stream":true,"max_tokens":3,"messages":[{"role":"user","content":")" + prompt + "\"}]}");
  const auto spelled = rig.tokenizer().Encode("<user>" + prompt + "\n<assistant>", false);
  EXPECT_EQ(JoinedTexts(chat, 1)[0], rig.Text(rig.Expected(spelled, 3)));

  EXPECT_EQ(rig.Ask("/tokenize", Body(prompt)).at("count"), 40000);
  std::string list;
  for (int i = 0; i < 20000; ++i) list += (i == 0 ? "97" : ",97");
  const json::object text = rig.Ask("/detokenize", "{\"tokens\":[" + list + "]}");
  EXPECT_EQ(View(text.at("prompt")), std::string(20000, 'a'));
}

TEST(LargeRequestsTest, AreRefusedAsSmallOnes) {
  ApiRig rig;
  const std::string prompt = Letters(20000);
  EXPECT_EQ(rig.Refusal(kCompletions, Body(prompt)).at("code"), "context_length_exceeded");
  EXPECT_EQ(rig.Refusal(kCompletions, Body(prompt, ",\"n\":0")).at("param"), "n");
  EXPECT_EQ(rig.Refusal(kCompletions, Body(prompt, ",\"model\":\"x\""), 404).at("param"), "model");
  EXPECT_NE(View(rig.Refusal(kCompletions, Body(prompt) + "]").at("message")).find("not JSON"),
            std::string_view::npos);
  EXPECT_EQ(rig.Refusal("/tokenize", Body(prompt, ",\"model\":\"x\""), 404).at("param"), "model");
  EXPECT_EQ(rig.endpoints().running(), 0);
  // A name that nobody knows is told once it has been read.
  ApiRig longer(LongModel());
  longer.Ask(kCompletions, Body(prompt, ",\"fly\":1"));
  EXPECT_EQ(longer.ignored(), std::vector<std::string>{"fly"});
}

TEST(LargeRequestsTest, StreamsKeepTheirPace) {
  RigOptions options = LongModel();
  options.step_millis = 5;
  ApiRig rig(std::move(options));
  const std::string body = Body(Letters(kSanitized ? 1 << 20 : 4 << 20));
  const auto stream =
      rig.Send("POST", kCompletions, R"({"prompt":[300],"max_tokens":20000,"stream":true})");
  rig.Turn();
  const auto begin = steady_clock::now();
  const auto large = rig.Send("POST", kCompletions, body);
  auto last = begin;
  steady_clock::duration longest{};
  while (!large->done()) {
    rig.Turn();
    const auto now = steady_clock::now();
    longest = std::max(longest, now - last);
    last = now;
  }
  EXPECT_EQ(large->answer().status, 400);  // too many tokens, after all
  EXPECT_GT(stream->flushes(), 5);
  const auto millis = [](auto time) {
    return std::chrono::duration_cast<milliseconds>(time).count();
  };
  printf("reading took %d ms, the longest gap of the stream was %d ms\n",
         static_cast<int>(millis(last - begin)), static_cast<int>(millis(longest)));
  // On a machine that has other work the test itself may be kept waiting.
  const steady_clock::duration part = (last - begin) / 3;
  if (!kSanitized) {
    EXPECT_LT(longest, std::max<steady_clock::duration>(milliseconds(250), part));
  }
  stream->Leave();
}

TEST(LargeRequestsTest, SmallOnesPassThem) {
  ApiRig rig(LongModel());
  BusyWorker busy(rig.worker());
  const auto large = rig.Send("POST", kCompletions, Body(Letters(30000)));
  rig.Ask(kCompletions, Body("small"));
  EXPECT_FALSE(large->done());
  busy.LetGo();
  rig.Run(*large);
  EXPECT_EQ(large->answer().status, 200);
}

// A template of the request's own may be small and slow.
TEST(LargeRequestsTest, RequestsWithTemplatesHoldUpNobody) {
  ApiRig rig({.trust_request_chat_template = true});
  const auto exchange =
      rig.Send("POST", "/v1/chat/completions",
               R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1,"chat_template":
                   "{% for i in range(9) %}{{ i }}{% endfor %}"})");
  EXPECT_FALSE(exchange->done());
  EXPECT_EQ(rig.endpoints().running(), 1);
  EXPECT_EQ(rig.engine().live(), 0);
  rig.Run(*exchange);
  EXPECT_EQ(json::parse(exchange->answer().body).at("usage").at("prompt_tokens"), 9);
}

TEST(LargeRequestsTest, TheSmallestComesFirst) {
  auto worker = *PromptWorker::Start();
  BusyWorker busy(*worker);
  const auto size = [](const HttpRequest& request) {
    return Prepared(HttpResponse{.body = std::to_string(request.body.size())});
  };
  for (const int bytes : {3, 1, 2, 1}) worker->Add({.body = std::string(bytes, 'x')}, size);
  busy.LetGo();
  std::vector<uint64_t> order;
  while (order.size() < 5) {
    for (const PromptWorker::Done& done : worker->TakeDone()) order.push_back(done.job);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{0, 2, 4, 3, 1}));
}

TEST(LargeRequestsTest, ThoseWhoseClientLeavesAreForgotten) {
  ApiRig rig(LongModel());
  auto busy = std::make_unique<BusyWorker>(rig.worker());
  const auto left = rig.Send("POST", kCompletions, Body(Letters(30000)));
  const auto stays = rig.Send("POST", kCompletions, Body(Letters(30001)));
  EXPECT_EQ(rig.endpoints().running(), 2);
  left->Leave();
  EXPECT_EQ(rig.endpoints().running(), 1);
  busy->LetGo();
  rig.Run(*stays);
  EXPECT_EQ(json::parse(stays->answer().body).at("usage").at("prompt_tokens"), 30001);
  EXPECT_EQ(rig.ended().size(), 1u);

  // In work, or read already: nothing of it reaches the engine.
  for (const milliseconds wait : {milliseconds(0), milliseconds(50)}) {
    const auto early = rig.Send("POST", kCompletions, Body(Letters(60000)));
    std::this_thread::sleep_for(wait);
    early->Leave();
    EXPECT_EQ(rig.endpoints().running(), 0);
    rig.Ask(kCompletions, Body(Letters(20000)));
    EXPECT_TRUE(early->answer().body.empty());
    EXPECT_EQ(rig.engine().live(), 0);
  }
  EXPECT_EQ(rig.ended().size(), 3u);
}

TEST(LargeRequestsTest, DrainingWaitsForThem) {
  ApiRig rig(LongModel());
  BusyWorker busy(rig.worker());
  const auto large = rig.Send("POST", kCompletions, Body(Letters(30000), ",\"stream\":true"));
  rig.endpoints().StartDraining();
  EXPECT_EQ(rig.endpoints().running(), 1);
  EXPECT_EQ(rig.Send("POST", kCompletions, Body(Letters(30000)))->answer().status, 503);
  busy.LetGo();
  rig.Run(*large);
  EXPECT_EQ(large->Events().back(), "[DONE]");
  EXPECT_EQ(rig.endpoints().running(), 0);
}

// The server goes while one request is in work, one waits, and one has been read.
TEST(LargeRequestsTest, TheServersEndIsClean) {
  for (const milliseconds wait : {milliseconds(0), milliseconds(20)}) {
    std::vector<std::shared_ptr<FakeExchange>> exchanges;
    {
      ApiRig rig(LongModel());
      for (int i = 0; i < 4; ++i) {
        exchanges.push_back(rig.Send("POST", kCompletions, Body(Letters(60000))));
      }
      std::this_thread::sleep_for(wait);
    }
    for (const auto& exchange : exchanges) {
      EXPECT_FALSE(exchange->done());
      EXPECT_EQ(exchange.use_count(), 1);
      exchange->Leave();  // harmless, though the server is gone
    }
  }
}

TEST(LargeRequestsTest, ThoseThatCannotWaitAreNotRead) {
  RigOptions options = LongModel();
  options.max_rows = options.max_queue = 1;
  ApiRig rig(std::move(options));
  BusyWorker busy(rig.worker());
  const auto first = rig.Send("POST", kCompletions, Body(Letters(30000)));
  const auto second = rig.Send("POST", kCompletions, Body(Letters(30000)));
  const auto third = rig.Send("POST", kCompletions, Body(Letters(30000)));
  EXPECT_EQ(third->answer().status, 429);
  busy.LetGo();
  rig.Run(*first);
  rig.Run(*second);
  EXPECT_EQ(second->answer().status, 200);
}

TEST(LargeRequestsTest, ACancelledBodyGivesItsMemoryBack) {
  auto worker = *PromptWorker::Start();
  const auto budget = std::make_shared<BodyBudget>(1000);
  BodyLease lease(budget);
  ASSERT_TRUE(lease.Grow(600));
  BusyWorker busy(*worker);
  const uint64_t job = worker->Add({.lease = std::move(lease)}, nullptr);
  EXPECT_FALSE(budget->HasRoom(0, 600));
  worker->Cancel(job);
  EXPECT_TRUE(budget->HasRoom(0, 600));
}

TEST(LargeRequestsTest, WhatALibraryThrowsCostsOneRequest) {
  auto worker = *PromptWorker::Start();
  const uint64_t bad =
      worker->Add({}, [](const HttpRequest&) -> Prepared { throw std::runtime_error("no luck"); });
  const uint64_t good = worker->Add({.body = "b"}, [](const HttpRequest& request) {
    return Prepared(HttpResponse{.body = request.body});
  });
  std::vector<PromptWorker::Done> all;
  while (all.size() < 2) {
    for (PromptWorker::Done& done : worker->TakeDone()) all.push_back(std::move(done));
  }
  EXPECT_EQ(all[0].job, bad);
  EXPECT_EQ(std::get<HttpResponse>(all[0].prepared).status, 500);
  EXPECT_EQ(all[1].job, good);
  EXPECT_EQ(std::get<HttpResponse>(all[1].prepared).body, "b");
}

}  // namespace
}  // namespace spry
