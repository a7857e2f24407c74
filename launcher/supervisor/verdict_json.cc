// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/verdict.h"

#include <nlohmann/json.hpp>

#include "absl/strings/strip.h"
#include "proto/json_text.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

Json KnownOrNull(std::int64_t number) { return number < 0 ? Json(nullptr) : Json(number); }

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

const char* NameOf(EndKind kind) {
  switch (kind) {
    case EndKind::kExited:
      return "exited";
    case EndKind::kSignaled:
      return "signaled";
    case EndKind::kNotStarted:
      return "not_started";
    case EndKind::kLost:
      return "lost";
    case EndKind::kStopped:
      return "stopped";
    case EndKind::kSucceeded:
      return "succeeded";
  }
  return "";
}

Json ToJson(const OomKill& oom) {
  return {{"used_bytes", oom.used_bytes > 0 ? Json(oom.used_bytes) : Json(nullptr)},
          {"limit_bytes", oom.limit_bytes > 0 ? Json(oom.limit_bytes) : Json(nullptr)},
          {"limit_of", oom.of_cgroup ? "cgroup" : "machine"}};
}

const char* NameOf(HangKind kind) {
  switch (kind) {
    case HangKind::kNoProgress:
      return "progress";
    case HangKind::kNoStart:
      return "start";
    case HangKind::kNoOutput:
      return "output";
  }
  return "";
}

Json ToJson(const Hang& hang) {
  return {{"no", NameOf(hang.kind)},
          {"silent_seconds", static_cast<double>(hang.silent.count()) / 1000.0},
          {"step", KnownOrNull(hang.step)},
          {"section", TextOrNull(hang.section)},
          {"others_step", KnownOrNull(hang.others_step)},
          {"stack", hang.stack}};
}

Json ToJson(const Collective& collective) {
  return {{"group", TextOrNull(collective.group)},
          {"number", collective.number > 0 ? Json(collective.number) : Json(nullptr)},
          {"name", TextOrNull(collective.name)},
          {"bytes", KnownOrNull(collective.bytes)},
          {"dtype", TextOrNull(collective.dtype)}};
}

Json ToJson(const std::vector<RanksInPlace>& places) {
  Json list = Json::array();
  for (const RanksInPlace& entry : places) {
    Json ranges = Json::array();
    for (const RankRange& range : entry.ranks) ranges.push_back({range.first, range.last});
    Json last = Json::array();
    for (const Collective& collective : entry.place.last) last.push_back(ToJson(collective));
    list.push_back({{"ranks", std::move(ranges)},
                    {"waits", entry.place.waits ? ToJson(*entry.place.waits) : Json(nullptr)},
                    {"last", std::move(last)}});
  }
  return {{"sentence", TextOrNull(ToSentence(places))}, {"places", std::move(list)}};
}

Json ToJson(const Failure& failure) {
  return {{"kind", CodeName(failure.kind)},
          {"sentence", ToSentence(failure)},
          {"rank", KnownOrNull(failure.rank)},
          {"local_rank", KnownOrNull(failure.local_rank)},
          {"role", TextOrNull(failure.role)},
          {"role_rank", failure.role.empty() ? Json(nullptr) : Json(failure.role_rank)},
          {"node_rank", KnownOrNull(failure.node_rank)},
          {"host", TextOrNull(failure.host)},
          {"pid", failure.pid > 0 ? Json(failure.pid) : Json(nullptr)},
          {"age_seconds", static_cast<double>(failure.age.count()) / 1000.0},
          {"exit_code", ToExitCode(failure)},
          {"signal", failure.signal > 0 ? Json(SignalName(failure.signal)) : Json(nullptr)},
          {"oom", failure.oom.has_value() ? ToJson(*failure.oom) : Json(nullptr)},
          {"core", TextOrNull(failure.core_file)},
          {"advice", TextOrNull(failure.advice)},
          {"message", TextOrNull(failure.message)},
          {"traceback", TextOrNull(failure.traceback)},
          {"last_lines", failure.last_lines},
          {"hang", failure.hang.has_value() ? ToJson(*failure.hang) : Json(nullptr)},
          {"collectives", failure.places.empty() ? Json(nullptr) : ToJson(failure.places)}};
}

Json ToJson(const RankTime& time) {
  Json json = Json::object();
  ForEachClass(time, [&json](TimeClass kind, double seconds) { json[NameOf(kind)] = seconds; });
  return json;
}

Json ToJson(const WorkerOutcomes& outcomes) {
  Json ranges = Json::array();
  for (const RankRange& range : outcomes.ranges) ranges.push_back({range.first, range.last});
  const bool by_code = outcomes.kind == EndKind::kExited || outcomes.kind == EndKind::kNotStarted;
  return {{"how", NameOf(outcomes.kind)},
          {"exit_code", by_code && outcomes.code >= 0 ? Json(outcomes.code) : Json(nullptr)},
          {"signal",
           outcomes.kind == EndKind::kSignaled ? Json(SignalName(outcomes.code)) : Json(nullptr)},
          {"count", outcomes.count},
          {"ranks", std::move(ranges)},
          {"hosts", outcomes.hosts},
          {"sentence", RanksOf(outcomes) + " " + WayOf(outcomes)}};
}

}  // namespace

std::string VerdictJson(const RunEnd& end) {
  Json json = {{"success", end.exit_code == 0},
               {"exit_code", end.exit_code},
               {"run_id", TextOrNull(end.run_id)},
               {"reported_by", end.host}};
  Json cause = nullptr;
  Json others = Json::array();
  if (end.verdict.has_value()) {
    const Verdict& verdict = *end.verdict;
    json["round"] = verdict.round == kNoRound ? Json(nullptr) : Json(ToNumber(verdict.round));
    json["restarts_used"] = verdict.restart_count;
    json["restarts_max"] = verdict.restarts_max;
    json["restarts_forgiven"] = verdict.restarts_forgiven;
    json["not_restarted"] = TextOrNull(verdict.not_restarted);
    json["world_size"] = verdict.world_size;
    json["node_count"] = verdict.node_count;
    if (verdict.time.Sum().count() > 0) json["rank_seconds"] = ToJson(verdict.time);
    if (verdict.cause.has_value()) cause = ToJson(*verdict.cause);
    for (const WorkerOutcomes& way : verdict.outcomes) others.push_back(ToJson(way));
  }
  json["cause"] = std::move(cause);
  json["others"] = std::move(others);
  json["text"] = std::string(absl::StripSuffix(end.text, "\n"));
  return JsonText(json);
}

}  // namespace ddprun
