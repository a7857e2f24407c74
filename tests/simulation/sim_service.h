// SPDX-License-Identifier: Apache-2.0
// The rendezvous service on simulated time: the real cores, the real journal records and their
// replay; only what carries them (run.cc, run_registry.cc and the gRPC services) is modelled, by
// the same rules. What a step decided goes out once its record is safe, in the order of the steps.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/journal/journal_records.h"
#include "rendezvous/journal/journal_replay.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/store/store_hub.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/sim_disk.h"
#include "tests/simulation/sim_message.h"
#include "tests/simulation/sim_settings.h"

namespace ddprun {

class SimService final : public SimEndpoint<SimMessage> {
 public:
  SimService(SimClock& clock, SimRunNetwork& network, SimProcess process,
             const SimSettings& settings, SimRandom random, Invariants& invariants,
             SimTrace& trace);

  void Start();
  // The process or its machine has crashed.
  void Crashed();

  // The run that has this name now.
  // Somebody asks, as control_service.cc and run.cc treat it; what is refused does nothing.
  void StopRun(bool now);
  void DrainNode(const DrainRequest& request);
  const RunState* Find(const std::string& run_id) const;
  std::uint64_t steps() const { return steps_; }

  void OnAccepted(SimStream, SimProcess) override {}
  void OnMessage(SimStream stream, SimMessage message) override;
  void OnClosed(SimStream stream) override;

 private:
  struct Run {
    explicit Run(ReplayedRun from)
        : state(std::move(from.membership)),
          hub(std::move(from.store)),
          last_link(from.last_link) {}
    SimRunNumber number = 0;
    RunState state;
    StoreHub hub;
    std::uint64_t last_link = 0;
    std::uint64_t last_peer = 0;
    std::map<LinkId, SimStream> sessions;
    std::map<StorePeer, SimStream> stores;
  };
  struct Place {
    std::shared_ptr<Run> run;
    LinkId link{};
  };
  struct StorePlace {
    std::shared_ptr<Run> run;
    StorePeer peer{};
  };
  // What is not to be said before `record` is safe.
  struct Held {
    std::uint64_t record = 0;
    std::function<void()> say;
  };

  TimePoint Now() const { return journal_clock_->ToJournal(Steady()); }
  TimePoint Steady() const { return clock_.now() + epoch_; }
  std::optional<LinkId> Admit(Run& run, bool resume, SimStream stream);
  std::shared_ptr<Run> AddRun(SimRunNumber number, ReplayedRun from);
  void Enter(SimStream stream, const Join& join);
  void OpenStore(SimStream stream, const StoreHello& hello);
  void RefuseStore(SimStream stream, absl::Status status);
  void QueueStore(const std::shared_ptr<Run>& run, StoreEffects effects);
  void StepRun(const std::shared_ptr<Run>& run, MembershipEvent event);
  void Gone(SimStream stream);
  void ForgetIfDrained(const std::shared_ptr<Run>& run);
  void Forget(const Run& run);
  void Tick();
  void Arm();

  // The journal.
  std::uint64_t Append(const Run& run, JournalRecord record);
  void Sync();
  void TakeSnapshot();
  void Release();
  void Hold(std::function<void()> say);
  void Perform(Run& run, const NodeId& node, const MembershipEffect& effect);
  void Recover();

  SimClock& clock_;
  SimRunNetwork& network_;
  const SimProcess process_;
  const SimSettings& settings_;
  SimRandom random_;
  Invariants& invariants_;
  SimTrace& trace_;

  SimDisk disk_;  // outlives crashes, as this does
  std::uint64_t last_run_ = 0;
  std::uint64_t steps_ = 0;

  // State of the process.
  Duration epoch_{0};  // its steady clock's zero
  std::optional<JournalClock> journal_clock_;
  std::map<std::string, std::shared_ptr<Run>> runs_;
  std::map<SimStream, Place> places_;
  std::map<SimStream, StorePlace> store_places_;
  std::deque<Held> held_;
  std::uint64_t last_record_ = 0;
  bool syncing_ = false;
  std::optional<TimePoint> armed_;
  SimClock::Event timer_;
};

}  // namespace ddprun
