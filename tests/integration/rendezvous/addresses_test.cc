// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/text.h"
#include "rendezvous/client/session_client.h"

namespace ddprun {
namespace {

TEST(AddressesTest, TheWayToThisHostIsLoopback) {
  const auto address = LocalAddressTowards("127.0.0.1", 29500);
  ASSERT_TRUE(address.ok()) << address.status();
  EXPECT_EQ(*address, "127.0.0.1");
}

TEST(AddressesTest, AnUnknownNameIsUnavailableAndNamed) {
  const auto address = LocalAddressTowards("no-such-host.invalid", 29500);
  EXPECT_EQ(address.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(address.status().message()),
              ::testing::HasSubstr("no-such-host.invalid"));
}

TEST(AddressesTest, AFreePortCanBeBound) {
  const auto port = FindFreePort("127.0.0.1");
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_GT(*port, 0);
  EXPECT_TRUE(ListenOn("127.0.0.1", *port).ok());
  EXPECT_EQ(FindFreePort("192.0.2.1").status().code(), absl::StatusCode::kUnavailable);
}

TEST(AddressesTest, HostAndPortInOneString) {
  EXPECT_EQ(HostPort("10.0.0.1", 29500), "10.0.0.1:29500");
  EXPECT_EQ(HostPort("node-0", 1), "node-0:1");
  EXPECT_EQ(HostPort("::1", 1), "[::1]:1");
  EXPECT_EQ(HostPort("[::1]", 1), "[::1]:1");
}

TEST(AddressesTest, NamesAreNotNumeric) {
  EXPECT_TRUE(IsNumericAddress("10.0.0.1"));
  EXPECT_TRUE(IsNumericAddress("fe80::1"));
  EXPECT_FALSE(IsNumericAddress("localhost"));
  EXPECT_FALSE(IsNumericAddress("10.0.0"));
}

}  // namespace
}  // namespace ddprun
