// SPDX-License-Identifier: Apache-2.0
// One node on simulated time: the real supervisor core, the session's rules, and workers that work,
// succeed, fail and are stopped. It lives as one ddprun does; a node that is started again is
// another.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervisor/supervisor.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_message.h"
#include "tests/simulation/sim_script.h"
#include "tests/simulation/sim_session.h"
#include "tests/simulation/sim_settings.h"
#include "tests/simulation/sim_store.h"
#include "tests/simulation/sim_training.h"

namespace ddprun {

class SimAgent final : public SimEndpoint<SimMessage> {
 public:
  struct Place {
    SimProcess self;
    SimProcess service;
    std::string host;
    NodeId id;
  };
  struct Handlers {
    std::function<void()> ended;                     // the process, by itself
    std::function<void(const Start&)> workers_died;  // by themselves or with the node
  };

  SimAgent(SimClock& clock, SimRunNetwork& network, Place place, const SimSettings& settings,
           const SimNodeSettings& node, SimRandom random, Invariants& invariants,
           SimTraining& training, SimTrace& trace, Handlers handlers);

  void Begin();
  void Signal(int signal);
  // One of its workers ends by itself, if any lives.
  void FailWorker(int exit_code, int signal);
  // Its workers tell that they are in that step, if any lives.
  void TellProgress(std::int64_t step);
  // A machine will be taken away: a notice reaches this node.
  void GiveNotice(std::chrono::milliseconds remaining);
  void WithdrawNotice();
  // Its workers have saved for the last notice that they were told.
  void TellSaved();
  // One of its workers of that round fails, as its collective has lost a peer.
  void BreakCollective(RoundId round);
  // The process or its machine has crashed: its workers die with it.
  void Crashed();

  void OnAccepted(SimStream, SimProcess) override {}
  void OnConnected(SimStream stream) override;
  void OnMessage(SimStream stream, SimMessage message) override;
  void OnClosed(SimStream stream) override;

  const NodeId& id() const { return place_.id; }
  const SupervisorState& state() const { return state_; }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::optional<End>& end() const { return end_; }
  bool has_workers() const { return state_.workers_live; }
  int spawned() const { return spawned_; }  // rounds

 private:
  struct Worker {
    bool lives = false;
    bool ignores_term = false;
    TimePoint since{};
    SimClock::Event end;  // or its next question
    StoreWorker id{};
    std::optional<SimScript> script;
    std::optional<StoreInvariants::Asked> asked;
    bool met = false;
    bool dying = false;
    bool stopped = false;  // the agent's signal has reached it
    std::uint64_t process = 0;
    bool left = false;  // it has left the round, and waits for the next one
  };

  TimePoint Now() const { return clock_.now() + node_.skew; }
  void OnSession(SessionEvent event);
  void Post(Event event) { events_.push_back(std::move(event)); }
  void Process();
  void Perform(const Effect& effect);
  void Arm();
  void BeatIfDue();
  void Spawn(const Start& start);
  void Ask(std::size_t index, const StoreResult* last);
  void Answer(StoreWorker worker, const StoreResult& result);
  void EndWorker(std::size_t index, Duration after, Outcome outcome);
  void WorkerEnds(std::size_t index, Outcome outcome, std::string message = "");
  std::optional<std::size_t> AnyWorker() const;
  SimTraining::Process ProcessOf(const Worker& worker) const { return {place_.id, worker.process}; }
  void SignalWorkers(bool kill, bool keep);
  void LeaveRound(std::size_t index, std::string error = "");
  void Park();
  bool IsInRound(const Worker& worker) const { return worker.lives && !worker.left; }
  void ReportIfAllGone();

  SimClock& clock_;
  SimRunNetwork& network_;
  const Place place_;
  const SimSettings& settings_;
  const SimNodeSettings node_;
  SimRandom random_;
  Invariants& invariants_;
  SimTraining& training_;
  SimTrace& trace_;
  const Handlers handlers_;

  SupervisorConfig config_;
  SupervisorState state_;
  std::vector<Event> events_;
  std::unique_ptr<SimSession> session_;
  std::unique_ptr<SimStore> store_;
  std::chrono::milliseconds reconnect_timeout_{0};
  std::uint64_t last_worker_ = 0;
  std::uint64_t last_process_ = 0;
  std::uint64_t last_question_ = 0;
  std::chrono::milliseconds heartbeat_{0};
  std::optional<TimePoint> heartbeat_due_;
  SimClock::Event timer_;
  std::optional<TimePoint> armed_;
  std::vector<Worker> workers_;
  int spawned_ = 0;
  bool told_last_ = false;     // that no round follows
  bool stopped_kept_ = false;  // a worker that could have been kept was told to end
  std::vector<std::string> notes_;
  std::optional<End> end_;
};

}  // namespace ddprun
