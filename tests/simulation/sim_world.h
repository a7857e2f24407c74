// SPDX-License-Identifier: Apache-2.0
// A run, its service and its nodes on simulated time, played from a scenario. README.md lists the
// verbs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_agent.h"
#include "tests/simulation/sim_clock.h"
#include "tests/simulation/sim_message.h"
#include "tests/simulation/sim_service.h"
#include "tests/simulation/sim_settings.h"
#include "tests/simulation/sim_training.h"

namespace ddprun {

class SimWorld {
 public:
  explicit SimWorld(bool trace) : trace_(trace) {}
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  // INTERNAL: an invariant does not hold; FAILED_PRECONDITION: an expectation is not met;
  // INVALID_ARGUMENT: the scenario is wrong.
  absl::Status Play(const std::vector<ScenarioLine>& scenario);

  Duration simulated() const { return clock_.now() - SimClock().now(); }
  std::uint64_t steps() const { return service_ == nullptr ? 0 : service_->steps(); }
  std::string Trace(std::size_t lines) const { return trace_.Last(lines); }

 private:
  struct Node {
    SimProcess process{};
    int lives = 0;
    std::unique_ptr<SimAgent> agent;
  };

  absl::Status Run(const ScenarioLine& line);
  absl::Status Network(const ScenarioLine& line);
  absl::Status StartOne(const ScenarioLine& line);
  absl::Status Crash(const ScenarioLine& line, bool with_machine);
  absl::Status Stop(const ScenarioLine& line, bool stop);
  absl::Status Cut(const ScenarioLine& line, bool cut);
  absl::Status Break(const ScenarioLine& line);
  absl::Status Fail(const ScenarioLine& line);
  absl::Status TellProgress(const ScenarioLine& line);
  absl::Status ToAgent(const ScenarioLine& line, void (SimAgent::*what)());
  absl::Status Interrupt(const ScenarioLine& line);
  absl::Status GiveNotice(const ScenarioLine& line);
  absl::Status CtlStop(const ScenarioLine& line);
  absl::Status Drain(const ScenarioLine& line);
  absl::Status Settle();
  absl::Status Expect(const ScenarioLine& line);
  absl::Status Await(const ScenarioLine& line);

  void Build();
  Node& Find(const std::string& name);
  absl::StatusOr<std::vector<SimProcess>> ProcessesOf(const ScenarioLine& line, std::size_t word);
  void StartService();
  void CrashService(bool with_machine);
  void CrashNode(Node& node, bool with_machine);
  void AgentEnded(Node& node);
  void LetServiceEnd(TimePoint deadline);
  void WorkersDied(const Node& node, const Start& start);
  bool RunNextUntil(TimePoint time);
  absl::Status PassUntil(TimePoint time);
  bool AllEnded() const;
  std::map<std::string, std::string> Look(const std::string& name);

  SimSettings settings_;
  std::map<std::string, SimNodeSettings> node_settings_;
  SimClock clock_;
  SimTrace trace_;
  Invariants invariants_;
  std::optional<SimRandom> random_;
  std::unique_ptr<SimRunNetwork> network_;
  SimProcess service_process_{};
  std::unique_ptr<SimService> service_;
  std::optional<SimTraining> training_;
  std::map<std::string, Node> nodes_;
  int events_of_moment_ = 0;
};

}  // namespace ddprun
