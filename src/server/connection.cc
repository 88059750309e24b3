#include "server/connection.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <exception>
#include <utility>

#include "base/check.h"
#include "server/api_error.h"
#include "server/connection_exchange.h"

namespace spry {
namespace {

namespace asio = boost::asio;

// Requests sent ahead of their turn. When they fill this, reading pauses until an answer ends, and
// such a client's end is noticed by its reset or by a failed write alone.
constexpr size_t kMaxPipelinedBytes = 64 << 10;
// Then others have their turn.
constexpr int kReadsAtOnce = 16;
// How long a client may take to notice that its connection is closed.
constexpr std::chrono::seconds kLingerTime{2};
// A larger input buffer is given back when it is empty.
constexpr size_t kKeptInputBytes = 512;

}  // namespace

Connection::Connection(ConnectionSet& set, int socket, std::unique_ptr<Transport> transport)
    : set_(set),
      socket_(set.io.get_executor(), socket),
      transport_(std::move(transport)),
      timer_(set.io.get_executor()) {}

Connection::~Connection() { CHECK(exchange_ == nullptr); }

// What runs in the event loop. Memory that can't be had, or an error of the library's, costs this
// connection and no other.
template <typename F>
auto Connection::Guarded(F body) {
  return [self = shared_from_this(), body](const boost::system::error_code& error = {}) {
    if (self->state_ == State::kClosed) return;
    try {
      body(*self, error);
    } catch (const std::exception&) {
      self->Close();
    }
  };
}

void Connection::Start() {
  EnterPhase();
  Guarded([](Connection& c, const auto&) { c.Progress(); })();
}

void Connection::StartRefusing(HttpResponse error) {
  refusal_ = std::make_unique<HttpResponse>(std::move(error));
  Start();
}

void Connection::FinishSoon() {
  if (state_ == State::kHandshake || (state_ == State::kOpen && !exchange_ && !reader_)) {
    writer_.unsent() > 0 ? FinishConnection() : Close();
  }
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  const auto self = shared_from_this();
  set_.open.erase(this);
  timer_.cancel();
  boost::system::error_code ignored;
  socket_.close(ignored);
  writer_.Drop();
  if (exchange_ != nullptr) exchange_->Leave();
}

// From within calls of the exchange: its owner is not to be called back there.
void Connection::Abandon(std::string_view why) {
  if (abandoned_ || state_ == State::kClosed) return;
  abandoned_ = true;
  ReportCut(why);
  writer_.Drop();
  try {
    asio::post(set_.io, Guarded([](Connection& c, const auto&) { c.Close(); }));
  } catch (const std::exception&) {
    shutdown(socket_.native_handle(), SHUT_RDWR);  // which wakes what waits for it
  }
}

// `why` is a literal.
void Connection::ReportCut(std::string_view why) {
  if (exchange_ != nullptr) return exchange_->set_cut(why);
  const auto unsent = static_cast<int64_t>(writer_.unsent());
  if (unsent == 0 || !set_.on_cut) return;
  set_.on_cut({.request_id = request_id_, .unsent = unsent, .why = why});
}

// Whatever woke it, does everything that can be done now.
void Connection::Progress() {
  if (abandoned_) return Close();
  if (state_ == State::kHandshake) {
    switch (transport_->Handshake()) {
      case IoState::kDone: break;
      case IoState::kWantRead: UpdateTimer(); return AwaitReadable();
      case IoState::kWantWrite: UpdateTimer(); return AwaitWritable();
      default: return Close();
    }
    state_ = State::kOpen;
    EnterPhase();
    if (refusal_ != nullptr) RefuseRequest(*refusal_);
  }
  Write();
  Receive();
  if (state_ == State::kClosed) return;
  if (peer_ended_) OnPeerEnd();
  if (state_ == State::kClosed) return;
  UpdateTimer();
  if (read_wants_write_ || write_blocked_) AwaitWritable();
  if (!peer_ended_ && !reading_pauses()) AwaitReadable();
}

void Connection::AwaitReadable() {
  if (std::exchange(awaits_readable_, true)) return;
  socket_.async_wait(asio::posix::descriptor_base::wait_read,
                     Guarded([](Connection& c, const auto& error) {
                       c.awaits_readable_ = false;
                       error ? c.Close() : c.Progress();
                     }));
}

void Connection::AwaitWritable() {
  if (std::exchange(awaits_writable_, true)) return;
  socket_.async_wait(asio::posix::descriptor_base::wait_write,
                     Guarded([](Connection& c, const auto& error) {
                       c.awaits_writable_ = false;
                       error ? c.Close() : c.Progress();
                     }));
}

// A client that does not take its answers gets no further ones.
bool Connection::is_busy() const { return exchange_ != nullptr || writer_.unsent() > 0; }

bool Connection::reading_pauses() const {
  return state_ == State::kOpen && is_busy() && input_.size() >= kMaxPipelinedBytes;
}

void Connection::Receive() {
  read_wants_write_ = false;
  for (int i = 0; i < kReadsAtOnce; ++i) {
    ServeInput();
    if (state_ == State::kClosed || abandoned_ || peer_ended_ || reading_pauses()) return;
    const IoOutcome outcome = transport_->Read(set_.read_buffer);
    switch (outcome.state) {
      case IoState::kDone:
        if (state_ == State::kOpen) input_.append(set_.read_buffer.data(), outcome.bytes);
        break;
      case IoState::kWantRead: return;
      case IoState::kWantWrite: read_wants_write_ = true; return;
      case IoState::kEnd: peer_ended_ = true; break;
      case IoState::kFailed: return Close();
    }
  }
  // The transport may hold more that no readiness will announce.
  asio::post(set_.io, Guarded([](Connection& c, const auto&) { c.Progress(); }));
}

// Takes requests out of the input, each when the one before it has been answered.
void Connection::ServeInput() {
  serving_input_ = true;
  while (state_ == State::kOpen && exchange_ == nullptr && !abandoned_ && !input_.empty()) {
    if (reader_ == nullptr) {
      if (is_busy()) break;
      reader_ = std::make_unique<RequestReader>(set_.limits, set_.bodies);
      EnterPhase();
    }
    const auto phase_before = reader_->phase();
    input_.erase(0, reader_->Read(input_));
    const auto phase = reader_->phase();
    if (phase == RequestReader::Phase::kRefused) {
      RefuseRequest(ErrorAnswer(reader_->status(), reader_->message()));
    } else if (phase == RequestReader::Phase::kDone) {
      Dispatch();
    } else if (phase == phase_before) {
      break;
    } else if (const std::optional<HttpResponse> refusal = CheckHead()) {
      RefuseRequest(*refusal);
    } else {
      EnterPhase();
      if (reader_->expects_continue() && input_.empty() && !reader_->is_http10()) {
        writer_.Continue();
        Write();
      }
    }
  }
  serving_input_ = false;
  if (input_.empty() && input_.capacity() > kKeptInputBytes) std::string().swap(input_);
}

// Of a request whose body is still to come.
std::optional<HttpResponse> Connection::CheckHead() const {
  if (!set_.check_head || reader_->ends_within(input_.size())) return {};
  return set_.check_head(reader_->head());
}

void Connection::Dispatch() {
  is_http10_ = reader_->is_http10();
  keep_alive_ = reader_->keep_alive();
  HttpRequest request = reader_->TakeRequest();
  reader_.reset();
  is_head_ = request.method == "HEAD";
  if (request.request_id.empty()) request.request_id = set_.request_ids.Next();
  request_id_ = request.request_id;
  auto exchange = std::make_shared<Exchange>(*this, std::move(request));
  exchange_ = exchange.get();
  try {
    set_.handler(exchange);
  } catch (const std::exception& failure) {
    exchange->Fail(ToApiError(failure));
  }
}

// The rest of the input can't be understood, or is not wanted: the connection ends with the answer.
void Connection::RefuseRequest(const HttpResponse& error) {
  static const HttpRequest kNone;
  const HttpRequest& request = reader_ == nullptr ? kNone : reader_->head();
  request_id_ = request.request_id.empty() ? set_.request_ids.Next() : request.request_id;
  ReportRefusal(request, error, request_id_);
  writer_.Reply(error, {.keep_alive = false, .request_id = request_id_});
  FinishConnection();
}

void Connection::ReportRefusal(const HttpRequest& request, const HttpResponse& answer,
                               std::string_view id) {
  if (answer.refusal.empty() || !set_.on_refused) return;
  set_.on_refused({.method = request.method,
                   .path = request.path,
                   .status = answer.status,
                   .why = answer.refusal,
                   .request_id = id});
}

// The client has ended its side and every whole request before that was handed over.
void Connection::OnPeerEnd() {
  if (state_ == State::kLingering || exchange_ != nullptr || writer_.unsent() == 0) Close();
}

AnswerForm Connection::form() const {
  return {.is_head = is_head_,
          .is_http10 = is_http10_,
          .keep_alive = keep_alive_ && !set_.draining,
          .request_id = exchange_->request_id()};
}

void Connection::Reply(const HttpResponse& response) {
  if (abandoned_) return;
  if (!LeaseAnswer(static_cast<int64_t>(response.body.size()))) {
    return Reply(ErrorAnswer(503, "too much is waiting for clients to read it; try again"));
  }
  const AnswerForm answer_form = form();
  keep_alive_ = answer_form.keep_alive;
  ReportRefusal(exchange_->request(), response, answer_form.request_id);
  writer_.Reply(response, answer_form);
}

// Usual answers are not counted. False: there is no room for it.
bool Connection::LeaseAnswer(int64_t size) {
  if (size <= kSmallBodyBytes) return true;
  if (!answer_lease_) answer_lease_.emplace(set_.answers);
  return answer_lease_->Grow(size);
}

void Connection::StartStream(const HttpResponse& head) {
  if (abandoned_) return;
  AnswerForm answer_form = form();
  if (is_http10_) answer_form.keep_alive = false;
  keep_alive_ = answer_form.keep_alive;
  writer_.StartStream(head, answer_form);
}

void Connection::Append(std::string_view bytes) {
  if (!abandoned_) writer_.Append(bytes);
}

void Connection::Flush() {
  if (abandoned_) return;
  writer_.EndPiece();
  Write();
  LeaseUnsent();
}

// Of a stream: what its client has yet to take, beyond what each may have.
void Connection::LeaseUnsent() {
  const auto unsent = static_cast<int64_t>(writer_.unsent());
  if (unsent <= set_.limits.unsent_bytes) return answer_lease_.reset();
  if (!answer_lease_) answer_lease_.emplace(set_.answers);
  if (!answer_lease_->Resize(writer_.held())) {
    Abandon("too much of all answers together waits for clients to read it");
  }
}

void Connection::EndStream() {
  if (!abandoned_) writer_.EndStream();
}

void Connection::FinishAnswer() {
  if (abandoned_) return;
  EnterPhase();
  if (!keep_alive_ || set_.draining) return FinishConnection();
  Write();
  UpdateTimer();
  // In ServeInput the loop goes on by itself; else the next request waits in the input, perhaps.
  if (!serving_input_ && !input_.empty()) {
    asio::post(set_.io, Guarded([](Connection& c, const auto&) { c.Progress(); }));
  }
}

// Gives the socket what is unsent, as far as it takes it. Called by exchanges as well as by the
// event loop, so it never closes the connection there and then.
void Connection::Write() {
  if (abandoned_ || writer_.unsent() == 0) return;
  bool progress = false;
  const IoState state = writer_.WriteTo(*transport_, progress);
  if (state == IoState::kFailed || state == IoState::kEnd) return Abandon("the connection broke");
  const bool was_blocked = std::exchange(write_blocked_, state == IoState::kWantWrite);
  if (state == IoState::kDone) {
    answer_lease_.reset();
    if (state_ == State::kFinishing) BeginLinger();
  } else if (progress || !was_blocked) {
    write_progress_ = Clock::now();
    queued_ = QueuedBytes();
    if (answer_lease_) answer_lease_->Resize(writer_.held());
  }
  if (write_blocked_) AwaitWritable();
  UpdateTimer();
}

void Connection::FinishConnection() {
  state_ = State::kFinishing;
  reader_.reset();
  std::string().swap(input_);
  if (writer_.unsent() == 0) return BeginLinger();
  Write();
}

void Connection::BeginLinger() {
  state_ = State::kLingering;
  EnterPhase();
  transport_->FinishWriting();
  if (peer_ended_) return Abandon("the client has left");
  UpdateTimer();
}

Connection::Clock::time_point Connection::Deadline() const {
  const HttpLimits& limits = set_.limits;
  if (state_ == State::kHandshake) return phase_since_ + limits.header_time;
  if (state_ == State::kLingering) return phase_since_ + kLingerTime;
  const auto unsent = static_cast<int64_t>(writer_.unsent());
  if (unsent > limits.unsent_bytes) return write_progress_ + limits.stall_time;
  if (unsent > 0) return write_progress_ + limits.write_time;
  if (exchange_ != nullptr) return Clock::time_point::max();
  if (reader_ == nullptr) return phase_since_ + limits.idle_time;
  return phase_since_ +
         (reader_->phase() == RequestReader::Phase::kHead ? limits.header_time : limits.body_time);
}

// The timer is set anew only for an earlier deadline. One that has moved on is met when the timer
// fires, so that streams pay nothing for theirs.
void Connection::UpdateTimer() {
  const Clock::time_point deadline = Deadline();
  if (state_ == State::kClosed || deadline >= timer_at_) return;
  timer_at_ = deadline;
  timer_.expires_at(deadline);
  timer_.async_wait(Guarded([](Connection& c, const auto& error) {
    if (error) return;  // set anew
    c.timer_at_ = Clock::time_point::max();
    c.Deadline() <= Clock::now() ? c.OnDeadline() : c.UpdateTimer();
  }));
}

// What the kernel has of the answer, that the client's side has not taken.
int64_t Connection::QueuedBytes() {
  int queued = 0;
  return ioctl(socket_.native_handle(), SIOCOUTQ, &queued) == 0 ? queued : 0;
}

void Connection::OnDeadline() {
  if (writer_.unsent() > 0) {
    // The kernel's buffer is megabytes, and asks for more when a third of it is free: a client may
    // read all the time and we see nothing of it.
    const int64_t queued_before = std::exchange(queued_, QueuedBytes());
    if (queued_ >= queued_before) {
      ReportCut("the client does not read its answer");
      return Close();
    }
    write_progress_ = Clock::now();
    return UpdateTimer();
  }
  if (state_ != State::kOpen || reader_ == nullptr) return Close();
  const bool in_head = reader_->phase() == RequestReader::Phase::kHead;
  RefuseRequest(ErrorAnswer(408, in_head ? "the request's head did not arrive in time"
                                         : "the request's body did not arrive in time"));
  UpdateTimer();
}

}  // namespace spry
