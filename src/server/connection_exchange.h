// The exchange that a connection gives to handlers. Private to connection.cc.
#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/api_error.h"
#include "server/connection.h"
#include "server/http.h"

namespace spry {

// Shared by the handler; knows its connection until the answer's end or the client's.
class Connection::Exchange final : public HttpExchange {
 public:
  Exchange(Connection& connection, HttpRequest request)
      : connection_(&connection), request_(std::move(request)) {}

  ~Exchange() override {
    Safely([this](Connection&) { Fail({.status = 500, .message = "the request was dropped"}); });
    if (connection_ != nullptr) Detach();  // there was no memory to tell the client
  }

  // Instead of an answer, or of what a stream still lacks.
  void Fail(const ApiError& error) {
    if (connection_ == nullptr) return;
    if (!streaming_) return Send(ErrorAnswer(error));
    Detach()->Abandon("the stream was dropped");
  }

  HttpRequest& request() override { return request_; }

  void AddField(std::string name, std::string value) override {
    Safely([&](Connection&) { fields_.emplace_back(std::move(name), std::move(value)); });
  }

  void Send(HttpResponse response) override {
    CHECK(connection_ == nullptr || !streaming_);
    Safely([&](Connection& connection) {
      TakeFields(response);
      connection.Reply(response);
      Finish();
    });
  }

  void StartStream(HttpResponse head) override {
    CHECK(connection_ == nullptr || !streaming_);
    Safely([&](Connection& connection) {
      streaming_ = true;
      TakeFields(head);
      connection.StartStream(head);
    });
  }

  void Append(std::string_view bytes) override {
    Safely([&](Connection& connection) { connection.Append(bytes); });
  }

  void Flush() override {
    Safely([&](Connection& connection) { connection.Flush(); });
  }

  void EndStream() override {
    CHECK(connection_ == nullptr || streaming_);
    Safely([&](Connection& connection) {
      connection.EndStream();
      Finish();
    });
  }

  std::string_view cut() const override { return cut_; }
  void set_cut(std::string_view why) { cut_ = why; }

  void OnLeave(std::function<void()> left) override {
    if (connection_ != nullptr) left_ = std::move(left);
  }

  const std::string& request_id() const { return request_.request_id; }

  void Leave() {
    Detach();
    if (const auto left = std::exchange(left_, nullptr)) left();
  }

 private:
  // Nothing once the answer has ended or the client has left. What is thrown is memory that can't
  // be had; then nobody knows how much of the answer is there.
  template <typename F>
  void Safely(F body) {
    if (connection_ == nullptr) return;
    Connection& connection = *connection_;
    try {
      body(connection);
    } catch (const std::exception&) {
      connection.Abandon("memory is short");
    }
  }

  void TakeFields(HttpResponse& response) {
    std::ranges::move(fields_, std::back_inserter(response.fields));
    fields_ = {};
  }

  // Drops the callback last: what it captured may own this exchange.
  void Finish() {
    const auto left = std::exchange(left_, nullptr);
    Detach()->FinishAnswer();
  }

  Connection* Detach() {
    connection_->exchange_ = nullptr;
    return std::exchange(connection_, nullptr);
  }

  Connection* connection_;
  HttpRequest request_;
  std::vector<std::pair<std::string, std::string>> fields_;
  std::function<void()> left_;
  std::string_view cut_;
  bool streaming_ = false;
};

}  // namespace spry
