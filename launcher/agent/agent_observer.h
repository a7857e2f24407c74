// SPDX-License-Identifier: Apache-2.0
// What an agent tells programs while it runs: its event log and its metrics, each where it is
// wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "launcher/node/refusals.h"
#include "launcher/options/options_observe.h"
#include "launcher/supervisor/supervisor.h"
#include "rendezvous/observe/event_log.h"
#include "rendezvous/observe/metrics.h"
#include "rendezvous/observe/run_observer.h"
#include "rendezvous/service/server.h"

namespace ddprun {

// The agent's loop calls it; the metrics are read on a thread of theirs.
class AgentObserver {
 public:
  // Does nothing, and costs nothing.
  AgentObserver() = default;

  // UNAVAILABLE: a file or a port cannot be opened, in one sentence.
  // `notify`: for what becomes of the event log later. `wake`: on any thread, there are refusals to
  // take.
  absl::Status Open(const ObserveOptions& options, const NodeId& node_id, const std::string& host,
                    EventLog::Notify notify, std::function<void()> wake);

  // For the service in this process.
  RunWatcher* watcher() { return &refusals_; }
  // Until Close().
  absl::Status Serve(const ObserveOptions& options, RendezvousServer* server);

  // `state`: before the event.
  void OnEvent(const Event& event, const SupervisorState& state);
  void OnStarted(const Start& start, int local_rank, std::int64_t pid);
  void OnEnd(int exit_code);
  // Writes down whom the service in this process has refused; a line to show, if it is time for
  // one.
  std::optional<std::string> TakeRefusals(TimePoint now);
  std::optional<TimePoint> NextDeadline() { return refusals_.NextDeadline(); }
  void Close();

 private:
  void Write(RunEvent event);
  std::vector<MetricSeries> Collect();

  NodeId node_id_;
  std::string host_;
  std::string run_id_;  // once a round has told it
  std::unique_ptr<EventLog> log_;
  std::unique_ptr<RunObserver> service_;
  Refusals refusals_;
  RendezvousServer* server_ = nullptr;

  absl::Mutex mutex_;
  int live_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, std::uint64_t> exits_ ABSL_GUARDED_BY(mutex_);  // by exit code
  std::uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;

  std::unique_ptr<MetricsExporter> exporter_;  // last: its thread uses all of the above
};

}  // namespace ddprun
