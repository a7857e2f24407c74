// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/network.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

TEST(NetworkTest, ThisMachine) {
  EXPECT_TRUE(IsThisMachine("127.0.0.1"));
  EXPECT_TRUE(IsThisMachine("localhost"));
  EXPECT_FALSE(IsThisMachine("192.0.2.1"));  // for documentation, nobody's
  EXPECT_FALSE(HostName().empty());
}

TEST(NetworkTest, APortThatSomethingListensOnIsNotFree) {
  const OwnedFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_FALSE(IsPortFree("127.0.0.1", ntohs(address.sin_port)));
  EXPECT_FALSE(IsPortFree("192.0.2.1", ntohs(address.sin_port)));
}

}  // namespace
}  // namespace ddprun
