// SPDX-License-Identifier: Apache-2.0
// What leaves the agent about the run: its event log, metrics, messages, traces and page, if the
// options or the environment enable them, and the events of a detached run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "launcher/base/background.h"
#include "launcher/base/poller.h"
#include "launcher/node/refusals.h"
#include "launcher/notify/notifier.h"
#include "launcher/options/options.h"
#include "launcher/runs/run_report.h"
#include "launcher/runs/run_sample.h"
#include "launcher/runs/step_lines.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/trace/tracer.h"
#include "launcher/web/run_page.h"
#include "rendezvous/observe/event_log.h"
#include "rendezvous/observe/metrics.h"
#include "rendezvous/observe/run_observer.h"
#include "rendezvous/service/server.h"
#include "rendezvous/wire/service_channel.h"

namespace ddprun {

// The agent's loop calls it; another thread reads the metrics.
class AgentObserver {
 public:
  // Does nothing, and costs nothing.
  AgentObserver() = default;

  // UNAVAILABLE: a file or a port cannot be opened, in one sentence. `notify`: receives later
  // errors of the event log. `wake`: called on any thread when refusals are pending. `report`: must
  // outlive this; gets, as --notify does, the events of the service in this process, else those of
  // the agent.
  absl::Status Open(const ObserveOptions& options, const NodeId& node_id, const std::string& host,
                    const RunReport& report, const Background& background, EventLog::Notify notify,
                    std::function<void()> wake);

  // Of this node's Join.
  std::string traceparent() const { return tracer_ == nullptr ? "" : tracer_->traceparent(); }
  // For the service in this process.
  RunWatcher* watcher() { return &refusals_; }
  // Until Close(). `server`: null, if another process has the service.
  absl::Status Serve(const ObserveOptions& options, RendezvousServer* server);

  // A page of the run `run_id`, until ClosePage(). `channel`: to the service in this process. The
  // sentence that tells where it is. RESOURCE_EXHAUSTED, UNAVAILABLE: one sentence.
  absl::StatusOr<std::string> OpenPage(const ObserveOptions& options,
                                       std::shared_ptr<ServiceChannel> channel,
                                       const std::string& run_id);
  // Before the service is closed. Waits for a moment until open pages say how the run has ended.
  void ClosePage();

  // `state`: before the event.
  void OnEvent(const Event& event, const SupervisorState& state);
  void OnStarted(const Start& start, int local_rank, std::int64_t pid);
  void OnProgress(int local_rank, const ProgressMessage& message) {
    if (tracer_ != nullptr) tracer_->OnProgress(local_rank, message);
  }
  void OnFault(const Start* start, int local_rank, const std::string& words);
  // `text`: the verdict; empty on success.
  void OnEnd(int exit_code, const std::string& text);
  // Logs the nodes that the service in this process refused; returns a line to show, if one is due.
  std::optional<std::string> TakeRefusals(TimePoint now);
  // Call in each turn of the loop. `progress`: of the run, one line. Returns a line to show.
  std::optional<std::string> OnTurn(const std::function<std::string()>& progress,
                                    const sigset_t& signal_mask, Poller& poller, TimePoint now);
  std::optional<TimePoint> NextDeadline() {
    return Earliest({refusals_.NextDeadline(), next_sample_,
                     notifier_ == nullptr ? std::nullopt : notifier_->NextDeadline(),
                     tracer_ == nullptr ? std::nullopt : tracer_->NextDeadline()});
  }
  pid_t pid() const { return notifier_ == nullptr ? 0 : notifier_->pid(); }
  // After OnEnd(): the last spans and the last message. Returns lines to show.
  std::vector<std::string> FinishMessages(const sigset_t& signal_mask, Poller& poller);
  void Close();

 private:
  bool writes() const { return log_ != nullptr || taps_own_; }
  void Tap(const RunEvent& event) const;
  void TakeSample(TimePoint now);
  // Of many nodes one sends messages: that which has the service, else node 0.
  bool sends() const { return notifier_ != nullptr && (!taps_own_ || node_rank_ == 0); }
  void Write(RunEvent event);
  std::vector<MetricSeries> Collect();

  NodeId node_id_;
  std::string host_;
  std::string run_id_;  // known from the first round on
  std::unique_ptr<EventLog> log_;
  const RunReport* report_ = nullptr;
  int node_rank_ = -1;     // of the last round
  bool taps_own_ = false;  // the agent's own events, for `report_` and `notifier_`
  std::unique_ptr<Notifier> notifier_;
  StepLines steps_;                 // under the run's lock
  std::unique_ptr<Tracer> tracer_;  // null: the environment enables none
  std::unique_ptr<RunObserver> service_;
  Refusals refusals_;
  RendezvousServer* server_ = nullptr;
  // Samples of the run for its recorder, if it is detached and the service is in this process.
  std::optional<TimePoint> next_sample_;
  TimePoint first_sample_{};
  std::vector<SampledNode> sampled_;
  int samples_without_nodes_ = 0;

  std::unique_ptr<RunPage> page_;

  absl::Mutex mutex_;
  int live_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, std::uint64_t> exits_ ABSL_GUARDED_BY(mutex_);  // by exit code
  std::uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;

  std::unique_ptr<MetricsExporter> exporter_;  // last: its thread uses all members above
};

}  // namespace ddprun
