// SPDX-License-Identifier: Apache-2.0
// Sends the spans of a run to an OpenTelemetry collector. Never in the way of the run: a thread of
// its own waits for the collector, with a deadline, and spans that nobody takes are dropped.
// OBSERVING.md.
#pragma once

#include <deque>
#include <future>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "launcher/base/background.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/trace/run_trace.h"

namespace ddprun {

class Tracer {
 public:
  // `background` must outlive this.
  Tracer(TraceSettings settings, const Background& background);

  // Of this node's Join: the run's span, if this node is the one that sends the trace.
  std::string traceparent() const { return settings_.url.empty() ? "" : ToTraceparent(run_); }
  // Whether it sends is known with the first round; until then the node that has the service does.
  void OnServe(bool hosts_service) { sends_ = hosts_service; }
  void OnEvent(const Event& event);
  void OnProgress(int local_rank, const ProgressMessage& message);
  void OnEnd(int exit_code, const std::string& text);
  // Sends what has ended, if it is time. Returns a line to show.
  std::optional<std::string> OnTurn(TimePoint now);
  std::optional<TimePoint> NextDeadline() const;
  // After OnEnd(): the rest, for at most kTraceLastTimeout. Returns a line to show.
  std::optional<std::string> Finish();

 private:
  bool exports() const { return sends_ && !settings_.url.empty(); }
  void TakeSpans();
  void Send();
  std::optional<std::string> TakeProblem();
  std::optional<std::string> Complain(const std::string& problem);

  TraceSettings settings_;
  const Background& background_;
  const TraceContext run_;
  RunTrace trace_;
  bool sends_ = false;
  bool has_rank0_ = false;

  std::deque<Span> waiting_;
  std::size_t under_way_ = 0;  // the first ones of them
  std::uint64_t lost_ = 0;
  std::future<absl::Status> posting_;
  TimePoint next_{};         // no request before
  bool has_failed_ = false;  // it is said once
};

}  // namespace ddprun
