// SPDX-License-Identifier: Apache-2.0
// The rendezvous service on simulated time: the real cores and the real journal records; only what
// carries them (run.cc, run_registry.cc, session_service.cc) is modelled here, by the same rules.
// What a step decided goes out once its record is safe, in the order of the steps.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/journal_records.h"
#include "rendezvous/membership.h"
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
  const RunState* Find(const std::string& run_id) const;
  std::uint64_t steps() const { return steps_; }

  void OnAccepted(SimStream, SimProcess) override {}
  void OnMessage(SimStream stream, SimMessage message) override;
  void OnClosed(SimStream stream) override;

 private:
  struct Run {
    SimRunNumber number = 0;
    std::string id;
    RunState state;
    std::uint64_t last_link = 0;
    std::map<LinkId, SimStream> sessions;
  };
  struct Place {
    std::shared_ptr<Run> run;
    LinkId link{};
  };
  // To be done once `record` is safe.
  struct Queued {
    std::uint64_t record = 0;
    std::shared_ptr<Run> run;
    std::vector<std::pair<NodeId, MembershipEffect>> effects;
  };

  TimePoint Now() const { return journal_clock_->ToJournal(Steady()); }
  TimePoint Steady() const { return clock_.now() + epoch_; }
  std::optional<LinkId> Admit(Run& run, bool resume, SimStream stream);
  void Join_(SimStream stream, const Join& join);
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
  void Perform(Run& run, const NodeId& node, const MembershipEffect& effect);
  void Recover();
  void Replay(const SimDisk::Record& record, TimePoint& last);

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

  // Of the process.
  Duration epoch_{0};  // its steady clock's zero
  std::optional<JournalClock> journal_clock_;
  std::map<std::string, std::shared_ptr<Run>> runs_;
  std::map<SimStream, Place> places_;
  std::deque<Queued> queue_;
  bool syncing_ = false;
  std::optional<TimePoint> armed_;
  SimClock::Event timer_;
};

}  // namespace ddprun
