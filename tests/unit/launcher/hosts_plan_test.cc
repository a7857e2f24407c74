// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_plan.h"
#include "launcher/command_line/parse_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/text.h"

namespace ddprun {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::vector<HostEntry> kTwo = {{"a", 2}, {"b", std::nullopt}};

HostsFacts Facts() {
  return {.own_path = "/opt/ddprun",
          .folder = "/work",
          .run_id = "made-up",
          .environment = {"PATH=/bin", "HOME=/root", "SLURM_PROCID=0", "PET_HOSTS=a", "LR=0.1"},
          .is_this_machine = [](const std::string& host) { return host == "here"; }};
}

Options Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"train", "--epochs", "1"});
  auto options = ParseOptions(arguments, [](const std::string&) { return std::nullopt; });
  EXPECT_TRUE(options.ok()) << options.status();
  return options.ok() ? std::get<Options>(*std::move(options)) : Options();
}

HostsPlan Plan(std::vector<std::string> arguments, const std::vector<HostEntry>& hosts = kTwo) {
  absl::StatusOr<HostsPlan> plan = MakeHostsPlan(Parse(std::move(arguments)), hosts, Facts());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : HostsPlan();
}

TEST(HostsPlan, TheCommandLineOfAHostHasSimpleWordsAndNoSecret) {
  const HostsPlan plan = Plan({"-H", "a,b"});
  ASSERT_EQ(plan.transports.size(), 2u);
  EXPECT_EQ(plan.transports[0].kind, TransportKind::kSsh);
  const std::vector<std::string>& command = plan.transports[0].commands[0];
  EXPECT_EQ(command.front(), "ssh");
  EXPECT_THAT(command, Contains("BatchMode=yes"));
  EXPECT_THAT(std::vector<std::string>(command.end() - 3, command.end()),
              ElementsAre("a", "/opt/ddprun", "--control-pipe"));
  EXPECT_EQ(plan.transports[0].commands[1].end()[-2], "ddprun");  // else the one in PATH
}

TEST(HostsPlan, SlotsAreWorkersUnlessTheFlagSaysFewer) {
  EXPECT_THAT(Plan({"-H", "a"}).nproc, ElementsAre("2", "1"));
  EXPECT_THAT(Plan({"-H", "a", "--nproc-per-node", "2"}).nproc, ElementsAre("2", "2"));
  EXPECT_THAT(Plan({"-H", "a", "--nproc-per-node", "gpu"}).nproc, ElementsAre("gpu", "gpu"));
  const auto plan = MakeHostsPlan(Parse({"-H", "a", "--nproc-per-node", "3"}), kTwo, Facts());
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("more than the 2 slots of a"));
}

TEST(HostsPlan, OtherFlagsGoAlongFromWhereverTheyCame) {
  const HostsPlan plan = Plan({"-H", "a", "--max_restarts", "3", "--module", "--token-file", "t",
                               "--rsh", "ssh -p 22", "--log-dir=logs"});
  EXPECT_THAT(plan.transports[0].setup.arguments,
              ElementsAre("--log-dir=logs", "--max-restarts=3", "--module=1", "--nproc-per-node=2",
                          "--rdzv-id=made-up", "--", "train", "--epochs", "1"));
}

TEST(HostsPlan, EveryProgramGoesAlongAndTheSlotsAreForAll) {
  const HostsPlan plan =
      Plan({"-H", "a", "--role", "x:1", "prog", "p", ":", "--role", "y", "-m"}, {{"a", 2}});
  EXPECT_THAT(plan.transports[0].setup.arguments,
              ElementsAre("--role=x:1", "--nproc-per-node=1", "--rdzv-id=made-up", "--", "prog",
                          "p", ":", "--role=y", "--module", "--", "train", "--epochs", "1"));
  const auto refused =
      MakeHostsPlan(Parse({"-H", "a", "--role", "x:1", "p", ":", "--role", "y:2"}), kTwo, Facts());
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("the roles have 3 workers, which is more than the 2 slots of a"));
}

TEST(HostsPlan, ThisMachineNeedsNoSsh) {
  const HostsPlan plan = Plan({"-H", "here"}, {{"here", 2}});
  EXPECT_EQ(plan.transports[0].kind, TransportKind::kDirect);
  EXPECT_THAT(plan.transports[0].commands,
              ElementsAre(ElementsAre("/opt/ddprun", "--control-pipe")));
}

TEST(HostsPlan, AnRshThatIsSshKeepsItsOptionsBeforeOurs) {
  const HostsPlan ssh = Plan({"-H", "a", "--rsh", "/usr/bin/ssh -p 2222"});
  EXPECT_EQ(ssh.transports[0].kind, TransportKind::kSsh);
  EXPECT_EQ(ssh.transports[0].commands[0][2], "exec /usr/bin/ssh -p 2222 \"$@\"");
  EXPECT_THAT(ssh.transports[0].commands[0], Contains("BatchMode=yes"));
  const HostsPlan other = Plan({"-H", "a", "--rsh", "docker exec -i"});
  EXPECT_EQ(other.transports[0].kind, TransportKind::kRsh);
  EXPECT_THAT(other.transports[0].commands[0], Not(Contains("BatchMode=yes")));
}

TEST(HostsPlan, SrunCarriesAllNodesAndNoMoreThanAreWanted) {
  const HostsPlan plan = Plan({"--srun", "--nnodes", "1"});
  ASSERT_EQ(plan.transports.size(), 1u);
  EXPECT_THAT(plan.transports[0].nodes, ElementsAre(0));
  EXPECT_THAT(plan.transports[0].commands[0], Contains("--ntasks=1"));
  EXPECT_EQ(plan.transports[0].setup.node, std::nullopt);
}

TEST(HostsPlan, MoreNodesThanHostsCannotBe) {
  const auto plan = MakeHostsPlan(Parse({"-H", "a", "--nnodes", "3"}), kTwo, Facts());
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("more than the 2 hosts"));
  EXPECT_EQ(Plan({"-H", "a", "--nnodes", "1:5"}).nodes_max, 2);
}

TEST(HostsPlan, TheEnvironmentGoesAlongButForWhatNamesThisMachine) {
  EXPECT_THAT(EnvironmentForHosts(Facts().environment, {}), ElementsAre("PATH=/bin", "LR=0.1"));
  EXPECT_THAT(EnvironmentForHosts(Facts().environment, {"HOME", "LR=0.2"}),
              ElementsAre("PATH=/bin", "HOME=/root", "LR=0.1", "LR=0.2"));
  // A function that bash exports is a variable to it: a script of the program may call it.
  EXPECT_THAT(EnvironmentForHosts({"BASH_FUNC_x%%=() {\n :; }", "XDG_RUNTIME_DIR=/run/user/0"}, {}),
              ElementsAre("BASH_FUNC_x%%=() {\n :; }"));
}

TEST(HostsPlan, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(ShellQuote("/opt/ddprun-1.0"), "/opt/ddprun-1.0");
  EXPECT_EQ(ShellQuote("a b"), "'a b'");
  EXPECT_EQ(ShellQuote("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellQuote(""), "''");
}

TEST(HostsPlan, ShowsWhoRunsWhatWhere) {
  const std::string text = HostsPlanText(Plan({"-H", "a", "--nnodes", "1"}));
  EXPECT_THAT(text, HasSubstr("node 0  a  --nproc-per-node 2  ssh"));
  EXPECT_THAT(text, HasSubstr("spare  b"));
  EXPECT_THAT(text, HasSubstr("there, in /work: ddprun"));
}

}  // namespace
}  // namespace ddprun
