// The bytes of answers on their way to one client: heads, chunk framing, and what the socket has
// not taken yet. Buffers are kept between pieces, so that a stream in steady state allocates
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/http.h"
#include "server/transport.h"

namespace spry {

// How a client is answered; follows from its request and the connection's state.
struct AnswerForm {
  bool is_head = false;    // HEAD: the body is left out
  bool is_http10 = false;  // no chunks: a stream ends with the connection
  bool keep_alive = true;
  std::string_view request_id;
};

class AnswerWriter {
 public:
  void Continue();  // "100 Continue"
  void Reply(const HttpResponse& response, const AnswerForm& form);

  void StartStream(const HttpResponse& head, const AnswerForm& form);
  void Append(std::string_view bytes);
  void EndPiece();  // what was appended becomes one chunk, to be written
  void EndStream();

  // Writes until everything is out (kDone), the transport says what it waits for, or others are to
  // have their turn (kWantWrite). `progress` is set when bytes were taken.
  IoState WriteTo(Transport& transport, bool& progress);
  size_t unsent() const { return piece_start_ - sent_; }                    // of ended pieces
  int64_t held() const { return static_cast<int64_t>(bytes_.capacity()); }  // of memory
  void Drop();                                                              // forgets everything

 private:
  enum class Framing { kChunked, kUntilClose, kNoBody };

  void AppendHead(const HttpResponse& response, const AnswerForm& form,
                  std::string_view length_field);
  void ForgetSent();

  std::string bytes_;
  size_t sent_ = 0;         // of bytes_
  size_t piece_start_ = 0;  // where the piece in work begins; before it is what may be written
  Framing framing_ = Framing::kNoBody;
};

}  // namespace spry
