// SPDX-License-Identifier: Apache-2.0
// Those who hold what others need too: watches of a run, and half messages on an agent's socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "rendezvous/base/limits.h"
#include "rendezvous/client/watch_client.h"
#include "rendezvous/tcpstore/store_client.h"
#include "tests/integration/rendezvous/store_agent.h"
#include "tests/integration/rendezvous/store_contract.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/eventually.h"
#include "tests/testing/tcpstore_requests.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

// ---- Watches

class WatchHoldersTest : public ::testing::Test {
 protected:
  WatchHoldersTest() { EXPECT_TRUE(node_.Next<Start>()); }

  std::unique_ptr<RunWatch> Open(bool output) {
    RunQuestion question;
    question.output = output;
    question.watch.follow = true;
    return RunWatch::Open(MakeServiceChannel(server_->target(), std::nullopt), "run", question);
  }
  static absl::StatusOr<std::optional<RunNews>> Next(RunWatch& watch) {
    return watch.Next(std::chrono::steady_clock::now() + kEventDeadline);
  }
  static void ExpectBegun(RunWatch& watch) {
    const auto news = Next(watch);
    ASSERT_TRUE(news.ok()) << news.status();
    ASSERT_TRUE(news->has_value());
    EXPECT_TRUE(std::holds_alternative<WatchBegun>(**news));
  }

  const std::unique_ptr<RendezvousServer> server_ = StartServer();
  TestNode node_{server_->target(), MakeJoin("a", 1)};
};

TEST_F(WatchHoldersTest, ANewOneTakesTheOldestsPlace) {
  std::vector<std::unique_ptr<RunWatch>> held;
  for (std::size_t i = 0; i < kWatchesMax; ++i) {
    held.push_back(Open(/*output=*/true));
    ExpectBegun(*held.back());
  }
  const auto another = Open(/*output=*/true);
  ExpectBegun(*another);
  absl::Status end;
  while (end.ok()) end = Next(*held.front()).status();
  EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(end.message()), HasSubstr("a newer one took this one's place"));
}

// `ddpctl stop --wait` asks for no output.
TEST_F(WatchHoldersTest, ThoseOfOutputAreInNobodysWayWhoWantsNone) {
  std::vector<std::unique_ptr<RunWatch>> held;
  for (std::size_t i = 0; i < kWatchesMax; ++i) {
    held.push_back(Open(/*output=*/true));
    ExpectBegun(*held.back());
  }
  const auto quiet = Open(/*output=*/false);
  ExpectBegun(*quiet);
  node_.Send(NodeSucceeded{RoundId{1}});
  EXPECT_TRUE(node_.Next<Finish>());
  for (const auto& watch : held) {
    absl::StatusOr<std::optional<RunNews>> news = std::optional<RunNews>();
    while (news.ok() && !(news->has_value() && std::holds_alternative<RunOver>(**news))) {
      news = Next(*watch);
    }
    EXPECT_TRUE(news.ok()) << news.status();
  }
}

// Whoever stops watching while news is on its way: a message that came after that was never taken,
// and its reader and connection never went.
TEST_F(WatchHoldersTest, WhoeverLeavesIsGone) {
  std::vector<std::weak_ptr<ServiceChannel>> channels;
  for (int i = 0; i < 100; ++i) {
    auto channel = MakeServiceChannel(server_->target(), std::nullopt);
    RunQuestion question;
    question.watch.follow = true;
    channels.push_back(channel);
    auto watch = RunWatch::Open(channel, "run", question);
    channel.reset();
    // The first news comes within a millisecond or two.
    (void)watch->Next(std::chrono::steady_clock::now() + std::chrono::microseconds(30 * i));
  }
  for (std::size_t i = 0; i < channels.size(); ++i) {
    EXPECT_TRUE(Eventually([&] { return channels[i].expired(); })) << i;
  }
}

// ---- Half messages

class HalfMessagesTest : public StoreAgentTest {
 protected:
  OwnedFd Connect() const {
    OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket_.c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    // What is not taken within a moment stays here.
    const timeval patience{0, 5000};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return fd;
  }

