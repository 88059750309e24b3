#include "app/line_editor.h"

#include <fmt/format.h>
#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <utility>

#include "app/interrupt.h"
#include "base/check.h"

namespace spry {
namespace {

constexpr int kRememberedLines = 1000;

// One read call at a time: stdio would wait for more than a line.
Result<LineEditor::Outcome> ReadPlain(std::string& line) {
  line.clear();
  while (true) {
    char byte = 0;
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) {
      if (Interrupted()) return LineEditor::Outcome::kInterrupted;
      continue;
    }
    if (count < 0) return InvalidArgument("stdin cannot be read");
    if (count == 0) return line.empty() ? LineEditor::Outcome::kEnd : LineEditor::Outcome::kLine;
    if (byte == '\n') return LineEditor::Outcome::kLine;
    if (line.size() == kMaxLineBytes) {
      return ResourceExhausted(fmt::format("a line is longer than {} bytes", kMaxLineBytes));
    }
    line.push_back(byte);
  }
}

}  // namespace

struct LineEditor::Terminal {
  std::string prompt;
  EditLine* editor = nullptr;
  History* history = nullptr;

  explicit Terminal(std::string text) : prompt(std::move(text)) {
    std::setlocale(LC_CTYPE, "");  // so that keys are characters, not bytes
    editor = el_init("spry", stdin, stdout, stderr);
    history = history_init();
    CHECK(editor != nullptr && history != nullptr);
    HistEvent event;
    ::history(history, &event, H_SETSIZE, kRememberedLines);
    ::history(history, &event, H_SETUNIQUE, 1);
    const auto show_prompt = [](EditLine* of) -> char* {
      void* terminal = nullptr;
      el_get(of, EL_CLIENTDATA, &terminal);
      return static_cast<Terminal*>(terminal)->prompt.data();
    };
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT, static_cast<char* (*)(EditLine*)>(show_prompt));
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_SIGNAL, 0);  // SIGINT is ours
    el_set(editor, EL_HIST, ::history, history);
    el_source(editor, nullptr);  // the user's own ~/.editrc
  }
  ~Terminal() {
    history_end(history);
    el_end(editor);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  Outcome Read(std::string& line) {
    int count = 0;
    const char* text = el_gets(editor, &count);
    if (text == nullptr || count <= 0) {
      if (!Interrupted()) return Outcome::kEnd;
      el_reset(editor);
      return Outcome::kInterrupted;
    }
    line.assign(text, count);
    HistEvent event;
    if (line != "\n") ::history(history, &event, H_ENTER, text);
    if (line.back() == '\n') line.pop_back();
    return Outcome::kLine;
  }
};

LineEditor::LineEditor(std::string prompt) {
  if (isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0) {
    terminal_ = std::make_unique<Terminal>(std::move(prompt));
  }
}
LineEditor::~LineEditor() = default;

Result<LineEditor::Outcome> LineEditor::Read(std::string& line) {
  if (terminal_ != nullptr) return terminal_->Read(line);
  return ReadPlain(line);
}

}  // namespace spry
