#include "server/answer_writer.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <iterator>

namespace spry {
namespace {

// A buffer that grew while a client was slow is given back when the client has caught up.
constexpr size_t kKeptBytes = 16 << 10;
// Written at once; a client that reads as fast as that does not hold up the others.
constexpr size_t kMostAtOnce = 1 << 20;

std::string_view Phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    default: return "";
  }
}

bool HasBody(int status) { return status != 204 && status != 304; }

// A value that holds what a client sent must not end its line.
void AppendField(std::string& out, std::string_view name, std::string_view value) {
  out += name;
  out += ": ";
  const size_t begin = out.size();
  out += value;
  std::replace_if(
      out.begin() + static_cast<ptrdiff_t>(begin), out.end(),
      [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }, ' ');
  out += "\r\n";
}

void AppendDate(std::string& out) {
  const time_t now = time(nullptr);
  tm utc{};
  gmtime_r(&now, &utc);
  // strftime's names of days and months follow the locale; these must not.
  constexpr std::string_view kDays = "SunMonTueWedThuFriSat";
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  fmt::format_to(std::back_inserter(out), "Date: {}, {:02} {} {} {:02}:{:02}:{:02} GMT\r\n",
                 kDays.substr(utc.tm_wday * 3, 3), utc.tm_mday, kMonths.substr(utc.tm_mon * 3, 3),
                 utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace

void AnswerWriter::AppendHead(const HttpResponse& response, const AnswerForm& form,
                              std::string_view length_field) {
  fmt::format_to(std::back_inserter(bytes_), "HTTP/1.1 {} {}\r\n", response.status,
                 Phrase(response.status));
  AppendDate(bytes_);
  if (!response.content_type.empty() && HasBody(response.status)) {
    AppendField(bytes_, "Content-Type", response.content_type);
  }
  for (const auto& [name, value] : response.fields) AppendField(bytes_, name, value);
  if (!form.request_id.empty()) AppendField(bytes_, "X-Request-Id", form.request_id);
  if (!form.keep_alive) {
    bytes_ += "Connection: close\r\n";
  } else if (form.is_http10) {
    bytes_ += "Connection: keep-alive\r\n";
  }
  bytes_ += length_field;
  bytes_ += "\r\n";
}

void AnswerWriter::Continue() {
  bytes_ += "HTTP/1.1 100 Continue\r\n\r\n";
  piece_start_ = bytes_.size();
}

void AnswerWriter::Reply(const HttpResponse& response, const AnswerForm& form) {
  const bool has_body = HasBody(response.status);
  AppendHead(response, form,
             has_body ? fmt::format("Content-Length: {}\r\n", response.body.size()) : "");
  if (has_body && !form.is_head) bytes_ += response.body;
  piece_start_ = bytes_.size();
}

void AnswerWriter::StartStream(const HttpResponse& head, const AnswerForm& form) {
  framing_ = form.is_http10 ? Framing::kUntilClose : Framing::kChunked;
  AppendHead(head, form, form.is_http10 ? "" : "Transfer-Encoding: chunked\r\n");
  if (form.is_head) framing_ = Framing::kNoBody;
  piece_start_ = bytes_.size();
}

void AnswerWriter::Append(std::string_view bytes) {
  if (framing_ != Framing::kNoBody) bytes_ += bytes;
}

void AnswerWriter::EndPiece() {
  const size_t size = bytes_.size() - piece_start_;
  if (size == 0) return;  // an empty chunk would end the stream
  if (framing_ == Framing::kChunked) {
    fmt::basic_memory_buffer<char, 24> line;
    fmt::format_to(std::back_inserter(line), "{:x}\r\n", size);
    bytes_.insert(piece_start_, line.data(), line.size());
    bytes_ += "\r\n";
  }
  piece_start_ = bytes_.size();
}

void AnswerWriter::EndStream() {
  EndPiece();
  if (framing_ == Framing::kChunked) bytes_ += "0\r\n\r\n";
  framing_ = Framing::kNoBody;
  piece_start_ = bytes_.size();
}

IoState AnswerWriter::WriteTo(Transport& transport, bool& progress) {
  const size_t start = sent_;
  while (unsent() > 0) {
    const bool enough = sent_ - start >= kMostAtOnce;
    const IoOutcome outcome =
        enough ? IoOutcome{.state = IoState::kWantWrite}
               : transport.Write(std::string_view(bytes_).substr(sent_, piece_start_ - sent_));
    if (outcome.state != IoState::kDone) {
      // A client that never quite catches up must not make the buffer grow; halves, so that a byte
      // is moved once.
      if (sent_ > bytes_.size() / 2) ForgetSent();
      return outcome.state;
    }
    progress = true;
    sent_ += outcome.bytes;
  }
  ForgetSent();
  return IoState::kDone;
}

void AnswerWriter::ForgetSent() {
  bytes_.erase(0, sent_);
  if (bytes_.capacity() > kKeptBytes + 4 * bytes_.size()) bytes_.shrink_to_fit();
  piece_start_ -= sent_;
  sent_ = 0;
}

void AnswerWriter::Drop() {
  std::string().swap(bytes_);
  sent_ = piece_start_ = 0;
}

}  // namespace spry
