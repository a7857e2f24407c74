// SPDX-License-Identifier: Apache-2.0
#include "launcher/simulate/fleet.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/simulate/fleet_training.h"
#include "proto/version.h"
#include "rendezvous/base/random.h"
#include "rendezvous/membership/membership.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// An agent sends something at least so often in a lease (RULES.md).
constexpr int kHeartbeatsPerLease = 4;
// Intervals above it are whole seconds: the optimum is flat.
constexpr double kWholeSecondsMin = 10;
constexpr milliseconds kForever = std::chrono::hours(24 * 365);
constexpr int kAnyNumber = 1'000'000;  // of restarts

// Of the random numbers, beside the machines' own.
constexpr std::uint64_t kProcessStream = 1u << 30;
constexpr std::uint64_t kChoiceStream = kProcessStream + 1;

double Seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

// Exponentially distributed.
Duration NextFailure(SplitMix64& random, milliseconds mean) {
  const double share = (static_cast<double>(random.Next() >> 11) + 0.5) * 0x1p-53;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(-std::log(share)) *
                                              Seconds(mean));
}

Join JoinOf(const FleetPlan& plan) {
  Join join;
  join.protocol_version = kProtocolVersion;
  join.run_id = "fleet";
  join.address = "10.0.0.1";
  join.worker_port = 1;
  join.nodes_max = plan.nodes;
  join.nodes_min = plan.nodes_min > 0 ? plan.nodes_min : plan.nodes;
  join.restarts_max = plan.restarts_max < 0 ? kAnyNumber : plan.restarts_max;
  join.join_timeout = plan.join_timeout.count() > 0 ? plan.join_timeout : kForever;
  join.last_call = plan.last_call;
  join.restart_policy = plan.policy;
  // The core's own looks at the leases would be most of the work: Fleet tells it when one is over.
  join.lease = milliseconds(0);
  return join;
}

class Fleet {
 public:
  Fleet(const FleetPlan& plan, std::uint64_t seed);
  FleetRun Run();

 private:
  enum class Event { kMachineFails, kProcessFails, kLeaseOver, kRepaired, kParked, kBegin };
  struct Planned {
    Event event;
    int machine = -1;      // -1: one that is chosen then
    std::uint64_t of = 0;  // the agent or the round; of another one it is late
    bool repeats = false;
  };
  struct Machine {
    SplitMix64 random;
    bool is_up = true;
    bool parked = false;       // its workers wait for a place, with their libraries loaded
    std::uint64_t agent = 0;   // also its link; 0: no member
    RoundId round = kNoRound;  // the last one that it was in
    int rank = 0;
  };

  void At(TimePoint time, Planned planned) {
    if (time < end_) planned_.emplace(time, planned);
  }
  void Handle(const Planned& planned);
  void FailMachine(int index, bool repeats);
  void FailProcess(int index);
  void JoinRun(int index);
  void LeaseIsOver(int index);
  void Begin();
  void Tell(const MembershipEvent& event);
  void Follow(const SendDirective& sent);
  void EnterRound();
  std::vector<int> Running() const;
  int ChooseRunning();
  bool IsIn(const Machine& machine) const {
    return machine.agent != 0 && machine.round == state_.round;
  }
  FleetTime Doing() const;
  void Spend(Duration time);
  void Add(FleetTime kind, double seconds) {
    run_.seconds[static_cast<std::size_t>(kind)] += seconds;
  }
  void End();

  const FleetPlan& plan_;
  const Join join_;
  TimePoint now_{};
  const TimePoint end_ = now_ + plan_.duration;
  SplitMix64 process_random_;
  SplitMix64 choice_random_;
  std::vector<Machine> machines_;
  std::multimap<TimePoint, Planned> planned_;
  std::vector<int> machine_of_{-1};  // by agent; there is no agent 0
  int silent_ = 0;  // machines of the round that are gone, which the others do not know yet
  RunState state_ = MakeRun("fleet");
  std::vector<int> started_, stopped_;  // what directives ask for
  RoundId last_round_ = kNoRound;       // that was entered
  std::optional<TimePoint> begin_;      // of the round's steps
  bool trains_ = false;
  FleetTraining training_;
  FleetTraining best_training_;  // of the same ranks, with the best interval between checkpoints
  double waits_ = 0;
  FleetRun run_;
};

