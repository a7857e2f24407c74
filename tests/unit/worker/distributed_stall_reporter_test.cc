// SPDX-License-Identifier: Apache-2.0
// Where a silent rank waits, as its agent hears it.
#include "worker/library/progress/stall_reporter.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

constexpr std::chrono::milliseconds kSoon{1};

class StallReporterTest : public ::testing::Test {
 protected:
  StallReporterTest() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~StallReporterTest() override { close(socket_); }

  ProgressMessage Next() {
    pollfd ready{socket_, POLLIN, 0};
    if (poll(&ready, 1, 60'000) != 1) return {};
    char text[kProgressMessageBytesMax];
    const ssize_t size = recv(socket_, text, sizeof text, 0);
    return ParseProgress({text, static_cast<std::size_t>(size)});
  }
  // The next message about a place.
  CollectivePlace NextPlace() {
    for (;;) {
      const ProgressMessage message = Next();
      if (message.place.has_value()) {
        EXPECT_FALSE(message.goes_on);
        return *message.place;
      }
    }
  }

  const TempFiles files_;
  const std::string path_ = files_.Path("progress");
  int socket_ = -1;
};

CollectivePlace In(std::int64_t number) {
  return {Collective{"0", number, "all_reduce", 4, "float32"}, {}};
}

TEST_F(StallReporterTest, ASilentRankTellsWhereItWaitsAndWhatChanges) {
  ProgressSender progress(path_);
  progress.Send(ParseProgress("STEP=1"));
  EXPECT_EQ(Next().step, 1);
  std::atomic<std::int64_t> number{57};
  StallReporter stalls(
      progress, [&] { return In(number); }, kSoon);
  EXPECT_EQ(NextPlace(), In(57));
  number = 58;
  EXPECT_EQ(NextPlace(), In(58));
}

TEST_F(StallReporterTest, AfterASignOfLifeItIsToldAnew) {
  ProgressSender progress(path_);
  StallReporter stalls(
      progress, [] { return In(57); }, kSoon);
  EXPECT_EQ(NextPlace(), In(57));
  progress.Send(ParseProgress("STEP=2"));
  EXPECT_EQ(NextPlace(), In(57));
}

TEST_F(StallReporterTest, APlaceThatIsOutOfDateIsNotTold) {
  ProgressSender progress(path_);
  const std::uint64_t words = progress.words();
  progress.Send(ParseProgress("STEP=2"));
  EXPECT_FALSE(progress.SendPlace(In(57), words));
  EXPECT_TRUE(progress.SendPlace(In(58), progress.words()));
  EXPECT_EQ(Next().step, 2);
  EXPECT_EQ(Next().place, In(58));
}

TEST_F(StallReporterTest, NothingIsLookedAtOnceItIsStoppedOrWhereNobodyListens) {
  ProgressSender progress(path_);
  std::atomic<int> looks{0};
  StallReporter stalls(
      progress,
      [&] {
        ++looks;
        return In(1);
      },
      kSoon);
  EXPECT_EQ(NextPlace(), In(1));
  stalls.Stop();
  const int before = looks;
  stalls.Stop();
  EXPECT_EQ(looks, before);
  ProgressSender alone("");
  StallReporter unheard(
      alone, [&] { return (++looks, In(1)); }, kSoon);
  unheard.Stop();
  EXPECT_EQ(looks, before);
}

}  // namespace
}  // namespace ddprun
