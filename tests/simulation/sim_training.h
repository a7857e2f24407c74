// SPDX-License-Identifier: Apache-2.0
// What the workers of a simulated run do when they have met: they train together, as `train` does
// (worker/train/training). A world's ranks agree on whose state they go on with, by the real rule,
// and make steps in which all must take part; each counts a step a little later than the others. A
// rank that leaves its world keeps its state, one that ends loses it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_clock.h"
#include "tests/simulation/sim_random.h"
#include "worker/train/replicas/start_choice.h"

namespace ddprun {

class SimTraining {
 public:
  // A worker's process: its node, and a number that no other one of the node has had.
  using Process = std::pair<NodeId, std::uint64_t>;

  // All must outlive this object.
  SimTraining(SimClock& clock, SimRandom random, Invariants& invariants)
      : clock_(clock), random_(random), invariants_(invariants) {}

  // The process is `rank` of the round. What it does happens at times of `group`.
  void Enter(const Process& process, const Start& start, int rank, SimGroup group);
  // It waits for another round.
  void Leave(const Process& process);
  void End(const Process& process);
  // The node's machine or agent has crashed.
  void EndAllOf(const NodeId& node);

 private:
  using WorldId = std::pair<SimRunNumber, RoundId>;

  // The parameters after some steps. Two are the same if they come from the same steps.
  struct State {
    TrainingPlace place;
    std::uint64_t history = 0;
    bool operator==(const State& other) const {
      return history == other.history && place.position == other.place.position;
    }
  };
  struct Rank {
    std::optional<State> state;
    WorldId world;
    bool inside = false;
    SimGroup group{};
    SimClock::Event next;
  };
  struct World {
    int size = 0;
    std::map<int, Process> ranks;
    bool broken = false;
    int arrived = 0;  // in the step's collective
  };

  void Begin(World& world);
  void Arrive(const Process& process);
  void Complete(const WorldId& id, World& world);
  static std::set<NodeId> NodesOf(const World& world);
  void After(Rank& rank, Duration most, std::function<void()> action);

  SimClock& clock_;
  SimRandom random_;
  Invariants& invariants_;
  std::map<Process, Rank> ranks_;
  std::map<WorldId, World> worlds_;
  std::optional<State> checkpoint_;
};

}  // namespace ddprun