  // Returns how many bytes were taken.
  static std::size_t Send(const OwnedFd& fd, std::string_view bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += static_cast<std::size_t>(count);
    }
    return sent;
  }

  static std::string Begin(const std::string& key, std::size_t bytes) {
    return tcpstore::kHello + tcpstore::Request(1, tcpstore::Text(key)) +
           tcpstore::U64(kValueBytesMax) + std::string(bytes, 'x');
  }
};

TEST_F(HalfMessagesTest, HaveALimitTogetherAndKeepNobodyOut) {
  constexpr std::size_t kHalf = std::size_t{1200} << 10;
  [[maybe_unused]] const std::size_t before = ResidentBytes();
  std::vector<OwnedFd> stalled;
  for (int i = 0; i < 200; ++i) {
    stalled.push_back(Connect());
    Send(stalled.back(), Begin("k", kHalf));
  }
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(ResidentBytes(), before + (100u << 20));
#endif
  auto store = StoreClient::Connect({.target = "unix:" + socket_, .round = RoundId{1}});
  ASSERT_TRUE(store.ok()) << store.status();
  // A small message at once, a large one once a stalled one has had its time.
  StoreOp set = MakeOp(StoreVerb::kSet, {"key"});
  set.values = {"value"};
  EXPECT_TRUE((*store)->Call(set).status.ok());
  set.values = {std::string(1 << 20, 'v')};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE((*store)->Call(set).status.ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2 * kRequestRoomTimeout);
}

// One whose machine is busy sends slowly, but sends.
TEST_F(HalfMessagesTest, ASlowOneThatGoesOnArrivesAlsoWhileOthersWait) {
  const OwnedFd slow = Connect();
  const std::string whole = Begin("slow", kValueBytesMax);
  std::size_t sent = Send(slow, std::string_view(whole).substr(0, 64 << 10));  // has room first
  std::vector<OwnedFd> others;  // one more than has room: it waits
  for (int i = 0; i < 4; ++i) {
    others.push_back(Connect());
    Send(others.back(), Begin("k", std::size_t{1} << 20));
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto end = begin + kRequestRoomTimeout + std::chrono::seconds(2);
  while (sent < whole.size()) {
    const auto passed = std::chrono::steady_clock::now() - begin;
    const double due = std::min(1.0, passed / std::chrono::duration<double>(end - begin));
    const auto upto = static_cast<std::size_t>(due * static_cast<double>(whole.size()));
    if (upto > sent) sent += Send(slow, std::string_view(whole).substr(sent, upto - sent));
    pollfd closed{.fd = slow.get(), .events = POLLRDHUP, .revents = 0};
    ASSERT_EQ(poll(&closed, 1, 20), 0) << "closed after " << sent << " bytes";
  }
  auto store = StoreClient::Connect({.target = "unix:" + socket_, .round = RoundId{1}});
  ASSERT_TRUE(store.ok()) << store.status();
  const StoreResult result = (*store)->Call(MakeOp(StoreVerb::kGet, {"slow"}));
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(ValueOf(result).size(), kValueBytesMax);
}

// Large messages of good workers wait for each other, and all arrive.
TEST_F(HalfMessagesTest, ManyLargeMessagesAtOnceAllArrive) {
  constexpr int kWorkers = 24;
  std::vector<std::thread> workers;
  for (int i = 0; i < kWorkers; ++i) {
    workers.emplace_back([this, i] {
      auto store = StoreClient::Connect({.target = "unix:" + socket_, .round = RoundId{1}});
      ASSERT_TRUE(store.ok()) << store.status();
      for (int turn = 0; turn < 3; ++turn) {
        StoreOp set = MakeOp(StoreVerb::kSet, {"key-" + std::to_string(i)});
        set.values = {std::string(kValueBytesMax - 100, 'v')};
        StoreResult result = (*store)->Call(set);
        EXPECT_TRUE(result.status.ok()) << result.status;
        // Several times what one stream may have unsent.
        result = (*store)->Call(MakeOp(StoreVerb::kGet, set.keys));
        ASSERT_TRUE(result.status.ok()) << result.status;
        EXPECT_EQ(ValueOf(result), set.values[0]);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace
}  // namespace ddprun
