// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/stdin_pump.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

namespace ddprun {
namespace {

constexpr WorkerStdin kRankOne{.to = WorkerStdin::To::kRank, .rank = 1};

// A person at a terminal, and the rank that reads from it.
class StdinPumpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int person = -1;
    int terminal = -1;
    ASSERT_EQ(openpty(&person, &terminal, nullptr, nullptr, nullptr), 0);
    person_ = OwnedFd(person);
    terminal_ = OwnedFd(terminal);
    pump_ = std::make_unique<StdinPump>(kRankOne, 0, terminal);
    ASSERT_GE(pump_->worker_end(), 0);
    fcntl(pump_->worker_end(), F_SETFL, O_NONBLOCK);
  }

  void Type(const std::string& text) const {
    ASSERT_EQ(write(person_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Until nothing more is ready.
  void Turn() {
    pump_->OnTurn(poller_, TimePoint());
    while (
        !poller_.Wait(std::chrono::steady_clock::now() + std::chrono::milliseconds(20)).empty()) {
      pump_->OnReady();
      pump_->OnTurn(poller_, TimePoint());
    }
  }
  // What the rank reads: "(nothing yet)" if it would wait, "" at the end.
  std::string Read() const {
    char buffer[65536];
    const ssize_t count = read(pump_->worker_end(), buffer, sizeof(buffer));
    return count < 0 ? "(nothing yet)" : std::string(buffer, static_cast<std::size_t>(count));
  }

  OwnedFd person_;
  OwnedFd terminal_;
  Poller poller_;
  std::unique_ptr<StdinPump> pump_;
};

TEST_F(StdinPumpTest, LinesComeToTheRank) {
  pump_->BeginRound(0, 2);
  Type("run\nquit\n");
  Turn();
  EXPECT_EQ(Read(), "run\nquit\n");
  EXPECT_EQ(Read(), "(nothing yet)");
}

TEST_F(StdinPumpTest, NothingIsReadWhileTheRankIsElsewhere) {
  Type("run\n");
  Turn();
  pump_->BeginRound(2, 2);
  Turn();
  EXPECT_EQ(Read(), "(nothing yet)");
  pump_->BeginRound(1, 1);
  Turn();
  EXPECT_EQ(Read(), "run\n");
}

TEST_F(StdinPumpTest, ControlDIsTheEnd) {
  pump_->BeginRound(0, 2);
  Type("last\n\x04");
  Turn();
  EXPECT_EQ(Read(), "last\n");
  EXPECT_EQ(Read(), "");
}

TEST_F(StdinPumpTest, ARankThatDoesNotReadLeavesTheRestInTheTerminal) {
  pump_->BeginRound(0, 2);
  const std::string line = std::string(999, 'x') + "\n";
  const int pipe_bytes = fcntl(pump_->worker_end(), F_GETPIPE_SZ);
  // The pump would have taken all if it did not wait for the rank.
  fcntl(person_.get(), F_SETFL, O_NONBLOCK);
  std::size_t typed = 0;
  while (typed < 4u * static_cast<std::size_t>(pipe_bytes) &&
         write(person_.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
    typed += line.size();
    Turn();
  }
  EXPECT_LT(typed, 4u * static_cast<std::size_t>(pipe_bytes));
  std::size_t read_bytes = 0;
  for (std::string text = Read(); text != "(nothing yet)"; text = Read()) {
    read_bytes += text.size();
    Turn();
  }
  EXPECT_EQ(read_bytes % line.size(), 0u);
  EXPECT_GE(read_bytes, static_cast<std::size_t>(pipe_bytes) / 2);
}

TEST(StdinPumpChoiceTest, OnlyATerminalForOneRankNeedsIt) {
  int fds[2];
  ASSERT_EQ(pipe2(fds, O_CLOEXEC), 0);
  const OwnedFd ends[] = {OwnedFd(fds[0]), OwnedFd(fds[1])};
  EXPECT_EQ(StdinPump(kRankOne, 0, fds[0]).worker_end(), -1);
  EXPECT_EQ(StdinPump({}, 0, fds[0]).worker_end(), -1);
}

TEST(StdinPumpOfAHeadTest, TheHeadIsAskedOnceTheRankHasTakenWhatItSent) {
  int asked = 0;
  StdinPump pump(kRankOne, [&asked] { ++asked; });
  Poller poller;
  fcntl(pump.worker_end(), F_SETFL, O_NONBLOCK);
  const auto read_all = [&pump] {
    char buffer[256 << 10];
    const ssize_t count = read(pump.worker_end(), buffer, sizeof(buffer));
    return static_cast<int>(count);
  };
  pump.OnTurn(poller, TimePoint());
  EXPECT_EQ(asked, 0);  // the rank is not here
  pump.BeginRound(0, 2);
  for (int turn = 0; turn < 3; ++turn) pump.OnTurn(poller, TimePoint());
  EXPECT_EQ(asked, 1);
  const int pipe_bytes = fcntl(pump.worker_end(), F_GETPIPE_SZ);
  pump.Receive(std::string(static_cast<std::size_t>(pipe_bytes) + 10, 'x'), /*end=*/false);
  pump.OnTurn(poller, TimePoint());
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(read_all(), pipe_bytes);
  ASSERT_FALSE(poller.Wait(TimePoint::max()).empty());
  pump.OnReady();
  pump.OnTurn(poller, TimePoint());
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(read_all(), 10);
  pump.Receive("", /*end=*/true);
  pump.OnTurn(poller, TimePoint());
  EXPECT_EQ(read_all(), 0);
  EXPECT_EQ(asked, 2);
}

TEST(StdinPumpOfAHeadTest, ItIsAskedAgainWhenTheRankComesBack) {
  int asked = 0;
  StdinPump pump(kRankOne, [&asked] { ++asked; });
  Poller poller;
  for (const int rank_first : {0, 2, 0}) {
    pump.BeginRound(rank_first, 2);
    pump.OnTurn(poller, TimePoint());
  }
  EXPECT_EQ(asked, 2);
}

TEST(SaysForegroundTest, TheGroupOfTheTerminalIsTheProcesss) {
  EXPECT_TRUE(SaysForeground("12 (ddprun) S 1 12 12 34816 12 4194560 1"));
  EXPECT_FALSE(SaysForeground("12 (a) b) S 1 12 9 34816 9 4194560 1"));
  EXPECT_TRUE(SaysForeground("12 (ddprun) S 1 12 12 0 -1 4194560 1"));  // no terminal
  EXPECT_TRUE(SaysForeground(""));
}

}  // namespace
}  // namespace ddprun
