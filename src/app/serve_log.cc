#include "app/serve_log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

namespace spry {
namespace {

std::shared_ptr<spdlog::logger> MakeLogger() {
  auto logger =
      std::make_shared<spdlog::logger>("serve", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  return logger;
}

void AppendValue(std::string_view value, std::string& line) {
  if (!value.empty() && value.find_first_of(" \"=\n\r\t\\") == std::string_view::npos) {
    line += value;
    return;
  }
  line += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') line += '\\';
    // A client's words must not end the line.
    line += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  line += '"';
}

}  // namespace

void Log(LogLevel level, std::string_view event, LogFields fields) {
  static const std::shared_ptr<spdlog::logger> logger = MakeLogger();
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                   spdlog::level::err};
  std::string line(event);
  for (const auto& [key, value] : fields) {
    line.append(" ").append(key).append("=");
    AppendValue(value, line);
  }
  logger->log(kLevels[static_cast<int>(level)], line);
}

}  // namespace spry
