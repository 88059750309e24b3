#include "server/request_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

namespace spry {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

// A chunk's size line with its extensions, and the trailer with the last one.
constexpr size_t kMaxChunkLineBytes = 8 << 10;
constexpr size_t kMaxRequestIdBytes = 128;
// What a client only says it will send is not reserved at once.
constexpr uint64_t kMaxReservedBytes = 1 << 20;

std::string_view View(beast::string_view text) { return {text.data(), text.size()}; }

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

bool IsSafeRequestId(std::string_view id) {
  return id.size() <= kMaxRequestIdBytes &&
         std::ranges::all_of(id, [](char c) { return c > 0x20 && c < 0x7f; });
}

bool IsDigits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// "http://host/path?query" or "/path?query" -> "/path".
std::string_view PathOf(std::string_view target) {
  if (const size_t scheme = target.find("://");
      scheme != std::string_view::npos && target.front() != '/') {
    target.remove_prefix(scheme + 3);
    const size_t path = target.find_first_of("/?");
    target = path == std::string_view::npos || target[path] == '?' ? "/" : target.substr(path);
  }
  return target.substr(0, target.find_first_of("?#"));
}

}  // namespace

// Keeps of the head what HttpRequest has, and counts what may be there once.
class RequestReader::Parser final : public http::basic_parser<true> {
 public:
  Parser(const HttpLimits& limits, const std::shared_ptr<BodyBudget>& bodies)
      : bodies_limit_(bodies->limit()) {
    request.lease = BodyLease(bodies);
    header_limit(static_cast<uint32_t>(limits.header_bytes));
    body_limit(static_cast<uint64_t>(limits.body_bytes));
  }

  HttpRequest request;
  bool is_http10 = false;
  bool expects_continue = false;
  std::string NoRoom() const {
    return fmt::format(
        "the bodies of all requests together may take {} bytes of memory, and there is no room for "
        "this one now; try again later",
        bodies_limit_);
  }

  int status = 400;     // with `message`: our own reason to refuse
  std::string message;  // empty: none

 private:
  void Refuse(beast::error_code& ec, int why_status, std::string why) {
    status = why_status;
    message = std::move(why);
    ec = http::error::bad_field;
  }

  void on_request_impl(http::verb, beast::string_view method, beast::string_view target,
                       int version, beast::error_code&) override {
    request.method = View(method);
    request.path = PathOf(View(target));
    is_http10 = version == 10;
  }

  void on_field_impl(http::field field, beast::string_view name, beast::string_view text,
                     beast::error_code& ec) override {
    if (header_done_) return;  // a trailer: nothing in it is of use here
    const std::string_view value = View(text);
    switch (field) {
      case http::field::content_length:
        if (has_length_ || !IsDigits(value)) {
          Refuse(ec, 400, "Content-Length must be there once, as one number");
        }
        has_length_ = true;
        return;
      case http::field::transfer_encoding:
        if (!beast::iequals(text, "chunked") || is_http10) {
          Refuse(ec, 400, "Transfer-Encoding must be \"chunked\" alone, in HTTP/1.1");
        }
        return;
      case http::field::host:
        if (has_host_) Refuse(ec, 400, "there is more than one Host field");
        has_host_ = true;
        return;
      case http::field::expect:
        expects_continue = beast::iequals(text, "100-continue");
        if (!expects_continue) Refuse(ec, 417, "Expect can be \"100-continue\" alone");
        return;
      default: KeepFirst(FieldOf(field, View(name)), value);
    }
  }

  std::string* FieldOf(http::field field, std::string_view name) {
    switch (field) {
      case http::field::content_type: return &request.content_type;
      case http::field::authorization: return &request.authorization;
      case http::field::origin: return &request.origin;
      case http::field::access_control_request_method: return &request.preflight_method;
      case http::field::access_control_request_headers: return &request.preflight_headers;
      default:
        return beast::iequals({name.data(), name.size()}, "x-request-id") ? &request.request_id
                                                                          : nullptr;
    }
  }

  static void KeepFirst(std::string* field, std::string_view value) {
    if (field != nullptr && field->empty()) *field = value;
  }

  void on_header_impl(beast::error_code& ec) override {
    header_done_ = true;
    if (!has_host_ && !is_http10) {
      Refuse(ec, 400, "a request of HTTP/1.1 needs a Host field");
      return;
    }
    if (!IsSafeRequestId(request.request_id)) request.request_id.clear();
  }

  void on_body_init_impl(const boost::optional<uint64_t>& length, beast::error_code&) override {
    if (length) request.body.reserve(std::min(*length, kMaxReservedBytes));
  }

  size_t on_body_impl(beast::string_view bytes, beast::error_code& ec) override {
    if (!request.lease.Grow(static_cast<int64_t>(bytes.size()))) {
      Refuse(ec, 503, NoRoom());
      return 0;
    }
    request.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }

  void on_chunk_header_impl(uint64_t, beast::string_view extensions,
                            beast::error_code& ec) override {
    if (std::ranges::any_of(extensions, IsControl)) {
      Refuse(ec, 400, "a chunk's extension has control characters");
    }
  }

