// An HTTP client of plain, blocking sockets, which can misbehave.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace spry {

struct Answer {
  int status = 0;  // 0: the connection ended first
  std::string head;
  std::string body;  // chunks put together

  // Of a header field; empty when absent.
  std::string Field(std::string_view name) const;
};

class Client {
 public:
  explicit Client(int port, const std::string& host = "127.0.0.1");
  explicit Client(const std::string& unix_path);
  virtual ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool is_connected() const { return socket_ >= 0; }
  void Send(std::string_view bytes);
  // A GET without further fields.
  void Get(std::string_view path, std::string_view id = "");
  Answer ReadAnswer(bool has_body = true);
  // The next `count` bytes or what comes before the end.
  std::string Read(size_t count);
  std::string ReadToEnd();
  // True when the server ends or resets the connection with nothing more sent.
  bool IsEnded();
  void FinishSending();
  void Close();
  void Reset();  // by RST

 protected:
  virtual ssize_t Receive(char* to, size_t size);
  virtual ssize_t Put(std::string_view bytes);
  int socket() const { return socket_; }

 private:
  bool Fill();
  std::string TakeLine();

  int socket_ = -1;
  std::string received_;
};

std::string RequestText(std::string_view method, std::string_view path, std::string_view body = "",
                        std::string_view fields = "");

}  // namespace spry
