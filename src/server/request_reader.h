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

  // Parses on. `input` begins at the first byte not yet taken; returns how many bytes were taken.
  // Of the rest more is needed, unless the phase is kDone (it belongs to the next request) or
  // kRefused.
  size_t Read(std::string_view input);

  Phase phase() const { return phase_; }

  // After the head.
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