  size_t on_chunk_body_impl(uint64_t, beast::string_view bytes, beast::error_code& ec) override {
    return on_body_impl(bytes, ec);
  }

  void on_response_impl(int, beast::string_view, int, beast::error_code&) override {}
  void on_finish_impl(beast::error_code&) override {}

  const int64_t bodies_limit_;
  bool header_done_ = false;
  bool has_length_ = false;
  bool has_host_ = false;
};

RequestReader::RequestReader(const HttpLimits& limits, const std::shared_ptr<BodyBudget>& bodies)
    : limits_(limits), parser_(std::make_unique<Parser>(limits, bodies)) {}

RequestReader::~RequestReader() = default;

bool RequestReader::expects_continue() const { return parser_->expects_continue; }
bool RequestReader::keep_alive() const { return parser_->keep_alive(); }
bool RequestReader::is_http10() const { return parser_->is_http10; }
const HttpRequest& RequestReader::head() const { return parser_->request; }

bool RequestReader::ends_within(size_t bytes) const {
  const auto length = parser_->content_length();
  return length && *length <= bytes;
}

HttpRequest RequestReader::TakeRequest() { return std::move(parser_->request); }

size_t RequestReader::Refuse(int status, std::string message) {
  phase_ = Phase::kRefused;
  status_ = status;
  message_ = std::move(message);
  return 0;
}

size_t RequestReader::Read(std::string_view input) {
  return phase_ == Phase::kHead ? ReadHead(input) : ReadBody(input);
}

// Looks at each byte of the head once. True when the head's end is at scanned_.
bool RequestReader::ScanHead(std::string_view input) {
  for (; scanned_ < input.size(); ++scanned_) {
    const char c = input[scanned_];
    const char before = scanned_ == 0 ? '\0' : input[scanned_ - 1];
    if (before == '\r' ? c != '\n' : c == '\n') {
      Refuse(400, "lines of the request's head must end in CR LF");
    } else if (IsControl(c) && c != '\r' && c != '\n' && c != '\t') {
      Refuse(400, "the request's head has control characters; is this HTTP?");
    } else if (before == '\n' && (c == ' ' || c == '\t')) {
      Refuse(400, "folded header fields are not allowed");
    } else if (c == '\n' && scanned_ >= 3 && input.substr(scanned_ - 3, 4) == "\r\n\r\n") {
      ++scanned_;
      return true;
    }
    if (phase_ == Phase::kRefused) return false;
  }
  return false;
}

size_t RequestReader::ReadHead(std::string_view input) {
  size_t blank = 0;  // empty lines before a request are to be passed over (RFC 9112, 2.2)
  if (scanned_ < 2) {
    while (input.substr(blank).starts_with("\r\n")) blank += 2;
    if (blank > 0) scanned_ = 0;
    input.remove_prefix(blank);
  }
  const bool whole = ScanHead(input.substr(0, limits_.header_bytes));
  if (phase_ == Phase::kRefused) return blank;
  if (!whole) {
    if (std::ssize(input) >= limits_.header_bytes) {
      Refuse(431, fmt::format("the request's head is longer than {} bytes", limits_.header_bytes));
    }
    return blank;
  }
  beast::error_code ec;
  parser_->put({input.data(), scanned_}, ec);
  if (ec) {
    RefuseAsParserSays();
    if (message_.empty()) {
      if (ec == http::error::body_limit) {
        Refuse(413, fmt::format("the body is longer than {} bytes", limits_.body_bytes));
      } else {
        Refuse(400, fmt::format("the request's head is malformed: {}", ec.message()));
      }
    }
    return blank;
  }
  // What is still to come takes its memory as it comes; what can't fit need not be sent.
  const auto length = parser_->content_length();
  if (length && !parser_->request.lease.HasRoom(static_cast<int64_t>(*length))) {
    Refuse(503, parser_->NoRoom());
    return blank;
  }
  parser_->eager(true);  // from here on one call takes all it can
  phase_ = parser_->is_done() ? Phase::kDone : Phase::kBody;
  return blank + scanned_;
}

void RequestReader::RefuseAsParserSays() {
  if (!parser_->message.empty()) Refuse(parser_->status, parser_->message);
}

size_t RequestReader::ReadBody(std::string_view input) {
  beast::error_code ec;
  const size_t taken = parser_->put({input.data(), input.size()}, ec);
  if (ec && ec != http::error::need_more) {
    RefuseAsParserSays();
    if (message_.empty() && ec == http::error::body_limit) {
      Refuse(413, fmt::format("the body is longer than {} bytes", limits_.body_bytes));
    } else if (message_.empty()) {
      Refuse(400, fmt::format("the request's body is malformed: {}", ec.message()));
    }
  } else if (parser_->is_done()) {
    phase_ = Phase::kDone;
  } else if (input.size() - taken > kMaxChunkLineBytes) {
    Refuse(400,
           fmt::format("a chunk's size or the trailer takes over {} bytes", kMaxChunkLineBytes));
  }
  return taken;
}

}  // namespace spry
