// SPDX-License-Identifier: Apache-2.0
#include "worker/library/rounds/round_listener.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "tests/testing/eventually.h"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kLimit = kEventuallyDeadline;

// The agent's end of both sockets.
class Agent {
 public:
  Agent() : path_(testing::TempDir() + "notify_" + std::to_string(getpid())) {
    unlink(path_.c_str());
    fd_ = OwnedFd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const sockaddr_un address = Address(path_);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const timeval limit{.tv_sec = kLimit.count(), .tv_usec = 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  ~Agent() { unlink(path_.c_str()); }

  const std::string& path() const { return path_; }

  std::string Receive() {
    char text[1024];
    const ssize_t size = recv(fd_.get(), text, sizeof text, 0);
    return size < 0 ? "nothing" : std::string(text, static_cast<std::size_t>(size));
  }
  std::string ReceiveNow() {
    char byte = 0;
    return recv(fd_.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 ? "nothing" : "something";
  }
  void Send(const RoundMessage& message) { SendText(ToText(message)); }
  void SendText(const std::string& text) {
    const sockaddr_un address = Address(RoundSocketPath(path_));
    ASSERT_GT(sendto(fd_.get(), text.data(), text.size(), 0,
                     reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
  }

 private:
  static sockaddr_un Address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    return address;
  }

  const std::string path_;
  OwnedFd fd_;
};

bool Never() { return false; }

class RoundListeners : public testing::Test {
 protected:
  RoundListeners() : listener_(RoundListener::Start(agent_.path())) {
    EXPECT_EQ(agent_.Receive(), "KEEP=1\n");
  }

  std::shared_ptr<Interrupt> Enter(std::uint64_t round) {
    auto interrupt = std::make_shared<Interrupt>();
    listener_->Enter(round, interrupt);
    return interrupt;
  }

  Agent agent_;
  const std::unique_ptr<RoundListener> listener_;
};

TEST(RoundListenerStart, IsNothingWithoutAnAgent) {
  EXPECT_EQ(RoundListener::Start(""), nullptr);
  EXPECT_EQ(RoundListener::Start("/nowhere/at/all"), nullptr);
}

TEST_F(RoundListeners, OnlyTheUserMaySend) {
  struct stat status {};
  ASSERT_EQ(stat(RoundSocketPath(agent_.path()).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

// A program may lower its own limit, and `ddpctl chaos` does.
TEST_F(RoundListeners, HearsAlsoWhereNoFileMayBeOpened) {
  Enter(7);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  // The thread waits for the first one already, and for the others under that limit.
  for (const std::uint64_t round : {5, 6, 7}) {
    agent_.Send(RoundBroken{round});
    if (round == 7) break;
    EXPECT_EQ(agent_.Receive(), "LEFT=" + std::to_string(round) + "\n");
  }
  const bool heard = listener_->AwaitBroken(kLimit);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(heard);
}

TEST_F(RoundListeners, EndsTheWaitsAndConfirmsOnceItWaits) {
  const auto interrupt = Enter(7);
  EXPECT_FALSE(listener_->AwaitBroken(std::chrono::milliseconds(0)));
  agent_.Send(RoundBroken{7});
  EXPECT_TRUE(listener_->AwaitBroken(kLimit));
  EXPECT_TRUE(interrupt->triggered());
  EXPECT_EQ(agent_.ReceiveNow(), "nothing");
  EXPECT_FALSE(listener_->AwaitRound([] { return true; }));
  EXPECT_EQ(agent_.Receive(), "LEFT=7\n");
  // While it waits it answers at once.
  agent_.Send(RoundBroken{7});
  EXPECT_EQ(agent_.Receive(), "LEFT=7\n");
  agent_.Send(RoundBroken{8});
  // The thread and the one that waits may both have confirmed round 7.
  std::string answer = agent_.Receive();
  while (answer == "LEFT=7\n") answer = agent_.Receive();
  EXPECT_EQ(answer, "LEFT=8\n");
}

TEST_F(RoundListeners, ConfirmsAnEarlierRoundAgainAndStays) {
  const auto interrupt = Enter(7);
  agent_.Send(RoundBroken{6});
  EXPECT_EQ(agent_.Receive(), "LEFT=6\n");
  agent_.SendText("BROKEN=soon\n");
  agent_.Send(RoundBroken{5});
  EXPECT_EQ(agent_.Receive(), "LEFT=5\n");
  EXPECT_FALSE(interrupt->triggered());
}

TEST_F(RoundListeners, GivesTheNextRound) {
  Enter(7);
  agent_.Send(RoundBroken{7});
  agent_.Send(RoundBegins{8, {{"RANK", "3"}}});
  const auto next = listener_->AwaitRound(Never);
  ASSERT_TRUE(next);
  EXPECT_EQ(*next, (RoundBegins{8, {{"RANK", "3"}}}));
  const auto interrupt = Enter(8);
  EXPECT_FALSE(interrupt->triggered());
}

TEST_F(RoundListeners, ARoundThatBeginsEndsTheOneBefore) {
  const auto interrupt = Enter(7);
  agent_.Send(RoundBegins{8, {}});
  EXPECT_TRUE(listener_->AwaitBroken(kLimit));
  EXPECT_TRUE(interrupt->triggered());
  EXPECT_TRUE(listener_->AwaitRound(Never));
}

TEST_F(RoundListeners, ARoundThatIsOverBeforeItIsEnteredIsInterrupted) {
  Enter(7);
  agent_.Send(RoundBegins{8, {}});
  ASSERT_TRUE(listener_->AwaitRound(Never));
  agent_.Send(RoundBroken{8});
  ASSERT_TRUE(listener_->AwaitBroken(kLimit));
  EXPECT_TRUE(Enter(8)->triggered());
}

TEST_F(RoundListeners, ARoundThatIsOverIsNotGiven) {
  Enter(7);
  agent_.Send(RoundBegins{8, {}});
  agent_.Send(RoundBroken{8});
  agent_.Send(RoundBroken{6});
  EXPECT_EQ(agent_.Receive(), "LEFT=6\n");  // it has read all of them
  agent_.Send(RoundBegins{9, {}});
  const auto next = listener_->AwaitRound(Never);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->round, 9u);
}

TEST_F(RoundListeners, LeavesByItselfWithTheReason) {
  const auto interrupt = Enter(7);
  listener_->Leave("connection closed by peer");
  EXPECT_EQ(agent_.Receive(), "LEFT=7\nERROR=connection closed by peer\n");
  EXPECT_TRUE(interrupt->triggered()) << "other collectives would wait for their timeout";
}

TEST_F(RoundListeners, GivesUpWhenAsked) {
  Enter(7);
  EXPECT_FALSE(listener_->AwaitRound([] { return true; }));
}

}  // namespace
}  // namespace ddprun