Fleet::Fleet(const FleetPlan& plan, std::uint64_t seed)
    : plan_(plan),
      join_(JoinOf(plan)),
      process_random_{seed, kProcessStream},
      choice_random_{seed, kChoiceStream},
      training_(Seconds(plan.checkpoint_every), Seconds(plan.checkpoint_cost)),
      best_training_(Seconds(BestCheckpointInterval(plan)), Seconds(plan.checkpoint_cost)) {
  for (int i = 0; i < plan.nodes + plan.spares; ++i) {
    machines_.push_back({SplitMix64{seed, static_cast<std::uint64_t>(i)}});
    if (plan.node_mtbf.count() > 0) {
      At(now_ + NextFailure(machines_.back().random, plan.node_mtbf),
         {.event = Event::kMachineFails, .machine = i, .repeats = true});
    }
  }
  if (plan.process_mtbf.count() > 0) {
    At(now_ + NextFailure(process_random_, plan.process_mtbf),
       {.event = Event::kProcessFails, .repeats = true});
  }
  for (const FleetFailure& failure : plan.failures) {
    At(now_ + failure.at,
       {.event = failure.of_process ? Event::kProcessFails : Event::kMachineFails});
  }
}

FleetRun Fleet::Run() {
  for (std::size_t i = 0; i < machines_.size(); ++i) JoinRun(static_cast<int>(i));
  while (state_.phase != RunPhase::kClosed) {
    const auto first = planned_.begin();
    const std::optional<TimePoint> tick = NextDeadline(state_);
    const bool is_tick = tick && (first == planned_.end() || *tick < first->first);
    const TimePoint next = std::min(end_, is_tick                   ? *tick
                                          : first == planned_.end() ? end_
                                                                    : first->first);
    Spend(std::max(Duration{0}, next - now_));
    now_ = std::max(now_, next);
    if (now_ >= end_) break;
    if (is_tick) {
      Tell(Tick{});
    } else {
      Handle(planned_.extract(first).mapped());
    }
  }
  End();
  return run_;
}

void Fleet::Handle(const Planned& planned) {
  switch (planned.event) {
    case Event::kMachineFails:
      return FailMachine(planned.machine, planned.repeats);
    case Event::kProcessFails:
      if (planned.repeats) At(now_ + NextFailure(process_random_, plan_.process_mtbf), planned);
      return FailProcess(ChooseRunning());
    case Event::kLeaseOver:
      if (machines_[planned.machine].agent == planned.of) LeaseIsOver(planned.machine);
      return;
    case Event::kRepaired:
      return JoinRun(planned.machine);
    case Event::kParked: {
      Machine& machine = machines_[planned.machine];
      if (machine.agent != planned.of || !machine.is_up || IsIn(machine)) return;
      machine.parked = true;
      return Tell(NodeReported{LinkId{machine.agent}, CanBeKept{kNoRound, true}});
    }
    case Event::kBegin:
      if (planned.of == ToNumber(state_.round)) Begin();
      return;
  }
}

// A machine that is told by --failures-at is one of the round.
void Fleet::FailMachine(int index, bool repeats) {
  if (index < 0) index = ChooseRunning();
  if (index < 0) return;
  Machine& machine = machines_[index];
  ++run_.failures;
  machine.is_up = machine.parked = false;
  if (IsIn(machine) && state_.phase == RunPhase::kSealed) ++silent_;
  // Its last sign of life was a heartbeat.
  const Duration beat = plan_.lease / kHeartbeatsPerLease;
  At(now_ - (now_.time_since_epoch() % beat) + plan_.lease,
     {.event = Event::kLeaseOver, .machine = index, .of = machine.agent});
  At(now_ + plan_.repair, {.event = Event::kRepaired, .machine = index});
  if (!repeats) return;
  At(now_ + plan_.repair + NextFailure(machine.random, plan_.node_mtbf),
     {.event = Event::kMachineFails, .machine = index, .repeats = true});
}

