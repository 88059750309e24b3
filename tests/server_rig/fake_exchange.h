// An exchange without a network: keeps what it is given.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http.h"

namespace spry {

class FakeExchange final : public HttpExchange {
 public:
  explicit FakeExchange(HttpRequest request) : request_(std::move(request)) {}

  HttpRequest& request() override { return request_; }
  void AddField(std::string, std::string) override {}

  void Send(HttpResponse response) override {
    EXPECT_FALSE(done_ || streams_) << "answered twice";
    answer_ = std::move(response);
    done_ = true;
  }
  void StartStream(HttpResponse head) override {
    EXPECT_FALSE(done_ || streams_) << "answered twice";
    answer_ = std::move(head);
    streams_ = true;
  }
  void Append(std::string_view bytes) override {
    EXPECT_TRUE(streams_ && !done_);
    answer_.body += bytes;
    unflushed_ += bytes.size();
  }
  void Flush() override {
    EXPECT_TRUE(streams_ && !done_);
    EXPECT_GT(unflushed_, 0u) << "an empty write";
    unflushed_ = 0;
    ++flushes_;
  }
  void EndStream() override {
    EXPECT_TRUE(streams_ && !done_);
    done_ = true;
  }
  std::string_view cut() const override { return {}; }
  void OnLeave(std::function<void()> left) override { left_ = std::move(left); }

  // The client goes away; called from the event loop.
  void Leave() {
    done_ = true;
    if (left_) std::exchange(left_, {})();
  }

  const HttpResponse& answer() const { return answer_; }
  bool done() const { return done_; }
  bool streams() const { return streams_; }
  int flushes() const { return flushes_; }

  // The data of each event of a stream.
  std::vector<std::string> Events() const {
    std::vector<std::string> events;
    std::string_view rest = answer_.body;
    while (!rest.empty()) {
      const size_t end = rest.find("\n\n");
      EXPECT_NE(end, std::string_view::npos) << "a stream ends in mid-event";
      EXPECT_TRUE(rest.starts_with("data: ")) << rest;
      if (end == std::string_view::npos || !rest.starts_with("data: ")) break;
      events.emplace_back(rest.substr(6, end - 6));
      rest.remove_prefix(end + 2);
    }
    return events;
  }

 private:
  HttpRequest request_;
  HttpResponse answer_;
  std::function<void()> left_;
  size_t unflushed_ = 0;
  int flushes_ = 0;
  bool streams_ = false;
  bool done_ = false;
};

}  // namespace spry
