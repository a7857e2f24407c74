// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using Codes = std::vector<ExitCodeRange>;
using ::testing::HasSubstr;

struct Read {
  RestartOptions options;
  std::string error;
};

Read Parse(const std::vector<std::pair<std::string, std::string>>& flags) {
  Values values;
  for (const auto& [flag, text] : flags) values[flag] = {text, flag};
  Reader reader(values);
  Options options;
  reader.Read(kRestartFlags, options);
  FinishRestarts(reader, options);
  return {options.restarts, std::string(reader.status().message())};
}

Codes Never(const std::string& list) {
  const Read read = Parse({{"--no-restart-exit-codes", list}});
  EXPECT_EQ(read.error, "") << list;
  return read.options.policy.never_codes;
}

TEST(RestartOptionsTest, DefaultsAreTorchrunsButForProgramsThatAreNotThere) {
  const RestartOptions options = Parse({}).options;
  EXPECT_EQ(options.max_restarts, 0);
  EXPECT_EQ(options.policy, (RestartPolicy{.never_codes = {{126, 127}}}));
}

TEST(RestartOptionsTest, ListsOfExitCodes) {
  EXPECT_EQ(Never("2"), (Codes{{2, 2}}));
  EXPECT_EQ(Never("2,77-80, 255"), (Codes{{2, 2}, {77, 80}, {255, 255}}));
  EXPECT_EQ(Never("SIGSEGV,abrt,SIGTERM"), (Codes{{139, 139}, {134, 134}, {143, 143}}));
  EXPECT_EQ(Never("none"), Codes{});
  for (const char* list : {"", "0", "256", "5-", "-5", "9-2", "1,,2", "SIGNOTHING", "1.5", "2 3"}) {
    EXPECT_THAT(Parse({{"--no-restart-exit-codes", list}}).error,
                HasSubstr("is not a list of up to 64 exit codes and signals"))
        << list;
  }
  std::string many = "1";
  for (std::size_t i = 0; i < kExitCodeRangesMax; ++i) many += ",1";
  EXPECT_NE(Parse({{"--restart-exit-codes", many}}).error, "");
}

TEST(RestartOptionsTest, WhoSaysWhichAreWorthItHasSaidWhatIsNot) {
  const RestartPolicy policy = Parse({{"--restart-exit-codes", "75,127"}}).options.policy;
  EXPECT_EQ(policy.only_codes, (Codes{{75, 75}, {127, 127}}));
  EXPECT_EQ(policy.never_codes, Codes{});
}

TEST(RestartOptionsTest, DelaysGrowOrStay) {
  using std::chrono::milliseconds;
  const RestartPolicy same = Parse({{"--restart-delay", "1.5"}}).options.policy;
  EXPECT_EQ(same.delay, milliseconds(1500));
  EXPECT_EQ(same.delay_max, milliseconds(0));
  const RestartPolicy grows = Parse({{"--restart-delay", "1:60"}}).options.policy;
  EXPECT_EQ(grows.delay, milliseconds(1000));
  EXPECT_EQ(grows.delay_max, milliseconds(60'000));
  EXPECT_THAT(Parse({{"--restart-delay", "60:1"}}).error, HasSubstr("MAX is not the smaller"));
  for (const char* wrong : {"", "1:", ":2", "x", "-1", "1:2:3", "3601"}) {
    EXPECT_THAT(Parse({{"--restart-delay", wrong}}).error, HasSubstr("--restart-delay")) << wrong;
  }
}

TEST(RestartOptionsTest, WhatMakesNoSenseTogetherIsNamed) {
  EXPECT_THAT(Parse({{"--node-cooldown", "5"}}).error, HasSubstr("give --node-failures-max too"));
  EXPECT_THAT(Parse({{"--max-restarts", "10001"}, {"--restart-window", "5"}}).error,
              HasSubstr("give at most 10000"));
  EXPECT_EQ(Parse({{"--max-restarts", "10001"}}).error, "");
  EXPECT_THAT(Parse({{"--no-progress-restarts", "0"}}).error, HasSubstr("from 1"));
}

}  // namespace
}  // namespace ddprun
