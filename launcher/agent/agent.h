// SPDX-License-Identifier: Apache-2.0
// One node's agent: it joins the run, starts the workers on the service's order, and reports their
// ends. One thread and one loop; gRPC's threads only post to its queue, and calls to disks and name
// services run on other threads.
#pragma once

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/agent/node_session.h"
#include "launcher/agent/own_address.h"
#include "launcher/agent/stdin_pump.h"
#include "launcher/agent/worker_stores.h"
#include "launcher/base/background.h"
#include "launcher/base/poller.h"
#include "launcher/chaos/fault_injector.h"
#include "launcher/node/control_pipe.h"
#include "launcher/node/trainer_progress.h"
#include "launcher/notices/notice_watch.h"
#include "launcher/output/console.h"
#include "launcher/processes/side_command.h"
#include "launcher/processes/slurm_comment.h"
#include "launcher/runs/run_report.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/workers/node_config.h"
#include "launcher/workers/worker_watch.h"
#include "launcher/workers/workers.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

// A node id that is unique across agents.
NodeId MakeNodeId(const std::string& host);

class Agent {
 public:
  struct Config : NodeConfig {
    sigset_t end_signals;
    sigset_t forwarded_signals;
    sigset_t notice_signals;
    std::string health_command;  // HealthCommandLine(); empty: none
    pid_t warden = 0;            // the process that the user started
    // Readable once the warden or the keeper has ended.
    std::vector<int> guard_fds;
    // Present if the head of a run has started this node.
    std::optional<ControlPipe> control_pipe;
    // The node's own, made before the warden and the agent part, since both act for the node;
    // absent: plain text.
    std::optional<TlsCredentials> credentials;
    Security security;  // for the service, where this agent hosts it
    RunReport report;   // to the recorder of a detached run
  };

  explicit Agent(Config config);
  ~Agent();

  // Returns the exit code when the run is over.
  int Run();

 private:
  absl::Status WatchSources();
  absl::Status Open();
  absl::Status OpenPage();
  void Join(const std::string& address, TimePoint now);
  void Loop();
  void BeginHealthCheck(TimePoint now);
  void OnHealthTurn(TimePoint now);
  std::string CommentText() const;
  void ShowRefusals(TimePoint now);
  void HandleReady(const Ready& ready, TimePoint now);
  void HandleSignals(TimePoint now);
  void TakeSignal(int number);
  void LookForNotice(TimePoint now);
  void TellWorkers(const Preemption& preemption, TimePoint now);
  void HandleControlPipe(bool readable);
  void SendToHead(const NodeMessage& message);
  StdinPump MakeStdinPump();
  void HandleSession(TimePoint now);
  void HandleDirective(Directive& directive, TimePoint now);
  void SendOwners(TimePoint now);
  void SendHeartbeatIfDue(TimePoint now);
  void HandleFault(const Fault& fault, TimePoint now);
  absl::StatusOr<std::string> CarryOut(const Fault& fault, TimePoint now);
  void SendLogLines();
  void Process(TimePoint now);
  void Perform(const Effect& effect, TimePoint now);
  void StartRound(const SpawnRound& spawn, TimePoint now);
  void SendStopped(const ReportStopped& stopped, TimePoint now);
  void OnWorkersStarted(TimePoint now);
  void Print(const std::string& sentence);
  void ShowEnd(const End& end);
  void LeaveRecord(const End& end);
  void LeaveTerminationMessage(const End& end);
  void ReportIfNotWritten(const std::string& path, std::function<absl::Status()> write);
  void Close();

  Config config_;  // constant, except for the secret, which is wiped
  SupervisorConfig supervisor_config_;
  SupervisorState state_;
  std::vector<Event> events_;  // to be fed to the supervisor, in order

  Poller poller_;
  Background background_;  // runs calls to disks and name services
  Console console_;
  Workers workers_;
  WorkerWatch watch_;
  FaultInjector faults_;  // after the workers, so that it undoes its faults before they go
  NoticeWatch notice_watch_;
  StdinPump stdin_pump_;
  OwnedFd signal_fd_;
  std::vector<OwnedFd> guard_fds_;
  OwnAddress own_address_;
  std::string join_address_;  // known, and this node has not joined with it yet
  SideCommand health_;
  bool may_join_;  // false: not before the health check passes
  std::optional<TimePoint> health_retry_;
  SlurmComment slurm_comment_;
  AgentObserver observer_;  // before the session, whose service it watches
  TrainerProgress trainer_;
  NodeSession session_;
  WorkerStores stores_;
  std::optional<int> exit_code_;
};

}  // namespace ddprun
