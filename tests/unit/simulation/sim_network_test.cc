// SPDX-License-Identifier: Apache-2.0
// The simulated network does to streams what a real one does, and nothing else.
#include "tests/simulation/sim_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Notes what it hears.
class Listener final : public SimEndpoint<int> {
 public:
  explicit Listener(SimClock& clock) : clock_(&clock) {}
  void OnAccepted(SimStream stream, SimProcess from) override {
    accepted.push_back(stream);
    peer = from;
  }
  void OnConnected(SimStream) override { ++connected; }
  void OnMessage(SimStream, int message) override {
    heard.push_back(message);
    last_heard = clock_->now();
  }
  void OnClosed(SimStream) override {
    ++closed;
    closed_at = clock_->now();
  }

  std::vector<SimStream> accepted;
  SimProcess peer{99};
  int connected = 0;
  std::vector<int> heard;
  TimePoint last_heard{};
  int closed = 0;
  TimePoint closed_at{};

 private:
  SimClock* clock_;
};

class SimNetworkTest : public ::testing::Test {
 protected:
  void Make(SimNetworkOptions options = {}, std::uint64_t seed = 1) {
    clock.RunFor(std::chrono::hours(1));  // what a network before this one had still to do
    at_a = Listener(clock);
    at_b = Listener(clock);
    network.emplace(clock, SimRandom(seed), options);
    a = network->Add("a");
    b = network->Add("b");
    network->Start(a, &at_a);
    network->Start(b, &at_b);
  }
  SimStream Connected() {
    const SimStream stream = network->Dial(a, b);
    clock.RunFor(seconds(1));
    EXPECT_EQ(at_a.connected, 1);
    EXPECT_THAT(at_b.accepted, ElementsAre(stream));
    return stream;
  }

  SimClock clock;
  std::optional<SimNetwork<int>> network;
  SimProcess a{};
  SimProcess b{};
  Listener at_a{clock};
  Listener at_b{clock};
};

TEST_F(SimNetworkTest, MessagesArriveInOrderBothWaysAfterADelay) {
  Make();
  const SimStream stream = network->Dial(a, b);
  for (int i = 0; i < 50; ++i) network->Send(a, stream, i);  // before it is connected
  EXPECT_THAT(at_b.heard, IsEmpty());
  clock.RunFor(seconds(1));
  EXPECT_EQ(at_b.peer, a);
  ASSERT_EQ(at_b.heard.size(), 50u);
  EXPECT_TRUE(std::is_sorted(at_b.heard.begin(), at_b.heard.end()));
  for (int i = 0; i < 50; ++i) network->Send(b, stream, i);
  const TimePoint sent = clock.now();
  clock.RunFor(seconds(1));
  ASSERT_EQ(at_a.heard.size(), 50u);
  EXPECT_TRUE(std::is_sorted(at_a.heard.begin(), at_a.heard.end()));
  EXPECT_LE(at_a.last_heard - sent, SimNetworkOptions().delay_max);
  EXPECT_EQ(network->messages(), 100u);
  EXPECT_EQ(at_a.closed + at_b.closed, 0);
}

TEST_F(SimNetworkTest, WhatWasSentBeforeACloseArrivesAndThenTheClose) {
  Make();
  const SimStream stream = Connected();
  network->Send(a, stream, 1);
  network->Close(a, stream);
  network->Send(a, stream, 2);
  clock.RunFor(seconds(1));
  EXPECT_THAT(at_b.heard, ElementsAre(1));
  EXPECT_EQ(at_b.closed, 1);
  EXPECT_EQ(at_a.closed, 0) << "its own close";
  EXPECT_THAT(network->OpenStreams(), IsEmpty());
  network->Send(b, stream, 3);
  network->Close(b, stream);
  clock.RunFor(seconds(1));
  EXPECT_THAT(at_a.heard, IsEmpty());
}

TEST_F(SimNetworkTest, APacketThatIsSentAgainHoldsUpWhatFollows) {
  Make({.resend = 0.3});
  const SimStream stream = Connected();
  for (int i = 0; i < 100; ++i) network->Send(a, stream, i);
  const TimePoint sent = clock.now();
  clock.RunFor(seconds(10));
  ASSERT_EQ(at_b.heard.size(), 100u);
  EXPECT_TRUE(std::is_sorted(at_b.heard.begin(), at_b.heard.end()));
  EXPECT_GE(at_b.last_heard - sent, SimNetworkOptions().resend_delay);
}

