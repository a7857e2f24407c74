// SPDX-License-Identifier: Apache-2.0
// The agent's event log and metrics, if the options enable them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "launcher/node/refusals.h"
#include "launcher/options/options.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/observe/event_log.h"
#include "rendezvous/observe/metrics.h"
#include "rendezvous/observe/run_observer.h"
#include "rendezvous/service/server.h"

namespace ddprun {

// The agent's loop calls it; another thread reads the metrics.
class AgentObserver {
 public:
  // Does nothing, and costs nothing.
  AgentObserver() = default;

  // UNAVAILABLE: a file or a port cannot be opened, in one sentence. `notify`: receives later
  // errors of the event log. `wake`: called on any thread when refusals are pending.
  absl::Status Open(const ObserveOptions& options, const NodeId& node_id, const std::string& host,
                    EventLog::Notify notify, std::function<void()> wake);

  // For the service in this process.
  RunWatcher* watcher() { return &refusals_; }
  // Until Close().
  absl::Status Serve(const ObserveOptions& options, RendezvousServer* server);

  // `state`: before the event.
  void OnEvent(const Event& event, const SupervisorState& state);
  void OnStarted(const Start& start, int local_rank, std::int64_t pid);
  void OnFault(const Start* start, int local_rank, const std::string& words);
  void OnEnd(int exit_code);
  // Logs the nodes that the service in this process refused; returns a line to show, if one is due.
  std::optional<std::string> TakeRefusals(TimePoint now);
  std::optional<TimePoint> NextDeadline() { return refusals_.NextDeadline(); }
  void Close();

 private:
  void Write(RunEvent event);
  std::vector<MetricSeries> Collect();

  NodeId node_id_;
  std::string host_;
  std::string run_id_;  // known from the first round on
  std::unique_ptr<EventLog> log_;
  std::unique_ptr<RunObserver> service_;
  Refusals refusals_;
  RendezvousServer* server_ = nullptr;

  absl::Mutex mutex_;
  int live_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, std::uint64_t> exits_ ABSL_GUARDED_BY(mutex_);  // by exit code
  std::uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;

  std::unique_ptr<MetricsExporter> exporter_;  // last: its thread uses all members above
};

}  // namespace ddprun
