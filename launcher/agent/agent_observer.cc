// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/agent_observer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/supervisor/agent_events.h"
#include "rendezvous/base/overloaded.h"

namespace ddprun {

absl::Status AgentObserver::Open(const ObserveOptions& options, const NodeId& node_id,
                                 const std::string& host, const RunReport& report,
                                 const Background& background, EventLog::Notify notify,
                                 std::function<void()> wake) {
  node_id_ = node_id;
  host_ = host;
  report_ = &report;
  if (!options.event_log.empty()) {
    auto log = EventLog::Open(options.event_log, std::move(notify));
    if (!log.ok()) return log.status();
    log_ = *std::move(log);
    RunEvent started;
    started.event = "agent.started";
    Write(std::move(started));
  }
  if (!options.notify.empty()) {
    absl::StatusOr<NotifyTarget> target = ParseNotifyTarget(options.notify);
    if (!target.ok()) return target.status();
    notifier_ = std::make_unique<Notifier>(
        *std::move(target), NotifySchedule(host, options.notify_alive), background, wake);
  }
  if (options.metrics_port.has_value() || report.detached() || notifier_ != nullptr)
    service_ = std::make_unique<RunObserver>(
        [this](const RunEvent& event) { Tap(event); },
        [this](const RunState& before, const MembershipEvent& event, TimePoint now) {
          if (report_->detached() && !report_->Steps(steps_.Of(before, event, now))) steps_.Lost();
        });
  TraceSettings traces = ReadTraceSettings(ReadVariable, host);
  if (!traces.url.empty() || !traces.warning.empty())
    tracer_ = std::make_unique<Tracer>(std::move(traces), background);
  refusals_.Begin(service_.get(), std::move(wake));
  return absl::OkStatus();
}

absl::Status AgentObserver::Serve(const ObserveOptions& options, RendezvousServer* server) {
  taps_own_ = (report_->detached() || notifier_ != nullptr) && server == nullptr;
  server_ = server;
  if (tracer_ != nullptr) tracer_->OnServe(server != nullptr);
  if (report_->detached() && server != nullptr) {
    first_sample_ = std::chrono::steady_clock::now();
    next_sample_ = first_sample_;
  }
  if (!options.metrics_port.has_value()) return absl::OkStatus();
  auto exporter = StartMetricsExporter(options.metrics_addr, *options.metrics_port,
                                       [this] { return Collect(); });
  if (!exporter.ok()) return exporter.status();
  exporter_ = *std::move(exporter);
  return absl::OkStatus();
}

absl::StatusOr<std::string> AgentObserver::OpenPage(const ObserveOptions& options,
                                                    std::shared_ptr<ServiceChannel> channel,
                                                    const std::string& run_id) {
  CtlOptions page;
  page.run_id = run_id;
  page.port = *options.web_port;
  page.web_control = options.web_control;
  auto begun =
      RunPage::Start(page, std::move(channel), run_id, [](WebState&) { return absl::OkStatus(); });
  if (!begun.ok()) return begun.status();
  page_ = *std::move(begun);
  return absl::StrCat("the page of run ", run_id, " is ", page_->Url(),
                      "; from another machine: ", page_->Tunnel());
}

void AgentObserver::ClosePage() {
  if (page_ == nullptr) return;
  page_->TellEnd(kWebEndTimeout);
  page_.reset();
}

void AgentObserver::OnEvent(const Event& event, const SupervisorState& state) {
  if (const auto* start = std::get_if<Start>(&event)) {
    run_id_ = start->run_id;
    node_rank_ = start->node_rank;
  }
  if (tracer_ != nullptr) tracer_->OnEvent(event);
  if (writes()) {
    if (auto said = EventOf(event, state)) Write(*std::move(said));
  }
  if (service_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  if (const auto* start = std::get_if<Start>(&event)) round_ = ToNumber(start->round);
  if (const auto* ended = std::get_if<WorkerEnded>(&event)) {
    ++exits_[ExitCodeOf(ended->outcome)];
    if (live_ > 0) --live_;
  }
}

void AgentObserver::OnStarted(const Start& start, int local_rank, std::int64_t pid) {
  if (writes()) Write(WorkerStarted(start, local_rank, pid));
  if (service_ == nullptr) return;
  absl::MutexLock lock(&mutex_);
  ++started_;
  ++live_;
}

void AgentObserver::OnFault(const Start* start, int local_rank, const std::string& words) {
  if (writes()) Write(FaultInjected(start, local_rank, words));
}

void AgentObserver::OnEnd(int exit_code, const std::string& text) {
  if (sends()) notifier_->OnEnd(exit_code, text);
  if (tracer_ != nullptr) tracer_->OnEnd(exit_code, text);
  if (writes()) Write(AgentEnded(exit_code));
}

std::optional<std::string> AgentObserver::TakeRefusals(TimePoint now) {
  const std::vector<Refusals::Refused> all = refusals_.TakeAll();
  if (log_ != nullptr) {
    for (const auto& [run_id, note] : all) log_->Write(EventOf(run_id, note));
  }
  return refusals_.TakeLine(now);
}

void AgentObserver::Close() {
  exporter_.reset();
  next_sample_.reset();
  log_.reset();
}

void AgentObserver::Write(RunEvent event) {
  event.node_id = node_id_.value;
  event.host = host_;
  if (event.run_id.empty()) event.run_id = run_id_;
  if (log_ != nullptr) log_->Write(event);
  if (taps_own_) Tap(event);
}

void AgentObserver::Tap(const RunEvent& event) const {
  report_->Event(event);
  if (sends()) notifier_->OnEvent(event);
}

std::optional<std::string> AgentObserver::OnTurn(const std::function<std::string()>& progress,
                                                 const sigset_t& signal_mask, Poller& poller,
                                                 TimePoint now) {
  if (next_sample_ && now >= *next_sample_) TakeSample(now);
  if (tracer_ != nullptr) {
    if (auto problem = tracer_->OnTurn(now)) return problem;  // the next turn is the notifier's
  }
  if (notifier_ == nullptr) return std::nullopt;
  return notifier_->OnTurn(progress, signal_mask, poller, now);
}

// The nodes are in a sample where they have changed, and once in a while, as the oldest file goes.
void AgentObserver::TakeSample(TimePoint now) {
  constexpr int kWithoutNodesMax = 300;
  using std::chrono::milliseconds;
  next_sample_ =
      now + SampleInterval(std::chrono::duration_cast<milliseconds>(now - first_sample_));
  for (const RunStatus& run : server_->Status()) {
    if (run.round == kNoRound) continue;
    std::vector<SampledNode> nodes = NodesOf(run);
    const bool changed = nodes != sampled_ || ++samples_without_nodes_ > kWithoutNodesMax;
    if (changed) samples_without_nodes_ = 0;
    report_->Sample(run, changed);
    sampled_ = std::move(nodes);
  }
}

std::vector<std::string> AgentObserver::FinishMessages(const sigset_t& signal_mask,
                                                       Poller& poller) {
  std::vector<std::string> problems;
  if (tracer_ != nullptr) {
    if (auto problem = tracer_->Finish()) problems.push_back(*std::move(problem));
  }
  if (notifier_ != nullptr) {
    if (auto problem = notifier_->Finish(signal_mask, poller))
      problems.push_back(*std::move(problem));
  }
  return problems;
}

std::vector<MetricSeries> AgentObserver::Collect() {
  using Type = MetricSeries::Type;
  std::vector<MetricSeries> all = ProcessMetrics();
  {
    absl::MutexLock lock(&mutex_);
    all.push_back({"ddprun_agent_workers",
                   "Workers of this node that run.",
                   Type::kGauge,
                   {{{}, static_cast<double>(live_)}}});
    all.push_back({"ddprun_agent_round",
                   "Round of the workers that were started last.",
                   Type::kGauge,
                   {{{}, static_cast<double>(round_)}}});
    all.push_back({"ddprun_agent_workers_started_total",
                   "Workers of this node that were started.",
                   Type::kCounter,
                   {{{}, static_cast<double>(started_)}}});
    MetricSeries exits{"ddprun_agent_worker_exits_total",
                       "Workers of this node that have ended, by exit code (128 + N: signal N).",
                       Type::kCounter,
                       {}};
    for (const auto& [code, count] : exits_) {
      exits.samples.push_back({{{"code", absl::StrCat(code)}}, static_cast<double>(count)});
    }
    if (!exits.samples.empty()) all.push_back(std::move(exits));
  }
  if (server_ == nullptr) return all;
  for (MetricSeries& series : ServiceMetrics(server_->Status(), service_->Counters())) {
    all.push_back(std::move(series));
  }
  return all;
}

}  // namespace ddprun
