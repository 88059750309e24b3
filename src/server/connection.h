// One client's connection, from its accept to its end: reads requests one after another, hands each
// to the handler, writes the answers, keeps the time limits and notices when the client leaves.
//
// Driven by readiness (the socket can be read, can be written, a deadline has come) rather than by
// a coroutine: it waits for two of these at once, and answers begin and end from outside. So an
// idle stream costs this object, two pending waits and no read buffer.
//
// Everything runs on the I/O thread. The set of connections owns each until Close; pending waits
// keep it alive until they have returned. Nothing throws out of here.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/answer_writer.h"
#include "server/body_budget.h"
#include "server/http.h"
#include "server/http_server.h"
#include "server/request_ids.h"
#include "server/request_reader.h"
#include "server/transport.h"

namespace spry {

class Connection;

// What the connections of one server have in common.
struct ConnectionSet {
  boost::asio::io_context io{1};
  HttpLimits limits;
  std::shared_ptr<BodyBudget> bodies;   // shared with requests, which may outlive the server
  std::shared_ptr<BodyBudget> answers;  // of large answers that clients have not read yet
  HttpHandler handler;
  HttpHeadCheck check_head;  // may be empty, as on_refused
  std::function<void(const HttpRefusal&)> on_refused;
  std::function<void(const HttpCut&)> on_cut;
  RequestIds request_ids;
  std::vector<char> read_buffer = std::vector<char>(64 << 10);
  bool draining = false;  // every connection closes with its answer's end
  std::unordered_map<Connection*, std::shared_ptr<Connection>> open;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionSet& set, int socket, std::unique_ptr<Transport> transport);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Start();
  // Instead of Start: answers with an error, once the client can be talked to.
  void StartRefusing(HttpResponse error);
  // Closes now if no request is in work, else with its answer's end.
  void FinishSoon();
  // The client of an unfinished answer has left. Not to be called from within an exchange's calls.
  void Close();

 private:
  class Exchange;
  using Clock = std::chrono::steady_clock;
  using Executor = boost::asio::io_context::executor_type;

  enum class State {
    kHandshake,
    kOpen,
    kFinishing,  // no further request; what is unsent goes out
    kLingering,  // everything is out; reads and drops, or a reset would overtake the answer
    kClosed,
  };

  // The event loop's entry points.
  template <typename F>
  auto Guarded(F body);
  void Progress();
  void AwaitReadable();
  void AwaitWritable();
  void OnDeadline();

  // Reading.
  void Receive();
  void ServeInput();
  void Dispatch();
  std::optional<HttpResponse> CheckHead() const;
  void RefuseRequest(const HttpResponse& error);
  void ReportRefusal(const HttpRequest& request, const HttpResponse& answer, std::string_view id);
  void OnPeerEnd();
  bool is_busy() const;
  bool reading_pauses() const;

  // Answering; called by the exchange.
  AnswerForm form() const;
  void Reply(const HttpResponse& response);
  void StartStream(const HttpResponse& head);
  void Append(std::string_view bytes);
  void Flush();
  void EndStream();
  void FinishAnswer();

  bool LeaseAnswer(int64_t size);
  void LeaseUnsent();
  int64_t QueuedBytes();
  void Write();
  void FinishConnection();
  void BeginLinger();
  void Abandon(std::string_view why);  // Close, soon
  void ReportCut(std::string_view why);

  void EnterPhase() { phase_since_ = Clock::now(); }
  Clock::time_point Deadline() const;
  void UpdateTimer();

  ConnectionSet& set_;
  boost::asio::posix::basic_stream_descriptor<Executor> socket_;
  std::unique_ptr<Transport> transport_;
  boost::asio::basic_waitable_timer<Clock, boost::asio::wait_traits<Clock>, Executor> timer_;
  Clock::time_point timer_at_ = Clock::time_point::max();
  Clock::time_point phase_since_;     // of the handshake, the wait for a request, its head ...
  Clock::time_point write_progress_;  // while something is unsent
  int64_t queued_ = 0;                // in the kernel then
  State state_ = State::kHandshake;

  std::string input_;  // received, not yet taken by reader_
  std::unique_ptr<RequestReader> reader_;
  AnswerWriter writer_;
  std::optional<BodyLease> answer_lease_;  // of what writer_ has of large answers
  Exchange* exchange_ = nullptr;           // of the request in work
  std::unique_ptr<HttpResponse> refusal_;

  // Of the request in work.
  std::string request_id_;
  bool is_head_ = false;
  bool is_http10_ = false;
  bool keep_alive_ = true;

  bool awaits_readable_ = false;
  bool awaits_writable_ = false;
  bool serving_input_ = false;
  bool read_wants_write_ = false;
  bool write_blocked_ = false;
  bool peer_ended_ = false;
  bool abandoned_ = false;
};

}  // namespace spry
