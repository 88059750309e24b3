// spry chat from outside, on the null device: by a pipe, and at a terminal of the test's own. The
// template makes a prompt of one letter that says how many messages there are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <string>
#include <thread>

#include "tests/app/null_answers.h"
#include "tests/app/program_run.h"

namespace spry {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;

constexpr char kFlags[] = " chat m --load-format dummy --device null ";

class ChatTest : public ProgramTest {
 protected:
  ChatTest() {
    MakeModel("m");
    AddTokenizer(folder_ / "m");
    SetTemplate("{{ 'abcdefgh'[messages|length] }}");
  }
  void SetTemplate(const std::string& text) {
    WriteText(folder_ / "m" / "chat_template.jinja", text);
  }
  ProgramResult Chat(const std::string& lines, const std::string& flags = "--max-tokens 2") {
    WriteText(folder_ / "lines", lines);
    return Shell("cat lines | \"$SPRY\"" + (kFlags + flags));
  }
  json::array Saved(const std::string& name) {
    return json::parse(ReadText(folder_ / name)).as_array();
  }
};

// The answer to a dialogue of that many messages.
std::string Answer(int messages, int tokens = 2) { return Spelled(Expected({messages}, tokens)); }

TEST_F(ChatTest, EachAnswerSeesTheDialogueSoFar) {
  const ProgramResult r =
      Chat("hello\nagain\n/clear\nhello\n/system be kind\n\nagain\n/save d.json\n");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out, Answer(1) + "\n" + Answer(3) + "\n" + Answer(1) + "\n" + Answer(4) + "\n");
  const json::array saved = Saved("d.json");
  ASSERT_EQ(saved.size(), 5u);
  EXPECT_EQ(saved[0], (json::object{{"role", "system"}, {"content", "be kind"}}));
  EXPECT_EQ(saved[1], (json::object{{"role", "user"}, {"content", "hello"}}));
  EXPECT_EQ(saved[2], (json::object{{"role", "assistant"}, {"content", Answer(1)}}));
  EXPECT_EQ(saved[3], (json::object{{"role", "user"}, {"content", "again"}}));
}

TEST_F(ChatTest, TheSystemFlagStandsFirstAndALineMayLackItsEnd) {
  const ProgramResult r = Chat("hello", "--max-tokens 2 --system 'be brief'");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out, Answer(2) + "\n");
}

TEST_F(ChatTest, WithoutMaxTokensAnAnswerMayFillTheModel) {
  const ProgramResult r = Chat("hello\n", "");
  EXPECT_EQ(r.out, Answer(1, 63) + "\n");
  EXPECT_THAT(r.err, HasSubstr("cut at its length limit"));
}

TEST_F(ChatTest, WithoutASeedARunAnswersInItsOwnWay) {
  const auto answer = [this](const std::string& flags) {
    const ProgramResult r = Shell(
        "echo hello | \"$SPRY\" chat m --load-format dummy --device cpu --max-tokens 40 " + flags);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return r.out;
  };
  EXPECT_NE(answer(""), answer(""));
  EXPECT_EQ(answer("--seed 0"), answer("--seed 0"));
}

TEST_F(ChatTest, WhatCannotBeAnsweredIsSaidAndNotKept) {
  SetTemplate(
      "{% if messages[-1].content == 'bad' %}{{ raise_exception('not today') }}{% endif %}"
      "{% if messages[-1].content == 'long' %}{{ 'a' * 70 }}{% endif %}"
      "{{ 'abcdefgh'[messages|length] }}");
  const ProgramResult r =
      Chat("bad\nlong\n/fly\n/save\n/save no/such/folder\n/exit now\nhello\nlong\n/exit \nnever\n");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_EQ(r.out, Answer(1) + "\n");
  EXPECT_THAT(r.err, HasSubstr("not today"));
  // A dialogue that has grown too long can be given up.
  EXPECT_THAT(r.err,
              HasSubstr("the prompt has 71 tokens; with a max_model_len of 64 it may have at "
                        "most 63: shorten it\n"));
  EXPECT_THAT(r.err, HasSubstr("shorten it; /clear forgets what was said\n"));
  EXPECT_THAT(r.err, HasSubstr("/exit takes nothing behind it"));
  EXPECT_THAT(r.err, HasSubstr("there is no command /fly"));
  EXPECT_THAT(r.err, HasSubstr("/save needs the name of a file"));
  EXPECT_THAT(r.err, HasSubstr("no/such/folder cannot be written"));
}

