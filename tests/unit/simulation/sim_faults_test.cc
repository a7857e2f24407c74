// SPDX-License-Identifier: Apache-2.0
// A small protocol under every fault: the same seed is the same history, streams deliver a
// beginning of what was sent, and when the faults are over everybody is connected again.
#include "tests/simulation/sim_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Clients dial the server and count up on their stream; the server sends back what it hears. A
// client whose stream has ended dials again.
class World {
 public:
  explicit World(std::uint64_t seed, SimFaultOptions faults = {})
      : random_(seed), network_(clock_, random_.Fork(), {.resend = 0.01}) {
    for (const char* name : {"server", "one", "two", "three"})
      processes_.push_back(network_.Add(name));
    for (const SimProcess process : processes_) Start(process);
    faults_ = std::make_unique<SimFaults<int>>(
        clock_, network_, random_.Fork(), faults, processes_,
        SimFaults<int>::Handlers{[this](SimProcess process) { parts_.erase(process); },
                                 [this](SimProcess process) { Start(process); }});
  }

  void Run() {
    const TimePoint start = clock_.now();
    faults_->RunUntil(start + seconds(300));
    clock_.RunUntil(start + seconds(300));

    // The longest silence, a dial that is not answered, and the next.
    clock_.RunFor(seconds(60));
    EXPECT_EQ(network_.OpenStreams().size(), 3u)
        << "half-open streams are left, or some are missing";
    for (std::size_t i = 1; i < processes_.size(); ++i) EXPECT_TRUE(parts_.at(processes_[i])->up);
  }

  std::uint64_t history = 14695981039346656037u;  // FNV-1a of all that was heard, and when
  int streams_ended = 0;
  std::uint64_t faults() const { return faults_->count(); }
  std::uint64_t events() const { return clock_.events_run(); }

 private:
  struct Part final : SimEndpoint<int> {
    Part(World& of, SimProcess self_) : world(of), self(self_) {}
    void OnAccepted(SimStream stream, SimProcess) override { next[stream] = 0; }
    void OnConnected(SimStream) override { up = true; }
    void OnMessage(SimStream stream, int message) override {
      world.Note(static_cast<std::uint64_t>(stream), static_cast<std::uint64_t>(message));
      EXPECT_EQ(message, next[stream]++) << "lost, twice or out of order";
      if (self == world.processes_[0]) world.network_.Send(self, stream, message);
    }
    void OnClosed(SimStream stream) override {
      world.Note(static_cast<std::uint64_t>(stream), 1u << 20);
      ++world.streams_ended;
      next.erase(stream);
      if (self != world.processes_[0]) world.DialLater(self);
    }

    World& world;
    const SimProcess self;
    std::map<SimStream, int> next;  // expected
    SimStream dialled{};
    int sent = 0;
    bool up = false;
  };

  void Start(SimProcess process) {
    parts_[process] = std::make_unique<Part>(*this, process);
    network_.Start(process, parts_[process].get());
    if (process == processes_[0]) return;
    Dial(process);
    Count(process);
  }
  void Dial(SimProcess process) {
    Part& part = *parts_.at(process);
    part.up = false;
    part.sent = 0;
    part.dialled = network_.Dial(process, processes_[0]);
  }
  void DialLater(SimProcess process) {
    parts_.at(process)->up = false;
    clock_.After(
        milliseconds(500), [this, process] { Dial(process); }, network_.Timers(process));
  }
  void Count(SimProcess process) {
    Part& part = *parts_.at(process);
    network_.Send(process, part.dialled, part.sent++);
    clock_.After(
        seconds(1), [this, process] { Count(process); }, network_.Timers(process));
  }
  void Note(std::uint64_t what, std::uint64_t more) {
    for (const std::uint64_t value :
         {static_cast<std::uint64_t>(clock_.now().time_since_epoch().count()), what, more}) {
      history = (history ^ value) * 1099511628211u;
    }
  }

  SimClock clock_;
  SimRandom random_;
  SimNetwork<int> network_;
  std::vector<SimProcess> processes_;
  std::map<SimProcess, std::unique_ptr<Part>> parts_;
  std::unique_ptr<SimFaults<int>> faults_;
};

TEST(SimFaultsTest, StreamsKeepTheirPromisesAndAllIsWellAfterwards) {
  std::uint64_t faults = 0;
  int ended = 0;
  for (std::uint64_t seed = 1; seed <= 1000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.Run();
    faults += world.faults();
    ended += world.streams_ended;
  }
  EXPECT_GT(faults, 1000u * 20);
  EXPECT_GT(ended, 1000 * 10);
}

TEST(SimFaultsTest, ASeedIsOneHistory) {
  std::set<std::uint64_t> histories;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    World first(seed);
    World second(seed);
    first.Run();
    second.Run();
    EXPECT_EQ(first.history, second.history) << seed;
    EXPECT_EQ(first.events(), second.events()) << seed;
    histories.insert(first.history);
  }
  EXPECT_EQ(histories.size(), 20u);
}

TEST(SimFaultsTest, EveryKindOfFaultAloneDoesSomething) {
  const SimFaultOptions none = {
      .crash_process = 0, .crash_machine = 0, .stop = 0, .cut = 0, .cut_one = 0, .break_stream = 0};
  World quiet(1, none);
  quiet.Run();
  EXPECT_EQ(quiet.faults(), 0u);
  for (unsigned SimFaultOptions::*kind :
       {&SimFaultOptions::crash_process, &SimFaultOptions::crash_machine, &SimFaultOptions::stop,
        &SimFaultOptions::cut, &SimFaultOptions::cut_one, &SimFaultOptions::break_stream}) {
    SimFaultOptions one = none;
    one.*kind = 1;
    World world(1, one);
    world.Run();
    EXPECT_GT(world.faults(), 5u);
    EXPECT_GT(world.streams_ended, quiet.streams_ended);
  }
}

}  // namespace
}  // namespace ddprun
