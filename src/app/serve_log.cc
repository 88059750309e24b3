#include "app/serve_log.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <climits>
#include <memory>
#include <string>
#include <utility>

#include "app/plain_text.h"
#include "text/utf8.h"

namespace spry {
namespace {

// With the time before it, what a pipe with room for anything takes at once.
constexpr size_t kMostLineBytes = PIPE_BUF - 64;

std::shared_ptr<spdlog::logger> MakeLogger() {
  auto logger =
      std::make_shared<spdlog::logger>("serve", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  return logger;
}

void AppendValue(std::string_view value, std::string& line) {
  const size_t begin = line.size();
  bool quoted = value.empty();
  line += '"';
  while (!value.empty()) {
    const Utf8Character character = DecodeUtf8(value);
    quoted = quoted || value[0] == '"' || value[0] == '=' || value[0] == '\\' || value[0] == ' ' ||
             Steers(character.code);
    if (Steers(character.code)) {
      line += ' ';
    } else {
      if (value[0] == '"' || value[0] == '\\') line += '\\';
      AppendUtf8(character.code, line);
    }
    value.remove_prefix(character.length);
  }
  quoted ? line += '"' : line.erase(begin, 1);
}

}  // namespace

void Log(LogLevel level, std::string_view event, LogFields fields) {
  static const std::shared_ptr<spdlog::logger> logger = MakeLogger();
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err};
  // A reader that has stopped reading must not stop the server. What fits can be written at once.
  static uint64_t left_out = 0;  // of the thread that serves, as all of this
  pollfd stream{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&stream, 1, /*milliseconds=*/0) != 1 || (stream.revents & POLLOUT) == 0) {
    ++left_out;
    return;
  }
  std::string line(event);
  for (const auto& [key, value] : fields) {
    line.append(" ").append(key).append("=");
    AppendValue(value, line);
  }
  if (left_out > 0) line += fmt::format(" lines_left_out={}", std::exchange(left_out, 0));
  if (line.size() > kMostLineBytes) {
    line.resize(kMostLineBytes);
    line.resize(line.size() - TruncatedSuffix(line));
  }
  logger->log(kLevels[static_cast<int>(level)], line);
}

}  // namespace spry
