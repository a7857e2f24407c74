// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/env_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

// The value of the only line.
std::string ValueOf(const std::string& line) {
  const auto file = ParseEnvFile(line, ".env");
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() && file->variables.size() == 1 ? file->variables.front().second : "(none)";
}

std::string Error(const std::string& text) {
  return std::string(ParseEnvFile(text, ".env").status().message());
}

TEST(EnvFileTest, LinesAsPeopleWriteThem) {
  const auto file = ParseEnvFile(
      "# where node 0 is\n\nMASTER_ADDR=10.0.0.1\r\n  export MASTER_PORT = 29500 \nexportX=1\n",
      ".env");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(file->variables, ElementsAre(Pair("MASTER_ADDR", "10.0.0.1"),
                                           Pair("MASTER_PORT", "29500"), Pair("exportX", "1")));
  EXPECT_THAT(ParseEnvFile("", ".env")->variables, IsEmpty());
  EXPECT_THAT(ParseEnvFile("\xEF\xBB\xBF"
                           "A=1",
                           ".env")
                  ->variables,
              ElementsAre(Pair("A", "1")));
}

TEST(EnvFileTest, Values) {
  EXPECT_EQ(ValueOf("A="), "");
  EXPECT_EQ(ValueOf("A=a b  c"), "a b  c");
  EXPECT_EQ(ValueOf("A=x=y"), "x=y");
  EXPECT_EQ(ValueOf("A=x # why"), "x");
  EXPECT_EQ(ValueOf("A=x#y"), "x#y");
  EXPECT_EQ(ValueOf("A=# nothing"), "");
  EXPECT_EQ(ValueOf("A='a # \\n \"b\"' # why"), "a # \\n \"b\"");
  EXPECT_EQ(ValueOf(R"(A="a\tb\n\"\\\$HOME \q")"), "a\tb\n\"\\$HOME \\q");
  EXPECT_EQ(ValueOf("A=$HOME/${X} `id`"), "$HOME/${X} `id`");
}

TEST(EnvFileTest, TheLastOfTwoCounts) {
  EXPECT_THAT(ParseEnvFile("A=1\nB=2\nA=3\n", ".env")->variables,
              ElementsAre(Pair("B", "2"), Pair("A", "3")));
}

TEST(EnvFileTest, TheSecretIsKeptApart) {
  const auto file = ParseEnvFile("A=1\nexport DDPRUN_TOKEN='abc'\n", ".env");
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->variables, ElementsAre(Pair("A", "1")));
  EXPECT_EQ(file->token, "abc");
}

TEST(EnvFileTest, WhatIsWrongHasItsLine) {
  EXPECT_THAT(Error("A=1\nMASTER_ADDR 10.0.0.1\n"), HasSubstr("line 2 of .env is not KEY=VALUE"));
  EXPECT_THAT(Error("1A=2"), HasSubstr("line 1 of .env has '1A'"));
  EXPECT_THAT(Error("=2"), HasSubstr("has ''"));
  EXPECT_THAT(Error("A='x"), HasSubstr("not closed"));
  EXPECT_THAT(Error("A=\"x\\\""), HasSubstr("not closed"));
  EXPECT_THAT(Error("A='x' y"), HasSubstr("after the closing quote"));
}

TEST(EnvFileTest, AnErrorDoesNotShowTheSecret) {
  EXPECT_THAT(Error("DDPRUN_TOKEN=' 0123456789abcdef"),
              ::testing::Not(HasSubstr("0123456789abcdef")));
}

}  // namespace
}  // namespace ddprun
