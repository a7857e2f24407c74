// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/help_text.h"

#include <gmock/gmock.h>

#include "absl/strings/str_replace.h"
#include "launcher/options/run_flags.h"
#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Shown(const std::vector<std::string>& arguments) {
  const auto parsed = ParseOptions(arguments, From({}));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? std::get<ShowText>(*parsed).text : "";
}

std::string Refused(const std::vector<std::string>& arguments) {
  const auto parsed = ParseOptions(arguments, From({}));
  EXPECT_FALSE(parsed.ok());
  return std::string(parsed.status().message());
}

TEST(HelpTextTest, TheShortHelpIsAScreenThatNamesEveryTopic) {
  const std::string text = Shown({"--help"});
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 45);
  for (const FlagTopic& topic : kFlagTopics) EXPECT_THAT(text, HasSubstr(topic.title));
  EXPECT_THAT(text, AllOf(HasSubstr("--nproc-per-node"), HasSubstr("ddprun status")));
  EXPECT_THAT(text, Not(HasSubstr("--tls-cert")));
}

TEST(HelpTextTest, EveryFlagIsInItsTopicAndInAll) {
  const std::string all = Shown({"-h", "all"});
  for (const FlagTopic& topic : kFlagTopics) {
    const std::string text = Shown({"--help", topic.name});
    for (const Flag& flag : topic.flags) {
      EXPECT_THAT(text, HasSubstr(flag.name)) << topic.name;
      EXPECT_THAT(all, HasSubstr(flag.name));
    }
  }
}

TEST(HelpTextTest, AnUnknownTopicIsASentence) {
  EXPECT_THAT(Refused({"--help", "log"}),
              AllOf(HasSubstr("no help on 'log'"), HasSubstr("did you mean logs?")));
}

TEST(HelpTextTest, FlagsAreNamedOnceInAllTables) {
  std::vector<std::string> names;
  std::string letters;
  for (const Flag& flag : AllFlags()) {
    EXPECT_EQ(std::count(names.begin(), names.end(), flag.name), 0) << flag.name;
    names.emplace_back(flag.name);
    if (flag.letter == 0) continue;
    EXPECT_EQ(letters.find(flag.letter), std::string::npos) << flag.letter;
    letters.push_back(flag.letter);
  }
}

TEST(HelpTextTest, ChoicesAreTheLowerCaseWords) {
  EXPECT_THAT(ChoicesOf("N|auto|gpu"), ElementsAre("auto", "gpu"));
  EXPECT_THAT(ChoicesOf("file"), IsEmpty());
  EXPECT_THAT(ChoicesOf(nullptr), IsEmpty());
}

TEST(HelpTextTest, EveryFlagIsInEveryShellsScriptAndInTheManual) {
  const std::string man = Shown({"--print-man"});
  for (const Flag& flag : AllFlags()) {
    const std::string name = std::string(flag.name).substr(2);
    for (const char* shell : {"bash", "zsh", "fish", "tcsh"})
      EXPECT_THAT(Shown({"--print-completion", shell}), HasSubstr(name)) << shell;
    EXPECT_THAT(man, HasSubstr(absl::StrReplaceAll(flag.name, {{"-", "\\-"}})));
  }
  EXPECT_THAT(Refused({"--print-completion", "csh"}), HasSubstr("bash, zsh, fish or tcsh"));
}

}  // namespace
}  // namespace ddprun
