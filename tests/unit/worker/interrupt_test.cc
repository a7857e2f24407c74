// SPDX-License-Identifier: Apache-2.0
#include "ddprun/detail/interrupt.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <memory>
#include <thread>
#include <utility>

#include "rendezvous/base/owned_fd.h"
#include "worker/library/rounds/tcp_sockets.h"

namespace ddprun {
namespace {

TEST(Interrupt, RunsEachActionOnce) {
  const auto interrupt = std::make_shared<Interrupt>();
  int runs = 0;
  const auto registration = interrupt->Register([&runs] { ++runs; });
  EXPECT_NO_THROW(interrupt->Check());
  interrupt->Trigger();
  interrupt->Trigger();
  EXPECT_EQ(runs, 1);
  EXPECT_THROW(interrupt->Check(), RoundOver);
}

TEST(Interrupt, RunsALateActionAtOnce) {
  const auto interrupt = std::make_shared<Interrupt>();
  interrupt->Trigger();
  bool run = false;
  const auto registration = interrupt->Register([&run] { run = true; });
  EXPECT_TRUE(run);
}

TEST(Interrupt, RunsTheLatestActionFirst) {
  const auto interrupt = std::make_shared<Interrupt>();
  std::string order;
  const auto first = interrupt->Register([&order] { order += "1"; });
  const auto second = interrupt->Register([&order] { order += "2"; });
  interrupt->Trigger();
  EXPECT_EQ(order, "21");
}

TEST(Interrupt, AnActionThatIsRemovedDoesNotRun) {
  const auto interrupt = std::make_shared<Interrupt>();
  bool run = false;
  auto registration = interrupt->Register([&run] { run = true; });
  registration.reset();
  interrupt->Trigger();
  EXPECT_FALSE(run);
}

TEST(Interrupt, AnActionMayOwnARegistration) {
  const auto interrupt = std::make_shared<Interrupt>();
  auto inner = std::make_shared<Interrupt::Registration>(interrupt->Register([] {}));
  auto outer = interrupt->Register([inner] {});
  inner.reset();
  outer.reset();  // would wait for itself if it were destroyed with the lock
  interrupt->Trigger();
  EXPECT_TRUE(interrupt->triggered());
}

// Both ends of a connection over the loopback device.
std::pair<OwnedFd, OwnedFd> Connect() {
  OwnedFd listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(bind(listening.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(listen(listening.get(), 1), 0);
  EXPECT_EQ(getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  OwnedFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  OwnedFd server(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return {std::move(client), std::move(server)};
}

bool IsOpen(const OwnedFd& fd) {
  char byte = 0;
  const ssize_t size = recv(fd.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return size != 0;  // 0: shut down
}

TEST(TcpSockets, ShutsDownThoseThatCameLaterAndNoOthers) {
  const auto before = Connect();
  const SocketSet others = ConnectedTcpSockets();
  EXPECT_GE(others.size(), 2u);
  const auto after = Connect();
  ShutDownTcpSockets(others);
  EXPECT_TRUE(IsOpen(before.first));
  EXPECT_TRUE(IsOpen(before.second));
  EXPECT_FALSE(IsOpen(after.first));
  EXPECT_FALSE(IsOpen(after.second));
}

// Its round ends all the same: else Gloo would wait until this process is killed.
TEST(TcpSockets, ShutsDownWhereNoDescriptorIsLeft) {
  const SocketSet others = ConnectedTcpSockets();
  const auto after = Connect();
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit none = before;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  ShutDownTcpSockets(others);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(IsOpen(after.first));
  EXPECT_FALSE(IsOpen(after.second));
}

TEST(TcpSockets, EndsAWaitOfAnotherThread) {
  const SocketSet others = ConnectedTcpSockets();
  const auto [here, there] = Connect();
  std::thread waiting([fd = here.get()] {
    char byte = 0;
    EXPECT_EQ(recv(fd, &byte, 1, 0), 0);
  });
  ShutDownTcpSockets(others);
  waiting.join();
}

}  // namespace
}  // namespace ddprun
