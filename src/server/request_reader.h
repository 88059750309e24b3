// Makes one HttpRequest of the bytes of a connection, however they are cut. Knows nothing of
// sockets. Stricter than its HTTP library: whatever two parsers could read differently (bare LF,
// folded lines, two lengths, a length beside chunks, control characters) is refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/http_server.h"

namespace spry {

class RequestReader {
 public:
  enum class Phase { kHead, kBody, kDone, kRefused };

  RequestReader(const HttpLimits& limits, const std::shared_ptr<BodyBudget>& bodies);
  ~RequestReader();

  // Parses on, the head or the body, not both in one call. `input` begins at the first byte not yet
  // taken; returns how many bytes were taken. When the phase stays what it was, more is needed.
  // What is left in phase kDone belongs to the next request.
  size_t Read(std::string_view input);

  Phase phase() const { return phase_; }

  // After the head.
  const HttpRequest& head() const;
  // Whether the body, none of which has been read, is known to have at most `bytes`.
  bool ends_within(size_t bytes) const;
  bool expects_continue() const;
  bool keep_alive() const;
  bool is_http10() const;

  // In phase kDone.
  HttpRequest TakeRequest();

  // In phase kRefused: the status and message to answer with.
  int status() const { return status_; }
  const std::string& message() const { return message_; }

 private:
  class Parser;

  bool ScanHead(std::string_view input);
  size_t ReadHead(std::string_view input);
  size_t ReadBody(std::string_view input);
  size_t Refuse(int status, std::string message);
  void RefuseAsParserSays();

  const HttpLimits& limits_;
  std::unique_ptr<Parser> parser_;
  Phase phase_ = Phase::kHead;
  size_t scanned_ = 0;  // bytes of the unfinished head that are known to be sound
  int status_ = 0;
  std::string message_;
};

}  // namespace spry
