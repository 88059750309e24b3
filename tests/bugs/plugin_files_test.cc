// A plug-in that was cut short, or copied only in part, killed every command that looks for a card,
// and a pipe in its place made them wait for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/app/program_run.h"

namespace spry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class PluginFiles : public ProgramTest {
 protected:
  // What `spry backends` says of a plug-in that `make` makes of some shared library $library.
  ProgramResult Backends(const std::string& make) {
    return Shell(
        "cp \"$SPRY\" spry; rm -rf libspry_cuda.so; "
        "library=$(ldd spry | sed -n 's/.* => \\(.*libstdc++[^ ]*\\) .*/\\1/p'); "
        "half=$(($(stat -L -c %s $library) / 2)); " +
        make + "; timeout 20 ./spry backends");
  }
  void ExpectReason(const std::string& make, const std::string& reason) {
    const ProgramResult r = Backends(make);
    EXPECT_EQ(r.exit_code, 0) << make << r.err;
    EXPECT_THAT(r.out, HasSubstr("libspry_cuda.so " + reason)) << make;
    EXPECT_THAT(r.out, HasSubstr("cpu: ")) << make;
  }
};

TEST_F(PluginFiles, AreLookedAtBeforeTheyAreMapped) {
  const std::string cut = "is cut short or damaged; build it";
  ExpectReason("head -c $half $library > libspry_cuda.so", cut);
  ExpectReason(
      "head -c $half $library > libspry_cuda.so; truncate -s $((2 * half)) libspry_cuda.so", cut);
  ExpectReason("head -c 63 $library > libspry_cuda.so", "is no shared library");
  ExpectReason(
      "echo a text of more than sixty-four bytes, which is what the first header of a "
      "library takes > libspry_cuda.so",
      "is no shared library");
  ExpectReason("ln -s nowhere libspry_cuda.so", "is a link that leads nowhere");
  ExpectReason("mkfifo libspry_cuda.so", "is no regular file");
  ExpectReason("mkdir libspry_cuda.so", "is no regular file");
  ExpectReason(
      "cp $library libspry_cuda.so; printf '\\267' | dd of=libspry_cuda.so bs=1 seek=18 "
      "conv=notrunc 2> /dev/null",
      "is for another kind of machine");
  ExpectReason("cp $library libspry_cuda.so", "is not a device plug-in");
}

// As a copy by several at once leaves it when one of them fails.
TEST_F(PluginFiles, WithHolesEndNoCommand) {
  constexpr int kHoles = 11;
  for (int hole = 0; hole < kHoles; ++hole) {
    const ProgramResult r = Backends(
        "cp $library libspry_cuda.so; chmod u+w libspry_cuda.so; "
        "size=$((half * 2 / 65536)); dd if=/dev/zero of=libspry_cuda.so bs=65536 seek=$((size * " +
        std::to_string(hole) + " / " + std::to_string(kHoles) +
        ")) count=1 conv=notrunc 2> /dev/null");
    EXPECT_EQ(r.exit_code, 0) << hole << ": " << r.err;
    EXPECT_THAT(r.out, HasSubstr("cuda: not available")) << hole;
    EXPECT_THAT(r.out, HasSubstr("cpu: ")) << hole;
  }
}

TEST_F(PluginFiles, AreNotPassedOverWithoutAWord) {
  MakeModel("m");
  const auto generate = [this](const std::string& flags) {
    return Shell(
        "cp \"$SPRY\" spry; head -c 63 spry > libspry_cuda.so; "
        "echo '{\"prompt_token_ids\": [5], \"max_tokens\": 1}' > in.jsonl; "
        "./spry generate m --load-format dummy --input in.jsonl --json " +
        flags);
  };
  const ProgramResult chosen = generate("");
  EXPECT_EQ(chosen.exit_code, 0) << chosen.err;
  EXPECT_THAT(chosen.err, HasSubstr("cuda cannot be used"));
  EXPECT_THAT(chosen.err, HasSubstr("is no shared library"));
  EXPECT_THAT(generate("--device cpu").err, Not(HasSubstr("cuda")));
}

}  // namespace
}  // namespace spry