void Fleet::FailProcess(int index) {
  if (index < 0) return;
  ++run_.failures;
  Failure failure;
  failure.kind = FailureKind::kWorkerSignaled;
  failure.signal = 9;
  failure.rank = machines_[index].rank;
  failure.local_rank = 0;
  Tell(NodeReported{LinkId{machines_[index].agent}, WorkerFailed{state_.round, failure}});
}

// Machines that are there and whose workers run.
std::vector<int> Fleet::Running() const {
  std::vector<int> running;
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    if (machines_[i].is_up && IsIn(machines_[i])) running.push_back(static_cast<int>(i));
  }
  return running;
}

// -1: none.
int Fleet::ChooseRunning() {
  if (state_.phase != RunPhase::kSealed) return -1;
  const std::vector<int> running = Running();
  if (running.empty()) return -1;
  return running[choice_random_.Below(static_cast<std::uint32_t>(running.size()))];
}

void Fleet::JoinRun(int index) {
  Machine& machine = machines_[index];
  if (machine.agent != 0) LeaseIsOver(index);  // its repair was shorter
  machine.is_up = true;
  machine.agent = machine_of_.size();
  machine_of_.push_back(index);
  machine.round = kNoRound;
  Join join = join_;
  join.host = absl::StrCat("node", index);
  join.node_id.value = absl::StrCat(machine.agent);
  Tell(NodeJoined{LinkId{machine.agent}, std::move(join)});
}

void Fleet::LeaseIsOver(int index) {
  const std::uint64_t agent = std::exchange(machines_[index].agent, 0);
  Tell(NodeGone{LinkId{agent}});
}

// The round makes its first step.
void Fleet::Begin() {
  begin_.reset();
  trains_ = true;
  if (!plan_.in_place) return;
  const RoundId round = state_.round;
  for (const int index : Running())
    Tell(NodeReported{LinkId{machines_[index].agent}, CanBeKept{round, true}});
}

// One event, and those with which nodes answer the directives that follow from it.
void Fleet::Tell(const MembershipEvent& event) {
  const auto follow = [this](const std::vector<MembershipEffect>& effects) {
    for (const MembershipEffect& effect : effects) {
      if (const auto* sent = std::get_if<SendDirective>(&effect)) Follow(*sent);
    }
  };
  follow(Step(state_, event, now_));
  while (!stopped_.empty()) {
    const int index = stopped_.back();
    stopped_.pop_back();
    follow(Step(state_,
                NodeReported{LinkId{machines_[index].agent}, NodeStopped{.round = last_round_}},
                now_));
  }
  if (!started_.empty()) EnterRound();
}

void Fleet::Follow(const SendDirective& sent) {
  const auto agent = static_cast<std::uint64_t>(sent.link);
  const int index = machine_of_[agent];
  Machine& machine = machines_[index];
  if (machine.agent != agent) return;  // it is no member any more
  if (const auto* start = std::get_if<Start>(&sent.directive)) {
    machine.rank = start->rank_first;
    started_.push_back(index);
  } else if (std::holds_alternative<Stop>(sent.directive)) {
    begin_.reset();
    trains_ = false;
    silent_ = 0;
    if (machine.is_up) stopped_.push_back(index);
  } else if (std::holds_alternative<StandBy>(sent.directive)) {
    At(now_ + plan_.restart_cost, {.event = Event::kParked, .machine = index, .of = machine.agent});
  }
}

void Fleet::EnterRound() {
  const RoundId before = std::exchange(last_round_, state_.round);
  bool someone_stays = false;
  bool all_prepared = true;
  trains_ = false;
  silent_ = 0;
  for (const int index : started_) {
    Machine& machine = machines_[index];
    const bool stays = before != kNoRound && machine.round == before;
    someone_stays = someone_stays || stays;
    all_prepared = all_prepared && (stays || machine.parked);
    machine.parked = false;
    machine.round = state_.round;
    silent_ += !machine.is_up;
  }
  started_.clear();
  const bool is_kept = plan_.in_place && someone_stays;
  for (FleetTraining* training : {&training_, &best_training_}) {
    if (!is_kept && before != kNoRound) training->GoBackToCheckpoint();
  }
  begin_ = now_ + (is_kept && all_prepared ? plan_.in_place_cost : plan_.restart_cost);
  At(*begin_, {.event = Event::kBegin, .of = ToNumber(state_.round)});
}

