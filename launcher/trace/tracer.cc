// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/tracer.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/base/limits.h"
#include "launcher/node/https_post.h"
#include "launcher/options/notify_target.h"

namespace ddprun {
namespace {

std::string RandomId(int words) {
  std::random_device random;
  std::string id;
  for (int i = 0; i < words; ++i) absl::StrAppendFormat(&id, "%08x", random() | 1u);
  return id;
}

TraceContext NewContext(const TraceSettings& settings) {
  return {settings.parent.has_value() ? settings.parent->trace_id : RandomId(4), RandomId(2)};
}

TraceTime WallTime() { return std::chrono::system_clock::now(); }

}  // namespace

Tracer::Tracer(TraceSettings settings, const Background& background)
    : settings_(std::move(settings)),
      background_(background),
      run_(NewContext(settings_)),
      trace_(run_, settings_.parent.has_value() ? settings_.parent->span_id : "", WallTime()) {}

void Tracer::OnEvent(const Event& event) {
  const TraceTime now = WallTime();
  if (const auto* start = std::get_if<Start>(&event)) {
    // Of a URL that cannot be used node 0 warns.
    sends_ =
        settings_.url.empty() ? start->node_rank == 0 : start->traceparent == ToTraceparent(run_);
    has_rank0_ = start->rank_first == 0;
    trace_.OnStart(*start, now);
  } else if (const auto* stop = std::get_if<Stop>(&event)) {
    trace_.OnStop(*stop, now);
  } else if (const auto* finish = std::get_if<ddprun::Finish>(&event)) {
    trace_.OnFinish(finish->verdict, now);
  }
  TakeSpans();
}

void Tracer::OnProgress(int local_rank, const ProgressMessage& message) {
  if (!has_rank0_ || local_rank != 0) return;
  trace_.OnProgress(message, WallTime());
  TakeSpans();
}

void Tracer::OnEnd(int exit_code, const std::string& text) {
  trace_.OnEnd(exit_code, text, lost_, WallTime());
  TakeSpans();
}

void Tracer::TakeSpans() {
  for (Span& span : trace_.TakeEnded()) {
    if (!exports()) continue;
    waiting_.push_back(std::move(span));
    if (waiting_.size() <= kTraceSpansMax) continue;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(under_way_));
    ++lost_;
  }
}

void Tracer::Send() {
  under_way_ = std::min(waiting_.size(), kTraceBatchMax);
  const std::vector<Span> batch(waiting_.begin(),
                                waiting_.begin() + static_cast<std::ptrdiff_t>(under_way_));
  HttpsPost post{.url = settings_.url,
                 .ca_file = "",
                 .bearer = "",
                 .body = OtlpJson(batch, settings_.attributes),
                 .timeout = kTraceTimeout,
                 .without_tls = true,
                 .through_proxy = true,
                 .headers = settings_.headers};
  posting_ = background_.Start<absl::Status>([post = std::move(post)] { return Post(post); });
}

std::optional<std::string> Tracer::Complain(const std::string& problem) {
  if (std::exchange(has_failed_, true)) return std::nullopt;
  return absl::StrCat("traces: ", NameOf({NotifyTarget::Form::kJson, settings_.url}),
                      " took no spans: ", problem, "; later failures are not shown");
}

// Spans that were not taken are sent again with the next ones.
std::optional<std::string> Tracer::TakeProblem() {
  const auto status = TakeResult(posting_);
  if (!status.has_value()) return std::nullopt;
  posting_ = {};
  const auto sent = static_cast<std::ptrdiff_t>(std::exchange(under_way_, 0));
  if (!status->ok()) return Complain(std::string(status->message()));
  waiting_.erase(waiting_.begin(), waiting_.begin() + sent);
  return std::nullopt;
}

std::optional<TimePoint> Tracer::NextDeadline() const {
  if (sends_ && !settings_.warning.empty()) return TimePoint{};
  // The end of a thread's call wakes the loop.
  if (posting_.valid() || waiting_.empty()) return std::nullopt;
  return next_;
}

std::optional<std::string> Tracer::OnTurn(TimePoint now) {
  if (sends_ && !settings_.warning.empty()) return std::exchange(settings_.warning, "");
  std::optional<std::string> problem = TakeProblem();
  if (posting_.valid() || waiting_.empty() || now < next_) return problem;
  next_ = now + kTraceInterval;
  Send();
  return problem;
}

std::optional<std::string> Tracer::Finish() {
  const TimePoint deadline = std::chrono::steady_clock::now() + kTraceLastTimeout;
  std::optional<std::string> problem;
  while (!waiting_.empty()) {
    const bool is_last = !posting_.valid();
    if (is_last) Send();
    if (posting_.wait_until(deadline) != std::future_status::ready) {
      posting_ = {};
      return Complain(
          absl::StrCat("no answer at the end of the run within ", kTraceLastTimeout.count(), " s"));
    }
    const std::size_t before = waiting_.size();
    if (auto one = TakeProblem()) problem = std::move(one);
    if (is_last && waiting_.size() == before) break;
  }
  return problem;
}

}  // namespace ddprun
