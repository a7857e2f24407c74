// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/sim_training.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr std::chrono::milliseconds kReceiveMax{50};
constexpr std::chrono::milliseconds kStepMax{200};
constexpr std::chrono::milliseconds kCommitMax{20};
constexpr double kSaves = 0.1;  // of the steps
constexpr std::int64_t kSamples = 1000;
constexpr std::int64_t kSamplesOfRank = 10;

// SplitMix64's, as SimRandom has it.
std::uint64_t Mix(std::uint64_t history, std::uint64_t with) {
  return SimRandom(history ^ with).Next();
}

}  // namespace

void SimTraining::After(Rank& rank, Duration most, std::function<void()> action) {
  rank.next = clock_.After(random_.Between(Duration(0), most), std::move(action), rank.group);
}

void SimTraining::Enter(const Process& process, const Start& start, int rank, SimGroup group) {
  Rank& self = ranks_[process];
  self.world = {invariants_.RunOf(process.first), start.round};
  self.inside = true;
  self.group = group;
  World& world = worlds_[self.world];
  world.size = start.world_size;
  world.ranks[rank] = process;
  if (static_cast<int>(world.ranks.size()) == world.size && !world.broken) Begin(world);
}

void SimTraining::Leave(const Process& process) {
  const auto it = ranks_.find(process);
  if (it == ranks_.end() || !it->second.inside) return;
  it->second.inside = false;
  clock_.Cancel(it->second.next);
  worlds_[it->second.world].broken = true;
}

void SimTraining::End(const Process& process) {
  Leave(process);
  ranks_.erase(process);
}

void SimTraining::EndAllOf(const NodeId& node) {
  std::vector<Process> ended;
  for (const auto& [process, rank] : ranks_) {
    if (process.first == node) ended.push_back(process);
  }
  for (const Process& process : ended) End(process);
}

// All are there: each has told the others what it has.
void SimTraining::Begin(World& world) {
  std::vector<RankState> states;
  std::int64_t furthest = -1;
  for (const auto& [number, process] : world.ranks) {
    const std::optional<State>& state = ranks_[process].state;
    states.push_back({state.has_value(), state ? state->place : TrainingPlace{}});
    if (state) furthest = std::max(furthest, state->place.position.step);
  }
  const RoundStart start = ChooseStart(states, 0);
  if (start.goes_on ? start.place.position.step < furthest : furthest >= 0) {
    invariants_.WrongTraining("no-step-is-undone",
                              absl::StrCat("a world goes on after step ", start.place.position.step,
                                           ", though one of its ranks has made step ", furthest));
  }
  const State from =
      start.goes_on ? *ranks_[world.ranks[start.source]].state : checkpoint_.value_or(State{});
  for (const auto& [number, process] : world.ranks) {
    Rank& rank = ranks_[process];
    const bool receives = !start.goes_on || ChooseStart(states, number).receives;
    // Until all has come it has none.
    if (receives) rank.state.reset();
    After(rank, kReceiveMax, [this, process = process, receives, from] {
      if (receives) ranks_[process].state = from;
      Arrive(process);
    });
  }
}

// In the collective of its next step, after some time.
void SimTraining::Arrive(const Process& process) {
  After(ranks_[process], kStepMax, [this, process] {
    const WorldId id = ranks_[process].world;
    World& world = worlds_[id];
    if (++world.arrived == world.size && !world.broken) Complete(id, world);
  });
}

// Every rank has the averaged gradient.
void SimTraining::Complete(const WorldId& id, World& world) {
  world.arrived = 0;
  const State before = *ranks_[world.ranks[0]].state;
  for (const auto& [number, process] : world.ranks) {
    if (*ranks_[process].state == before) continue;
    invariants_.WrongTraining(
        "samples-once",
        absl::StrCat("rank ", number, " of ", "round ", ToNumber(id.second), " makes step ",
                     before.place.position.step + 1, " from another state than rank 0"));
  }
  invariants_.WorldMakesStep(id.first, id.second, NodesOf(world));
  State after = before;
  TrainingPosition& position = after.place.position;
  ++position.step;
  position.consumed = std::min(kSamples, position.consumed + world.size * kSamplesOfRank);
  if (position.consumed == kSamples) {
    ++position.epoch;
    position.consumed = 0;
  }
  after.history = Mix(before.history, static_cast<std::uint64_t>(world.size));
  const bool saves = id == worlds_.rbegin()->first && random_.Chance(kSaves);
  for (const auto& [number, process] : world.ranks) {
    After(ranks_[process], kCommitMax,
          [this, process = process, after, saves = saves && number == 0] {
            ranks_[process].state = after;
            if (saves) checkpoint_ = after;
            Arrive(process);
          });
  }
}

std::set<NodeId> SimTraining::NodesOf(const World& world) {
  std::set<NodeId> nodes;
  for (const auto& [number, process] : world.ranks) nodes.insert(process.first);
  return nodes;
}

}  // namespace ddprun
