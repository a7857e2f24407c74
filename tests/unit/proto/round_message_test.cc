// SPDX-License-Identifier: Apache-2.0
#include "proto/round_message.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(RoundMessageTest, EveryMessageComesBack) {
  EXPECT_EQ(ParseRoundMessage(ToText(RoundBroken{7})), RoundMessage(RoundBroken{7}));
  const RoundBegins begins{.round = 8, .variables = {{"RANK", "1"}, {"A", "x=y z"}, {"EMPTY", ""}}};
  EXPECT_EQ(ParseRoundMessage(ToText(begins)), RoundMessage(begins));
}

TEST(RoundMessageTest, AWorkerFindsInItWhatItWouldFindInItsEnvironment) {
  WorkerEnv env;
  env.rank = 3;
  env.world_size = 4;
  env.local_rank = 1;
  env.local_world_size = 2;
  env.group_rank = 1;
  env.group_world_size = 2;
  env.master_addr = "::1";
  env.master_port = 29500;
  env.run_id = "a run";
  env.agent_socket = "/tmp/agent.sock";
  env.round = 9;
  const auto message = ParseRoundMessage(ToText(RoundBegins{9, ToEnviron(env)}));
  ASSERT_TRUE(message);
  const auto read = EnvOf(std::get<RoundBegins>(*message));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToEnviron(*read), ToEnviron(env));
}

TEST(RoundMessageTest, ALineEndInAValueAddsNoVariable) {
  const auto message = ParseRoundMessage(ToText(RoundBegins{1, {{"A", "x\nRANK=9"}}}));
  EXPECT_EQ(std::get<RoundBegins>(*message).variables,
            (std::vector<std::pair<std::string, std::string>>{{"A", "x RANK=9"}}));
}

TEST(RoundMessageTest, AnythingElseIsNoMessage) {
  for (const char* text : {"", "\n", "BROKEN=", "BROKEN=0", "BROKEN=x", "ROUND=-1",
                           "RANK=1\nROUND=2", "broken=1", "ROUND"})
    EXPECT_FALSE(ParseRoundMessage(text)) << text;
  EXPECT_FALSE(EnvOf({1, {{"RANK", "0"}}}).ok());
}

}  // namespace
}  // namespace ddprun
