// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Ssh(const std::vector<std::string>& words, int code = 255) {
  const Transport transport{.kind = TransportKind::kSsh,
                            .nodes = {0},
                            .commands = {{"ssh", "n1", "first"}, {"ssh", "n1", "a b"}},
                            .setup = {}};
  return WhyNotStarted("n1", transport, 1, Exited{code}, words);
}

TEST(HostsAdvice, NamesTheHostTheFactAndTheNextMove) {
  EXPECT_THAT(Ssh({"a@n1: Permission denied (publickey,password)."}),
              AllOf(HasSubstr("n1 cannot be reached by ssh: a@n1: Permission denied"),
                    HasSubstr("ssh-copy-id n1")));
  EXPECT_THAT(Ssh({"No ED25519 host key is known", "Host key verification failed.", ""}),
              AllOf(HasSubstr(": Host key verification failed."), HasSubstr("`ssh n1` once")));
  EXPECT_THAT(Ssh({"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @",
                   "Host key verification failed."}),
              HasSubstr("ssh-keygen -R n1"));
  EXPECT_THAT(Ssh({"kex_exchange_identification: read: Connection reset"}),
              HasSubstr("try `ssh n1 true` by hand"));
}

TEST(HostsAdvice, OtherEndsShowTheCommand) {
  EXPECT_THAT(Ssh({"ddprun: unknown flag --control-pipe"}, 2),
              AllOf(HasSubstr("exit code 2"), HasSubstr(": unknown flag --control-pipe;"),
                    HasSubstr("ssh n1 'a b'"), HasSubstr("another version")));
}

// The remote shell says 127 of whatever it does not find.
TEST(HostsAdvice, WhatIsNotThereIsWhatWasAskedFor) {
  EXPECT_THAT(Ssh({"bash: line 1: ddprun: command not found"}, 127),
              HasSubstr("n1 has no ddprun, neither at the path it has here nor in the PATH that "
                        "ssh finds there"));
  Transport transport{.kind = TransportKind::kSsh,
                      .nodes = {0},
                      .commands = {{"ssh", "n1", "/opt/ddprun", "--control-pipe"}},
                      .launch_agent = "/opt/ddprun",
                      .setup = {}};
  EXPECT_THAT(WhyNotStarted("n1", transport, 0, Exited{127}, {"sh: 1: /opt/ddprun: not found"}),
              AllOf(HasSubstr("n1 does not find what --launch-agent names, '/opt/ddprun': sh: 1:"),
                    HasSubstr("give the path of ddprun there")));
  transport.kind = TransportKind::kRsh;
  EXPECT_THAT(WhyNotStarted("n1", transport, 0, Exited{127}, {"ddprun: 1: exec: pdsh: not found"}),
              HasSubstr("the --rsh command is not there on this machine: 1: exec: pdsh: not"));
  EXPECT_THAT(WhyNotStarted("n1", transport, 0, Exited{127}, {"sh: 1: /opt/ddprun: not found"}),
              HasSubstr("--launch-agent names"));
}

TEST(HostsAdvice, SshsOwnFailureIsNoExitCodeOfANode) {
  EXPECT_EQ(NodeExitCode(TransportKind::kSsh, Exited{255}), 1);
  EXPECT_EQ(NodeExitCode(TransportKind::kSsh, Exited{139}), 139);
  EXPECT_EQ(NodeExitCode(TransportKind::kSsh, Signaled{SIGKILL}), 1);
  EXPECT_EQ(NodeExitCode(TransportKind::kDirect, Signaled{SIGKILL}), 137);
  EXPECT_EQ(NodeExitCode(TransportKind::kRsh, Exited{255}), 255);
  EXPECT_EQ(NodeExitCode(TransportKind::kSsh, SpawnFailed{127, "x"}), 127);
}

}  // namespace
}  // namespace ddprun
