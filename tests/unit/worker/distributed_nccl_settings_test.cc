// SPDX-License-Identifier: Apache-2.0
// What NCCL's process group is told where a person has not said anything.
#include "worker/distributed/nccl_settings.h"

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

TEST(NcclSettingsTest, ErrorsEndARankInSeconds) {
  EXPECT_THAT(NcclDefaults(Having({})),
              ElementsAre(Pair("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
                          Pair("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1000"),
                          Pair("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "120")));
}

TEST(NcclSettingsTest, WhatAPersonHasSetStays) {
  EXPECT_THAT(NcclDefaults(Having({{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"},
                                   {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "15000"},
                                   {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", ""}})),
              IsEmpty());
}

// PyTorch reads the former name only where the present one is not set.
TEST(NcclSettingsTest, AFormerNameCountsToo) {
  EXPECT_THAT(NcclDefaults(Having({{"NCCL_ASYNC_ERROR_HANDLING", "0"}})),
              ElementsAre(Pair("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1000"),
                          Pair("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "120")));
}

}  // namespace
}  // namespace ddprun
