// SPDX-License-Identifier: Apache-2.0
// What NCCL's process group is told where a person has not said anything.
#include "worker/library/distributed/nccl_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

GetEnv Having(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

constexpr const char* kErrorHandling = "TORCH_NCCL_ASYNC_ERROR_HANDLING";
const auto kWaitDefault = Pair("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1000");
const auto kHeartbeatDefault = Pair("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "120");

TEST(NcclSettingsTest, ErrorsEndARankInSeconds) {
  EXPECT_THAT(NcclDefaults(Having({}), NcclUse{}),
              ElementsAre(Pair(kErrorHandling, "1"), kWaitDefault, kHeartbeatDefault));
}

// ncclCommAbort would not return as long as the graph lives.
TEST(NcclSettingsTest, NothingIsAbortedWhereAGraphHasCollectives) {
  EXPECT_THAT(NcclDefaults(Having({}), NcclUse{.step_graphs = true}),
              ElementsAre(Pair(kErrorHandling, "3"), kWaitDefault, kHeartbeatDefault));
}

// The watchdog would end this process when a peer ends.
TEST(NcclSettingsTest, ARankThatIsKeptIsNotEnded) {
  for (const bool step_graphs : {false, true}) {
    const NcclUse use{.step_graphs = step_graphs, .kept = true};
    EXPECT_THAT(NcclDefaults(Having({{"TORCHELASTIC_RUN_ID", "none"}, {kErrorHandling, "1"}}), use),
                ElementsAre(Pair(kErrorHandling, "0"), kWaitDefault, kHeartbeatDefault));
  }
}

TEST(NcclSettingsTest, WhatAPersonHasSetStays) {
  for (const bool step_graphs : {false, true}) {
    for (const char* value : {"0", "1", "2", "3"}) {
      EXPECT_THAT(NcclDefaults(Having({{kErrorHandling, value},
                                       {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "15000"},
                                       {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", ""}}),
                               NcclUse{.step_graphs = step_graphs}),
                  IsEmpty())
          << value;
    }
  }
}

// torchrun and ddprun set 1 for each worker, unless the user has set another value.
TEST(NcclSettingsTest, ALaunchersDefaultIsNotTheUsers) {
  const auto launched = [](const char* value) {
    return Having({{"TORCHELASTIC_RUN_ID", "none"}, {kErrorHandling, value}});
  };
  EXPECT_THAT(NcclDefaults(launched("1"), NcclUse{.step_graphs = true}),
              ElementsAre(Pair(kErrorHandling, "3"), kWaitDefault, kHeartbeatDefault));
  EXPECT_THAT(NcclDefaults(launched("1"), NcclUse{}), ElementsAre(kWaitDefault, kHeartbeatDefault));
  for (const char* value : {"0", "2", "3"}) {
    EXPECT_THAT(NcclDefaults(launched(value), NcclUse{.step_graphs = true}),
                ElementsAre(kWaitDefault, kHeartbeatDefault));
  }
}

// PyTorch reads the former name only where the present one is not set.
TEST(NcclSettingsTest, AFormerNameCountsToo) {
  EXPECT_THAT(
      NcclDefaults(Having({{"NCCL_ASYNC_ERROR_HANDLING", "0"}}), NcclUse{.step_graphs = true}),
      ElementsAre(kWaitDefault, kHeartbeatDefault));
}

}  // namespace
}  // namespace ddprun
