// SPDX-License-Identifier: Apache-2.0
// What goes wrong in a simulated run, from a seed: crashes, stops, cuts and broken streams, one
// after another or at once, all over by a given time, so that what must happen in the end can be
// asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/simulation/sim_network.h"

namespace ddprun {

struct SimFaultOptions {
  // From the beginning of one fault to that of the next, and from its beginning to its end.
  Duration pause_max = std::chrono::seconds(20);
  Duration lasts_max = std::chrono::seconds(30);
  // How often one kind is among the others.
  unsigned crash_process = 3;
  unsigned crash_machine = 1;
  unsigned stop = 1;
  unsigned cut = 2;      // both ways
  unsigned cut_one = 1;  // one way
  unsigned break_stream = 2;
};

template <typename Message>
class SimFaults {
 public:
  struct Handlers {
    std::function<void(SimProcess)> crashed;  // the network has forgotten it: so does the test
    std::function<void(SimProcess)> start;    // make it again and SimNetwork::Start it
  };

  SimFaults(SimClock& clock, SimNetwork<Message>& network, SimRandom random,
            SimFaultOptions options, std::vector<SimProcess> victims, Handlers handlers)
      : clock_(clock),
        network_(network),
        random_(random),
        options_(options),
        victims_(std::move(victims)),
        handlers_(std::move(handlers)) {}

  void RunUntil(TimePoint end) {
    end_ = end;
    Next();
  }
  std::uint64_t count() const { return count_; }

 private:
  void Next() {
    const TimePoint time = clock_.now() + random_.Between(Duration(1), options_.pause_max);
    if (time >= end_) return;
    clock_.At(time, [this] {
      Begin();
      Next();
    });
  }

  // Ends no later than end_.
  void Later(std::function<void()> end) {
    const Duration lasts = random_.Between(Duration(1), options_.lasts_max);
    clock_.At(std::min(clock_.now() + lasts, end_), std::move(end));
  }
  SimProcess AnyVictim() { return victims_[random_.Below(victims_.size())]; }

  void Begin() {
    const unsigned weights[] = {options_.crash_process, options_.crash_machine,
                                options_.stop,          options_.cut,
                                options_.cut_one,       options_.break_stream};
    unsigned sum = 0;
    for (const unsigned weight : weights) sum += weight;
    if (sum == 0) return;
    auto drawn = static_cast<unsigned>(random_.Below(sum));
    unsigned kind = 0;
    while (drawn >= weights[kind]) drawn -= weights[kind++];
    ++count_;
    switch (kind) {
      case 0:
      case 1:
        return Crash(AnyVictim(), kind == 1);
      case 2:
        return Stop(AnyVictim());
      case 3:
      case 4:
        return Cut(AnyVictim(), AnyVictim(), kind == 3);
      default:
        return Break();
    }
  }

  void Crash(SimProcess victim, bool with_machine) {
    if (!network_.IsRunning(victim)) return;
    if (with_machine) {
      network_.CrashMachine(victim);
    } else {
      network_.CrashProcess(victim);
    }
    handlers_.crashed(victim);
    Later([this, victim] { handlers_.start(victim); });
  }
  void Stop(SimProcess victim) {
    if (!network_.IsRunning(victim) || network_.IsStopped(victim)) return;
    network_.Stop(victim);
    // Unless it has crashed meanwhile; then this does nothing.
    Later([this, victim] { network_.Continue(victim); });
  }
  void Cut(SimProcess a, SimProcess b, bool both) {
    if (a == b) return;
    network_.Cut(a, b);
    if (both) network_.Cut(b, a);
    Later([this, a, b, both] {
      network_.Heal(a, b);
      if (both) network_.Heal(b, a);
    });
  }
  void Break() {
    const std::vector<SimStream> streams = network_.OpenStreams();
    if (!streams.empty()) network_.Break(streams[random_.Below(streams.size())]);
  }

  SimClock& clock_;
  SimNetwork<Message>& network_;
  SimRandom random_;
  const SimFaultOptions options_;
  const std::vector<SimProcess> victims_;
  const Handlers handlers_;
  TimePoint end_{};
  std::uint64_t count_ = 0;
};

}  // namespace ddprun
