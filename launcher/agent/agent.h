// SPDX-License-Identifier: Apache-2.0
// One node's agent: it joins the run, starts the workers on the service's order, and reports their
// ends. One thread and one loop; gRPC's threads only post to its queue, and calls to disks and name
// services run on other threads.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "launcher/agent/agent_observer.h"
#include "launcher/agent/notice_file.h"
#include "launcher/agent/owner_lookups.h"
#include "launcher/agent/stdin_pump.h"
#include "launcher/base/background.h"
#include "launcher/base/poller.h"
#include "launcher/chaos/fault_injector.h"
#include "launcher/node/control_pipe.h"
#include "launcher/node/rendezvous_endpoint.h"
#include "launcher/options/options.h"
#include "launcher/output/console.h"
#include "launcher/processes/cgroup.h"
#include "launcher/processes/program.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/workers/node_config.h"
#include "launcher/workers/worker_watch.h"
#include "launcher/workers/workers.h"
#include "rendezvous/base/addresses.h"
#include "rendezvous/base/event_fd.h"
#include "rendezvous/client/session_client.h"
#include "rendezvous/proxy/store_proxy.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

// Where an agent serves torch's TCPStore if each does.
inline constexpr char kLoopback[] = "127.0.0.1";

// Events from gRPC's threads to the agent's thread: the only state that they share.
class EventQueue {
 public:
  // Readable while there are events.
  int fd() const { return notice_.fd(); }

  void Post(SessionEvent event) ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      events_.push_back(std::move(event));
    }
    Wake();
  }

  // Makes the agent's loop take a turn.
  void Wake() { notice_.Notify(); }

  std::vector<SessionEvent> TakeAll() ABSL_LOCKS_EXCLUDED(mutex_) {
    notice_.Clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(events_, {});
  }

 private:
  const EventFd notice_;
  std::mutex mutex_;
  std::vector<SessionEvent> events_ ABSL_GUARDED_BY(mutex_);
};

// A node id that is unique across agents.
NodeId MakeNodeId(const std::string& host);

class Agent {
 public:
  struct Config : NodeConfig {
    sigset_t end_signals;
    sigset_t forwarded_signals;
    sigset_t notice_signals;
    pid_t warden = 0;  // the process that the user started
    // Readable once the warden or the keeper has ended.
    std::vector<int> guard_fds;
    // Of a node that the head of a run has started.
    std::optional<ControlPipe> control_pipe;
    NodeId node_id;
    // The node's own, made before the warden and the agent part, since both act for the node;
    // absent: plain text.
    std::optional<TlsCredentials> credentials;
    Security security;  // for the service, where this agent hosts it
  };

  explicit Agent(Config config);
  ~Agent();

  // Returns the exit code when the run is over.
  int Run();

 private:
  // Through which workers reach their store.
  struct WorkerStoreDoor {
    std::unique_ptr<StoreProxy> proxy;
    // Where this agent will serve torch's TCPStore in the next round: other nodes' workers may
    // connect before this agent hears that it began.
    std::optional<ListeningSocket> listener;
    int port = 0;  // of the last one
  };

  absl::Status WatchSources();
  absl::Status Open();
  void BeginJoin(TimePoint now);
  void ContinueJoin(TimePoint now);
  void RetryJoin(const absl::Status& status, TimePoint now);
  void Join(const std::string& address, TimePoint now);
  std::optional<TimePoint> NextJoinDeadline() const;
  std::chrono::milliseconds JoinTimeLeft(TimePoint now) const;
  absl::Status TakeWorkerPorts();
  absl::Status TakeWorkerPort(std::size_t store);
  absl::Status ListenAt(WorkerStoreDoor& door, int asked);  // asked: 0 for any
  std::vector<RoleWorkers> RolesToJoin() const;
  std::vector<std::string> NetworkVariables(const Start& start);
  bool EachAgentServes() const;
  absl::Status ServeStore(const Start& start, std::size_t store);
  absl::Status ServeStores(Start& start);
  absl::Status ServeTcpStore(const Start& start, std::size_t store);
  void Loop();
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
  void HandleOwners(OwnerAnswers& answers);
  void SendOwners(TimePoint now);
  void NotifyStore(const SessionEvent& event);
  void SendHeartbeatIfDue(TimePoint now);
  void HandleFault(const Fault& fault, TimePoint now);
  absl::StatusOr<std::string> CarryOut(const Fault& fault, TimePoint now);
  void SendLogLines();
  void Process(TimePoint now);
  void Perform(const Effect& effect, TimePoint now);
  void OnWorkersStarted(TimePoint now);
  void Print(const std::string& sentence);
  void ShowEnd(const End& end);
  void LeaveRecord(const End& end);
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
  NoticeFile notice_file_;
  StdinPump stdin_pump_;
  OwnedFd signal_fd_;
  std::vector<OwnedFd> guard_fds_;
  EventQueue session_events_;
  OwnerLookups owners_;     // before the stores, which call it
  AgentObserver observer_;  // before the service, which it watches

  // In the order of creation. Close() destroys them in reverse order, except for the server, which
  // stays until the other nodes have received their verdict.
  RendezvousEndpoint rendezvous_;
  std::shared_ptr<ServiceChannel> channel_;
  std::unique_ptr<SessionClient> session_;
  // One, or with --ranks-by role one for each program.
  std::vector<WorkerStoreDoor> stores_;

  std::string address_;  // at which the other nodes reach this node's workers
  TimePoint join_deadline_;
  std::chrono::milliseconds heartbeat_{0};  // the maximum time between two heartbeats; 0: no limit
  std::optional<TimePoint> heartbeat_due_;
  std::chrono::milliseconds reconnect_timeout_{0};        // time in which this node may reconnect
  std::optional<TimePoint> join_retry_;                   // when to resolve the master's name again
  std::future<absl::StatusOr<std::string>> own_address_;  // that of the route to the master
  std::optional<TimePoint> resolve_notice_;  // a note is printed then if resolving has not finished
  std::future<bool> nccl_conf_;              // reads the home folder, which may be on a file server
  bool nccl_conf_names_interfaces_ = false;
  std::optional<int> exit_code_;
};

}  // namespace ddprun
