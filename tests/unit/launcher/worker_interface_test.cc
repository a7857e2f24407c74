// SPDX-License-Identifier: Apache-2.0
#include "launcher/placement/worker_environ.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

GetVariable With(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(WorkerInterfaceTest, TheInterfaceOfAnAddress) {
  ASSERT_TRUE(InterfaceOf("127.0.0.1").has_value());
  EXPECT_EQ(InterfaceOf("127.0.0.1")->name, "lo");
  EXPECT_FALSE(InterfaceOf("127.0.0.1")->ipv6);
  EXPECT_EQ(InterfaceOf("192.0.2.1"), std::nullopt);  // for documentation, nobody's
  EXPECT_EQ(InterfaceOf(""), std::nullopt);
}

TEST(WorkerInterfaceTest, NcclIsToldTheExactName) {
  EXPECT_THAT(InterfaceVariables({"eth1"}, With({}), false),
              ElementsAre("GLOO_SOCKET_IFNAME=eth1", "NCCL_SOCKET_IFNAME==eth1"));
}

TEST(WorkerInterfaceTest, WhatAUserHasSaidStays) {
  EXPECT_THAT(InterfaceVariables({"eth1"}, With({{"GLOO_SOCKET_IFNAME", "ib0"}}), false),
              ElementsAre("NCCL_SOCKET_IFNAME==eth1"));
  EXPECT_THAT(InterfaceVariables({"eth1"}, With({{"NCCL_SOCKET_IFNAME", "^docker"}}), false),
              ElementsAre("GLOO_SOCKET_IFNAME=eth1"));
  EXPECT_THAT(InterfaceVariables({"eth1"}, With({}), true), ElementsAre("GLOO_SOCKET_IFNAME=eth1"));
  EXPECT_THAT(InterfaceVariables(
                  {"eth1"}, With({{"GLOO_SOCKET_IFNAME", ""}, {"NCCL_SOCKET_IFNAME", ""}}), false),
              IsEmpty());
}

TEST(WorkerInterfaceTest, OfTwoFamiliesNcclTakesTheOneThatReachedTheMaster) {
  EXPECT_THAT(InterfaceVariables({"eth1", true}, With({{"GLOO_SOCKET_IFNAME", "x"}}), false),
              ElementsAre("NCCL_SOCKET_IFNAME==eth1", "NCCL_SOCKET_FAMILY=AF_INET6"));
  EXPECT_THAT(InterfaceVariables({"eth1", true}, With({{"NCCL_SOCKET_FAMILY", "AF_INET"}}), false),
              ElementsAre("GLOO_SOCKET_IFNAME=eth1", "NCCL_SOCKET_IFNAME==eth1"));
}

TEST(WorkerInterfaceTest, AnAliasIsGloosAlone) {
  EXPECT_THAT(InterfaceVariables({"eth0:1"}, With({}), false),
              ElementsAre("GLOO_SOCKET_IFNAME=eth0:1"));
}

TEST(WorkerInterfaceTest, NcclsOwnFilesCount) {
  std::string home = ::testing::TempDir() + "/nccl_conf_XXXXXX";
  ASSERT_NE(mkdtemp(home.data()), nullptr);
  EXPECT_FALSE(NcclConfNamesInterfaces(With({{"HOME", home}})));
  std::ofstream(home + "/.nccl.conf") << "NCCL_DEBUG=WARN\n# NCCL_SOCKET_IFNAME=no\n";
  EXPECT_FALSE(NcclConfNamesInterfaces(With({{"HOME", home}})));
  std::ofstream(home + "/.nccl.conf") << "NCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME=eth\n";
  EXPECT_TRUE(NcclConfNamesInterfaces(With({{"HOME", home}})));
  // One that is named takes the place of the one at home.
  EXPECT_FALSE(NcclConfNamesInterfaces(With({{"HOME", home}, {"NCCL_CONF_FILE", "/dev/null"}})));
  std::filesystem::remove_all(home);
}

}  // namespace
}  // namespace ddprun
