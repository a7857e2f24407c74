// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace/run_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "proto/json_text.h"
#include "proto/text.h"
#include "proto/version.h"
#include "rendezvous/base/overloaded.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCheckpoint[] = "checkpoint";

// The end of a round that is no failure: a node comes or goes as an operator wants it.
bool IsPlanned(const Failure& cause) {
  return cause.kind == FailureKind::kNodeDrained || cause.kind == FailureKind::kNodeJoined;
}

// Absent: the message says nothing of it.
std::optional<bool> IsSaving(const ProgressMessage& message) {
  if (message.section.has_value()) return *message.section == kCheckpoint;
  if (message.doing.has_value()) return *message.doing == TimeClass::kCheckpoint;
  return std::nullopt;
}

Json ToJson(const std::string& text) {
  return {{"stringValue", CutText(text, kTraceTextBytesMax)}};
}
Json ToJson(double number) { return {{"doubleValue", number}}; }
Json ToJson(std::int64_t number) { return {{"intValue", absl::StrCat(number)}}; }

Json ToJson(TraceTime time) {
  const auto nanoseconds =
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  return absl::StrCat(nanoseconds);
}

Json ToJson(const Span& span) {
  constexpr int kInternal = 1;
  constexpr int kError = 2;
  Json json{{"traceId", span.context.trace_id}, {"spanId", span.context.span_id}};
  if (!span.parent.empty()) json["parentSpanId"] = span.parent;
  json["name"] = span.name;
  json["kind"] = kInternal;
  json["startTimeUnixNano"] = ToJson(span.begin);
  json["endTimeUnixNano"] = ToJson(span.end);
  json["attributes"] = Json::array();
  for (const auto& [name, value] : span.attributes) {
    json["attributes"].push_back(
        {{"key", absl::StrCat("ddprun.", name)},
         {"value", std::visit([](const auto& plain) { return ToJson(plain); }, value)}});
  }
  json["status"] = Json::object();
  if (span.error.has_value())
    json["status"] = {{"code", kError}, {"message", CutText(*span.error, kTraceTextBytesMax)}};
  return json;
}

}  // namespace

RunTrace::RunTrace(TraceContext run, std::string parent, TraceTime begin)
    : run_{.name = "run", .context = std::move(run), .parent = std::move(parent), .begin = begin} {}

Span RunTrace::Begin(const char* name, std::uint64_t number, const std::string& parent,
                     TraceTime now) {
  return {.name = name,
          .context = SpanOfRun(run_.context, name, number),
          .parent = parent,
          .begin = now};
}

// The clock may have been set back.
void RunTrace::End(std::optional<Span>& span, std::optional<std::string> error, TraceTime now) {
  if (!span.has_value()) return;
  span->end = std::max(span->begin, now);
  span->error = std::move(error);
  ended_.push_back(*std::exchange(span, std::nullopt));
}

void RunTrace::EndRound(const Failure* cause, TraceTime now) {
  if (!round_.has_value()) return;
  if (checkpoint_.has_value()) End(checkpoint_, "the round ended before it", now);
  if (cause == nullptr) return End(round_, std::nullopt, now);
  const std::string sentence = ToSentence(*cause);
  round_->attributes.emplace_back("reason", sentence);
  if (cause->rank >= 0) round_->attributes.emplace_back("cause.rank", std::int64_t{cause->rank});
  if (!cause->host.empty()) round_->attributes.emplace_back("cause.host", cause->host);
  if (IsPlanned(*cause)) return End(round_, std::nullopt, now);
  round_->attributes.emplace_back("exit_code", std::int64_t{ToExitCode(*cause)});
  cause_ = sentence;
  End(round_, sentence, now);
}

void RunTrace::OnStart(const Start& start, TraceTime now) {
  if (round_.has_value() && round_number_ == start.round) return;
  EndRound(nullptr, now);
  const auto number = static_cast<std::int64_t>(ToNumber(start.round));
  if (recovery_.has_value()) recovery_->attributes.emplace_back("round", number);
  End(recovery_, std::nullopt, now);
  round_number_ = start.round;
  cause_.clear();
  round_ = Begin(kRoundSpan, ToNumber(start.round), run_.context.span_id, now);
  round_->attributes = {{"round", number},
                        {"nodes", std::int64_t{start.node_count}},
                        {"world_size", std::int64_t{start.world_size}},
                        {"restarts", std::int64_t{start.restart_count}}};
  if (run_.attributes.empty()) run_.attributes.emplace_back("run", start.run_id);
}

void RunTrace::OnStop(const Stop& stop, TraceTime now) {
  if (!round_.has_value()) return;
  EndRound(&stop.cause, now);
  if (stop.last) return;
  recovery_ = Begin("recovery", ToNumber(round_number_), run_.context.span_id, now);
  recovery_->attributes.emplace_back("reason", ToSentence(stop.cause));
}

void RunTrace::OnFinish(const Verdict& verdict, TraceTime now) {
  EndRound(verdict.cause.has_value() ? &*verdict.cause : nullptr, now);
  if (verdict.cause.has_value()) cause_ = ToSentence(*verdict.cause);
  run_.attributes.emplace_back("restarts", std::int64_t{verdict.restart_count});
  run_.attributes.emplace_back("world_size", std::int64_t{verdict.world_size});
  ForEachClass(verdict.time, [this](TimeClass kind, double seconds) {
    if (seconds > 0)
      run_.attributes.emplace_back(absl::StrCat("rank_seconds.", NameOf(kind)), seconds);
  });
}

void RunTrace::OnProgress(const ProgressMessage& message, TraceTime now) {
  const std::optional<bool> saves = IsSaving(message);
  if (!round_.has_value() || !saves.has_value() || *saves == checkpoint_.has_value()) return;
  if (!*saves) return End(checkpoint_, std::nullopt, now);
  checkpoint_ = Begin(kCheckpoint, ++checkpoints_, round_->context.span_id, now);
  if (message.step.has_value()) checkpoint_->attributes.emplace_back("step", *message.step);
}

void RunTrace::OnEnd(int exit_code, const std::string& text, std::uint64_t lost, TraceTime now) {
  EndRound(nullptr, now);
  End(recovery_, "no round followed", now);
  run_.attributes.emplace_back("exit_code", std::int64_t{exit_code});
  if (lost > 0) run_.attributes.emplace_back("lost_spans", static_cast<std::int64_t>(lost));
  std::optional<std::string> error;
  if (exit_code != 0) error = cause_.empty() ? text.substr(0, text.find('\n')) : cause_;
  std::optional<Span> run = run_;
  End(run, std::move(error), now);
}

std::string OtlpJson(const std::vector<Span>& spans, const TextPairs& resource) {
  Json attributes = Json::array();
  for (const auto& [key, value] : resource)
    attributes.push_back({{"key", key}, {"value", ToJson(value)}});
  Json list = Json::array();
  for (const Span& span : spans) list.push_back(ToJson(span));
  const Json scope{{"name", "ddprun"}, {"version", kSoftwareVersion}};
  Json scopes = Json::array({Json{{"scope", scope}, {"spans", std::move(list)}}});
  Json of_resource{{"resource", {{"attributes", std::move(attributes)}}},
                   {"scopeSpans", std::move(scopes)}};
  return JsonText(Json{{"resourceSpans", Json::array({std::move(of_resource)})}});
}

}  // namespace ddprun