TEST_F(SimNetworkTest, MessagesCanBeLostAloneOrComeTwice) {
  Make({.drop = 0.2, .duplicate = 0.2});
  const SimStream stream = Connected();
  for (int i = 0; i < 1000; ++i) network->Send(a, stream, i);
  clock.RunFor(seconds(10));
  std::set<int> distinct(at_b.heard.begin(), at_b.heard.end());
  EXPECT_NEAR(static_cast<double>(distinct.size()), 800, 60);
  EXPECT_NEAR(static_cast<double>(at_b.heard.size() - distinct.size()), 160, 50);
  EXPECT_EQ(at_b.closed, 0);
}

TEST_F(SimNetworkTest, ABrokenStreamIsHeardOfByBothEachInItsTime) {
  Make();
  const SimStream stream = Connected();
  network->Send(a, stream, 1);
  network->Break(stream);
  clock.RunFor(seconds(1));
  EXPECT_THAT(at_b.heard, IsEmpty()) << "it was on its way";
  EXPECT_EQ(at_a.closed, 1);
  EXPECT_EQ(at_b.closed, 1);
  EXPECT_NE(at_a.closed_at, at_b.closed_at);
  EXPECT_THAT(network->OpenStreams(), IsEmpty());
}

TEST_F(SimNetworkTest, StreamsBreakByChance) {
  Make({.break_stream = 0.1});
  const SimStream stream = Connected();
  for (int i = 0; i < 100; ++i) network->Send(a, stream, i);
  clock.RunFor(seconds(1));
  EXPECT_EQ(at_a.closed, 1);
  EXPECT_EQ(at_b.closed, 1);
}

// ---- Dialling

TEST_F(SimNetworkTest, NobodyListensIsHeardAtOnceAndNobodyAnswersLate) {
  Make();
  network->CrashProcess(b);
  const TimePoint dialled = clock.now();
  network->Dial(a, b);
  clock.RunFor(seconds(20));
  EXPECT_EQ(at_a.closed, 1);
  EXPECT_LT(at_a.closed_at - dialled, milliseconds(10));
  network->CrashMachine(b);
  const TimePoint again = clock.now();
  network->Dial(a, b);
  clock.RunFor(seconds(20));
  EXPECT_EQ(at_a.closed, 2);
  EXPECT_EQ(at_a.closed_at - again, SimNetworkOptions().connect_timeout);
  EXPECT_EQ(at_a.connected, 0);
  EXPECT_THAT(network->OpenStreams(), IsEmpty());
}

// ---- Crashes

TEST_F(SimNetworkTest, AProcessThatCrashesIsHeardOfAtOnceAMachineLate) {
  for (const bool machine : {false, true}) {
    SCOPED_TRACE(machine);
    Make();
    const SimStream stream = Connected();
    network->Send(b, stream, 7);
    bool timer = false;
    clock.After(
        seconds(1), [&] { timer = true; }, network->Timers(b));
    const TimePoint crashed = clock.now();
    machine ? network->CrashMachine(b) : network->CrashProcess(b);
    EXPECT_FALSE(network->IsRunning(b));
    clock.RunFor(seconds(30));
    EXPECT_FALSE(timer);
    EXPECT_THAT(at_a.heard, ElementsAre(7)) << "it had left";
    EXPECT_EQ(at_a.closed, 1);
    EXPECT_EQ(at_b.closed, 0) << "nobody is there to hear it";
    const auto after = at_a.closed_at - crashed;
    if (machine) {
      EXPECT_GE(after, SimNetworkOptions().silence_min);
      EXPECT_LE(after, SimNetworkOptions().silence_max);
    } else {
      EXPECT_LE(after, SimNetworkOptions().delay_max);
    }
    EXPECT_THAT(network->OpenStreams(), IsEmpty());
  }
}

TEST_F(SimNetworkTest, AMachineThatIsBackSaysThatItKnowsNothing) {
  Make();
  const SimStream stream = Connected();
  network->CrashMachine(b);
  clock.RunFor(seconds(1));
  Listener again(clock);
  network->Start(b, &again);
  const TimePoint started = clock.now();
  network->Send(a, stream, 1);
  clock.RunFor(seconds(30));
  EXPECT_EQ(at_a.closed, 1);
  EXPECT_LT(at_a.closed_at - started, milliseconds(10));
  EXPECT_THAT(again.heard, IsEmpty()) << "the stream was the former process's";
  EXPECT_THAT(at_b.heard, IsEmpty());
}

// ---- Stopped, as by SIGSTOP

