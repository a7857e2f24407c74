// SPDX-License-Identifier: Apache-2.0
// Which of several places a value is taken from.
#include "launcher/command_line/settings.h"

#include <gmock/gmock.h>

#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using Files = std::map<std::string, std::string>;

absl::StatusOr<Options> ParseWith(const Files& files, const std::vector<std::string>& arguments,
                                  const Variables& variables = {}) {
  auto parsed = ParseOptions(arguments, From(variables),
                             [&](const std::string& path) -> absl::StatusOr<std::string> {
                               const auto found = files.find(path);
                               if (found == files.end()) return absl::NotFoundError("no " + path);
                               return found->second;
                             });
  if (!parsed.ok()) return parsed.status();
  return std::get<Options>(*std::move(parsed));
}

TEST(SettingsTest, CommandLineThenVariableThenFileThenDefault) {
  const Files files = {{"c", "max-restarts: 3\nrole: file\nprogram: [prog, a]\n"}};
  const Variables variables = {{"PET_MAX_RESTARTS", "2"}, {"PET_ROLE", "variable"}};
  auto options = ParseWith(files, {"--config", "c", "--max-restarts", "1"}, variables);
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->restarts.max_restarts, 1);
  EXPECT_EQ(options->role, "variable");
  EXPECT_THAT(options->program, ElementsAre("prog", "a"));
  options = ParseWith(files, {"other"}, {{"PET_CONFIG", "c"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->restarts.max_restarts, 3);
  EXPECT_EQ(options->role, "file");
  EXPECT_THAT(options->program, ElementsAre("other"));
}

TEST(SettingsTest, AnEnvFileIsBehindTheEnvironment) {
  const Files files = {{".env", "A=file\nB=file\nPET_ROLE=file\nPET_MAX_RESTARTS=4\n"}};
  const auto options = ParseWith(files, {"--env-file", ".env", "prog"},
                                 {{"A", "environment"}, {"PET_ROLE", "environment"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->role, "environment");
  EXPECT_EQ(options->restarts.max_restarts, 4);
  EXPECT_THAT(options->variables,
              UnorderedElementsAre(Pair("B", "file"), Pair("PET_MAX_RESTARTS", "4")));
}

TEST(SettingsTest, TheMastersAddressMayStandInAnEnvFile) {
  const Files files = {{".env", "MASTER_ADDR=10.0.0.1\nMASTER_PORT=1234\n"},
                       {"c", "master-port: 99\n"}};
  auto options =
      ParseWith(files, {"--env-file", ".env", "--nnodes", "2", "--node-rank", "0", "prog"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->master_addr, "10.0.0.1");
  EXPECT_EQ(options->master_port, 1234);
  options = ParseWith(files, {"--env-file=.env", "--config=c", "prog"},
                      {{"MASTER_ADDR", "10.0.0.2"}, {"PET_MASTER_PORT", "7"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->master_addr, "10.0.0.2");
  EXPECT_EQ(options->master_port, 7);
  // Those of the environment alone may be another launcher's.
  EXPECT_EQ(ParseWith({}, {"prog"}, {{"MASTER_ADDR", "10.0.0.2"}})->master_addr, std::nullopt);
}

TEST(SettingsTest, VariablesOfAConfigAreBehindThoseOfAnEnvFile) {
  const Files files = {{".env", "A=env file\n"}, {"c", "env: {A: config, B: config, C: config}\n"}};
  const auto options =
      ParseWith(files, {"--env-file", ".env", "--config", "c", "prog"}, {{"C", "environment"}});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->variables, ElementsAre(Pair("A", "env file"), Pair("B", "config")));
}

TEST(SettingsTest, EachFileMayNameTheOther) {
  auto options = ParseWith({{".env", "PET_ROLE=x\n"}, {"c", "env-file: .env\nrole: y\n"}},
                           {"--config=c", "p"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->role, "x");
  options = ParseWith({{".env", "PET_CONFIG=c\n"}, {"c", "role: y\n"}}, {"--env-file=.env", "p"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->role, "y");
}

TEST(SettingsTest, TheSecretOfAnEnvFileIsNotAmongTheVariables) {
  const auto options =
      ParseWith({{".env", "DDPRUN_TOKEN=secret\n"}}, {"--env-file", ".env", "prog"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_THAT(options->variables, IsEmpty());
  EXPECT_EQ(options->token_env_file, ".env");
}

TEST(SettingsTest, ErrorsSayWhereTheValueIs) {
  EXPECT_THAT(
      std::string(ParseWith({{"c", "nnodes: x\n"}}, {"--config=c", "p"}).status().message()),
      HasSubstr("c: nnodes 'x' is not"));
  EXPECT_THAT(std::string(ParseWith({{"c", "role: y\n"}}, {"--config=c"}).status().message()),
              HasSubstr("no program is named"));
  EXPECT_TRUE(absl::IsNotFound(ParseWith({}, {"--config=c", "p"}).status()));
}

}  // namespace
}  // namespace ddprun
