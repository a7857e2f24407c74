// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddprun {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Ssh(const std::vector<std::string>& words, int code = 255) {
  return WhyNotStarted("n1", Transport::kSsh, Exited{code}, words, {"ssh", "n1", "a b"});
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
  EXPECT_THAT(Ssh({"ddprun: unknown flag --lifeline"}, 2),
              AllOf(HasSubstr("exit code 2"), HasSubstr(": unknown flag --lifeline;"),
                    HasSubstr("ssh n1 'a b'"), HasSubstr("another version")));
}

TEST(HostsAdvice, SshsOwnFailureIsNoExitCodeOfANode) {
  EXPECT_EQ(NodeExitCode(Transport::kSsh, Exited{255}), 1);
  EXPECT_EQ(NodeExitCode(Transport::kSsh, Exited{139}), 139);
  EXPECT_EQ(NodeExitCode(Transport::kSsh, Signaled{SIGKILL}), 1);
  EXPECT_EQ(NodeExitCode(Transport::kDirect, Signaled{SIGKILL}), 137);
  EXPECT_EQ(NodeExitCode(Transport::kRsh, Exited{255}), 255);
  EXPECT_EQ(NodeExitCode(Transport::kSsh, SpawnFailed{127, "x"}), 127);
}

}  // namespace
}  // namespace ddprun