TEST_F(ChatTest, AModelWithoutATemplateIsRefused) {
  std::filesystem::remove(folder_ / "m" / "chat_template.jinja");
  const ProgramResult r = Chat("hello\n");
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.err, HasSubstr("m: it has no chat template"));
}

// The program at a terminal whose other end the test holds.
class Terminal {
 public:
  explicit Terminal(const std::filesystem::path& folder, const std::string& flags) {
    process_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (process_ != 0) return;
    const std::string line =
        "cd '" + folder.string() + "' && TERM=dumb exec '" SPRY_PROGRAM "'" + kFlags + flags;
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  ~Terminal() { close(terminal_); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void Type(const std::string& keys) {
    // It may have ended, which its exit code tells.
    [[maybe_unused]] const ssize_t written = write(terminal_, keys.data(), keys.size());
  }

  // Reads until `text` has come since the last call. False when it has not in that time.
  bool WaitFor(const std::string& text,
               std::chrono::milliseconds time = std::chrono::milliseconds(20000)) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      const size_t at = shown_.find(text);
      if (at != std::string::npos) {
        shown_.erase(0, at + text.size());
        return true;
      }
      pollfd ready{.fd = terminal_, .events = POLLIN, .revents = 0};
      char buffer[4096];
      if (poll(&ready, 1, 20) <= 0) continue;
      const ssize_t count = read(terminal_, buffer, sizeof(buffer));
      if (count <= 0) break;
      shown_.append(buffer, count);
    }
    return false;
  }
  const std::string& shown() const { return shown_; }  // since then

  // Types `keys` until `text` comes: what is typed between two lines, while the terminal is not the
  // editor's, may be lost.
  bool TypeUntil(const std::string& keys, const std::string& text) {
    for (int tries = 0; tries < 20; ++tries) {
      Type(keys);
      if (WaitFor(text, std::chrono::milliseconds(1000))) return true;
    }
    return false;
  }

  // The same until the program ends. -1 when it has not ended after 20 seconds; then it is killed.
  int TypeUntilExit(const std::string& keys) {
    int status = 0;
    for (int tries = 0; tries < 1000; ++tries) {
      if (tries % 50 == 0) Type(keys);
      if (waitpid(process_, &status, WNOHANG) == process_) {
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    kill(process_, SIGKILL);
    waitpid(process_, &status, 0);
    return -1;
  }

 private:
  int terminal_ = -1;
  pid_t process_ = -1;
  std::string shown_;
};

constexpr char kInterrupt[] = "\x03";
constexpr char kEndOfInput[] = "\x15\x04";  // on a line that is emptied first

TEST_F(ChatTest, AtATerminalCtrlCStopsTheAnswerAndNotTheProgram) {
  Terminal terminal(folder_, "--null-step-us 50000");  // 63 tokens: three seconds
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.shown();
  terminal.Type("hello\n");
  ASSERT_TRUE(terminal.WaitFor(Answer(1, 3))) << terminal.shown();
  terminal.Type(kInterrupt);
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.shown();
  terminal.Type("half a line");
  ASSERT_TRUE(terminal.WaitFor("half a line")) << terminal.shown();
  ASSERT_TRUE(terminal.TypeUntil(kInterrupt, "(Ctrl-D or /exit leaves)")) << terminal.shown();
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.shown();
  terminal.Type("/save d.json\n");
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.shown();
  EXPECT_EQ(terminal.TypeUntilExit(kEndOfInput), 0);
  // The part of the answer that was given is what the model sees from then on.
  const json::array saved = Saved("d.json");
  ASSERT_EQ(saved.size(), 2u);
  const std::string answer(saved[1].at("content").as_string());
  EXPECT_THAT(Answer(1, 63), ::testing::StartsWith(answer));
  EXPECT_GE(answer.size(), Answer(1, 3).size());
  EXPECT_LT(answer.size(), Answer(1, 63).size());
}

}  // namespace
}  // namespace spry