TEST_F(SimNetworkTest, WhatComesToAStoppedProcessWaits) {
  Make();
  const SimStream stream = Connected();
  network->Stop(b);
  network->Send(a, stream, 1);
  network->Send(a, stream, 2);
  clock.RunFor(seconds(5));
  EXPECT_THAT(at_b.heard, IsEmpty());
  network->Send(a, stream, 3);
  network->Continue(b);
  clock.RunFor(seconds(30));
  EXPECT_THAT(at_b.heard, ElementsAre(1, 2, 3));
  EXPECT_EQ(at_a.closed + at_b.closed, 0);
}

// What waited and what arrives in the moment in which it goes on.
TEST_F(SimNetworkTest, WhatWaitedForAStoppedProcessComesBeforeWhatArrivesThen) {
  Make({.delay_min = milliseconds(1), .delay_max = milliseconds(1)});
  const SimStream stream = Connected();
  const TimePoint start = clock.now();
  network->Stop(b);
  network->Send(a, stream, 1);
  clock.At(start + milliseconds(10), [&] { network->Continue(b); });
  clock.RunUntil(start + milliseconds(9));
  network->Send(a, stream, 2);
  clock.RunUntil(start + milliseconds(10));
  EXPECT_THAT(at_b.heard, ElementsAre(1, 2));
}

TEST_F(SimNetworkTest, AProcessThatIsStoppedForLongIsGivenUpAndHearsOfItLater) {
  Make();
  Connected();
  network->Stop(b);
  clock.RunFor(seconds(30));
  EXPECT_EQ(at_a.closed, 1);
  EXPECT_EQ(at_b.closed, 0);
  network->Continue(b);
  clock.RunFor(seconds(1));
  EXPECT_EQ(at_b.closed, 1);
  EXPECT_THAT(network->OpenStreams(), IsEmpty());
}

// ---- Cut paths

TEST_F(SimNetworkTest, AShortCutOnlyDelays) {
  Make();
  const SimStream stream = Connected();
  network->Cut(a, b);
  network->Send(a, stream, 1);
  network->Send(b, stream, 2);
  clock.RunFor(seconds(5));
  EXPECT_THAT(at_b.heard, IsEmpty());
  EXPECT_THAT(at_a.heard, ElementsAre(2)) << "the other way is open";
  network->Send(a, stream, 3);
  network->Heal(a, b);
  network->Send(a, stream, 4);
  clock.RunFor(seconds(30));
  EXPECT_THAT(at_b.heard, ElementsAre(1, 3, 4));
  EXPECT_EQ(at_a.closed + at_b.closed, 0);
}

TEST_F(SimNetworkTest, ALongCutIsFoundByBothEachInItsTime) {
  for (const bool both : {false, true}) {
    SCOPED_TRACE(both);
    Make();
    const SimStream stream = Connected();
    network->Cut(a, b);
    if (both) network->Cut(b, a);
    network->Send(a, stream, 1);
    const TimePoint cut = clock.now();
    clock.RunFor(seconds(30));
    EXPECT_EQ(at_a.closed, 1);
    EXPECT_EQ(at_b.closed, 1);
    EXPECT_NE(at_a.closed_at, at_b.closed_at);
    EXPECT_GE(std::min(at_a.closed_at, at_b.closed_at) - cut, SimNetworkOptions().silence_min);
    network->Heal(a, b);
    network->Heal(b, a);
    clock.RunFor(seconds(30));
    EXPECT_THAT(at_b.heard, IsEmpty()) << "of a stream that has ended";
    EXPECT_EQ(at_a.closed + at_b.closed, 2);
  }
}

// One side has given up, the other has not when the path heals: it hears then, and only once.
TEST_F(SimNetworkTest, AHalfOpenStreamEndsWhenThePathHeals) {
  int half_open = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    Make({}, seed);
    Connected();
    network->Cut(a, b);
    network->Cut(b, a);
    clock.RunFor(milliseconds(12'500));
    if (at_a.closed + at_b.closed == 1) ++half_open;
    const bool one_gave_up = at_a.closed + at_b.closed > 0;
    network->Heal(a, b);
    network->Heal(b, a);
    clock.RunFor(seconds(1));
    EXPECT_EQ(at_a.closed, one_gave_up ? 1 : 0);
    EXPECT_EQ(at_b.closed, one_gave_up ? 1 : 0);
  }
  EXPECT_GT(half_open, 10);
}

}  // namespace
}  // namespace ddprun