FleetTime Fleet::Doing() const {
  switch (state_.phase) {
    case RunPhase::kForming:
      return static_cast<int>(state_.members.size()) < join_.nodes_min ? FleetTime::kNoMachine
                                                                       : FleetTime::kRestart;
    case RunPhase::kSealed:
      if (silent_ > 0) return FleetTime::kDetection;
      if (trains_) return FleetTime::kTraining;
      return ToNumber(state_.round) == 1 ? FleetTime::kStart : FleetTime::kRestart;
    case RunPhase::kBroken:
      return FleetTime::kRestart;
    case RunPhase::kClosed:
      break;
  }
  return FleetTime::kEnded;
}

void Fleet::Spend(Duration time) {
  const double seconds = Seconds(time);
  const FleetTime doing = Doing();
  waits_ = doing == FleetTime::kNoMachine ? waits_ + seconds : 0;
  run_.longest_wait = std::max(run_.longest_wait, waits_);
  const bool has_round = state_.phase == RunPhase::kSealed;
  const int places = has_round ? state_.start->node_count : plan_.nodes;
  Add(FleetTime::kNoMachine, seconds * (plan_.nodes - places));
  if (doing != FleetTime::kTraining) return Add(doing, seconds * places);
  const double share = static_cast<double>(places) / static_cast<double>(plan_.nodes);
  const auto spent = training_.Run(seconds, share);
  run_.goodput_at_best_interval +=
      best_training_.Run(seconds, share).training / Seconds(plan_.duration);
  Add(FleetTime::kTraining, spent.training * plan_.nodes);
  Add(FleetTime::kAgain, spent.again * plan_.nodes);
  Add(FleetTime::kCheckpoint, spent.checkpoint * plan_.nodes);
}

void Fleet::End() {
  run_.restarts = state_.restart_count;
  if (state_.phase != RunPhase::kClosed) return;
  run_.ended_after = Seconds(now_.time_since_epoch());
  Add(FleetTime::kEnded, Seconds(end_ - now_) * plan_.nodes);
  if (state_.members.empty()) {
    run_.why_ended = "all its machines were lost";
  } else if (state_.cause && state_.cause->kind == FailureKind::kJoinTimeout) {
    run_.why_ended = "no machine came within --join-timeout";
  } else {
    run_.why_ended = "its restarts (--max-restarts) were used up";
  }
}

}  // namespace

const char* NameOf(FleetTime kind) {
  static constexpr std::array<const char*, kFleetTimes> kNames = {
      "training", "checkpoint", "made_again", "detection",
      "restart",  "no_machine", "ended",      "start"};
  return kNames[static_cast<std::size_t>(kind)];
}

double FleetRun::Share(FleetTime kind) const {
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  return all > 0 ? (*this)[kind] / all : 0;
}

milliseconds BestCheckpointInterval(const FleetPlan& plan) {
  double rate = static_cast<double>(plan.failures.size()) / Seconds(plan.duration);
  if (plan.node_mtbf.count() > 0) rate += plan.nodes / Seconds(plan.node_mtbf);
  if (plan.process_mtbf.count() > 0) rate += 1 / Seconds(plan.process_mtbf);
  if (rate <= 0) return plan.duration;
  double best = std::sqrt(2 * Seconds(plan.checkpoint_cost) / rate);
  if (best > kWholeSecondsMin) best = std::round(best);
  return std::max(milliseconds(1000),
                  std::chrono::duration_cast<milliseconds>(std::chrono::duration<double>(best)));
}

FleetRun SimulateFleet(const FleetPlan& plan, std::uint64_t seed) {
  return Fleet(plan, seed).Run();
}

}  // namespace ddprun
