// SPDX-License-Identifier: Apache-2.0
// What workers are told of the interface they should use.
#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr char kShowInterfaces[] = "echo gloo=$GLOO_SOCKET_IFNAME nccl=$NCCL_SOCKET_IFNAME.";

TEST_F(DdprunTest, WorkersOfOneNodeAreToldNoInterface) {
  variables_["GLOO_SOCKET_IFNAME"] = variables_["NCCL_SOCKET_IFNAME"] = "";
  auto run = Launch({"--nproc-per-node", "2", "sh", "-c", kShowInterfaces});
  ASSERT_EQ(run->Wait(), 0) << run->err();
  EXPECT_THAT(run->out(), HasSubstr("[1] gloo= nccl=.\n"));
}

class InterfaceTest : public DdprunPortTest {};

TEST_F(InterfaceTest, WorkersTalkOverTheInterfaceThatReachedTheMaster) {
  variables_["GLOO_SOCKET_IFNAME"] = variables_["NCCL_SOCKET_IFNAME"] = "";
  auto first = LaunchNode(0, port_, kShowInterfaces);
  auto second = LaunchNode(1, port_, kShowInterfaces);
  ASSERT_EQ(first->Wait(), 0) << first->err();
  ASSERT_EQ(second->Wait(), 0) << second->err();
  EXPECT_THAT(first->out(), HasSubstr("gloo=lo nccl==lo.\n"));
  EXPECT_THAT(second->out(), HasSubstr("gloo=lo nccl==lo.\n"));
}

TEST_F(InterfaceTest, WhatAUserHasSaidOfInterfacesStays) {
  variables_["GLOO_SOCKET_IFNAME"] = "ib0";
  variables_["NCCL_SOCKET_IFNAME"] = "^docker";
  auto first = LaunchNode(0, port_, kShowInterfaces);
  auto second = LaunchNode(1, port_, kShowInterfaces);
  ASSERT_EQ(first->Wait(), 0) << first->err();
  ASSERT_EQ(second->Wait(), 0) << second->err();
  EXPECT_THAT(first->out(), HasSubstr("gloo=ib0 nccl=^docker.\n"));
}

}  // namespace
}  // namespace ddprun
