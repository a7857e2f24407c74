// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/run_event.h"

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/json_text.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/values/collectives.h"

namespace ddprun {
namespace {

using std::chrono::microseconds;

// By NoticeKind.
constexpr std::array kNames = {"node.joined",    "node.returned", "node.away",    "node.lost",
                               "node.left",      "node.drained",  "node.refused", "node.notice",
                               "node.succeeded", "round.started", "round.broken", "restart",
                               "rank.slow",      "rank.normal",   "rank.damaged", "ranks.wait",
                               "fault",          "run.finished"};
static_assert(kNames.size() == static_cast<std::size_t>(NoticeKind::kRunFinished) + 1);

std::string Counted(int count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

}  // namespace

bool IsRoutine(NoticeKind kind) {
  return kind == NoticeKind::kNodeJoined || kind == NoticeKind::kNodeReturned ||
         kind == NoticeKind::kNodeAway || kind == NoticeKind::kNodeSucceeded;
}

std::string SentenceOf(const RunNotice& note) {
  const std::string node = NodeName(note.host, note.node_rank);
  const std::uint64_t round = ToNumber(note.round);
  switch (note.kind) {
    case NoticeKind::kNodeJoined:
      return absl::StrCat("node ", node, " joined");
    case NoticeKind::kNodeSucceeded:
      return absl::StrCat("all workers of node ", node, " succeeded");
    case NoticeKind::kRoundStarted:
      return absl::StrCat("round ", round, " begins: ", Counted(note.world_size, "worker"), " on ",
                          Counted(note.node_count, "node"));
    case NoticeKind::kRoundBroken:
      return absl::StrCat("round ", round, " ends: ", ToSentence(*note.why));
    case NoticeKind::kRestart:
      return absl::StrCat("the next round forms after: ", ToSentence(*note.why));
    case NoticeKind::kNodeAway:
      return absl::StrCat("the connection of node ", node,
                          " ended; its lines come once it is back");
    case NoticeKind::kNodeReturned:
      return absl::StrCat("node ", node, " is back");
    case NoticeKind::kNodeLost:
    case NoticeKind::kNodeLeft:
    case NoticeKind::kNodeDrained:
      return ToSentence(*note.why);
    case NoticeKind::kRunFinished:
      return note.why ? absl::StrCat("the run ends: ", ToSentence(*note.why))
                      : "the run ends: all workers succeeded";
    case NoticeKind::kNodeRefused:
    case NoticeKind::kRankSlow:
    case NoticeKind::kRankNormal:
    case NoticeKind::kRankDamaged:
    case NoticeKind::kRanksWait:
    case NoticeKind::kFault:
    case NoticeKind::kNodeNotice:
      return note.words;
  }
  return "";
}

void AddFailure(const Failure& failure, RunEvent& event) {
  event.fields.emplace_back("reason", ToSentence(failure));
  event.fields.emplace_back("exit_code", std::int64_t{ToExitCode(failure)});
  if (failure.signal > 0) event.fields.emplace_back("signal", std::int64_t{failure.signal});
  if (failure.rank >= 0) event.fields.emplace_back("cause_rank", std::int64_t{failure.rank});
  if (!failure.host.empty()) event.fields.emplace_back("cause_host", failure.host);
  if (std::string where = ToSentence(failure.places); !where.empty())
    event.fields.emplace_back("collectives", std::move(where));
}

RunEvent EventOf(const std::string& run_id, const RunNotice& note) {
  RunEvent event;
  event.event = kNames[static_cast<std::size_t>(note.kind)];
  event.run_id = run_id;
  event.round = note.round;
  event.node_id = note.node_id.value;
  event.host = note.host;
  event.node_rank = note.node_rank;
  event.rank = note.rank;
  event.text = SentenceOf(note);
  if (!note.words.empty()) event.fields.emplace_back("reason", note.words);
  if (note.why) AddFailure(*note.why, event);
  const auto count = [&event](const char* name, int value) {
    event.fields.emplace_back(name, std::int64_t{value});
  };
  if (note.kind == NoticeKind::kRunFinished) {
    event.fields.emplace_back("success", !note.why.has_value());
    if (!note.why) count("exit_code", note.exit_code);
  }
  if (note.kind == NoticeKind::kRoundStarted || note.kind == NoticeKind::kRunFinished) {
    count("nodes", note.node_count);
    count("world_size", note.world_size);
  }
  if (note.node_id.value.empty() && note.words.empty()) count("restarts", note.restart_count);
  return event;
}

std::string ToJsonLine(const RunEvent& event, std::chrono::system_clock::time_point wall,
                       TimePoint steady, std::optional<std::uint64_t> number) {
  nlohmann::ordered_json json;
  if (number.has_value()) json["number"] = *number;
  json["time"] =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::FromChrono(wall), absl::UTCTimeZone());
  json["monotonic"] =
      static_cast<double>(
          std::chrono::duration_cast<microseconds>(steady.time_since_epoch()).count()) /
      1e6;
  json["event"] = event.event;
  json["run"] = event.run_id;
  if (event.round != kNoRound) json["round"] = ToNumber(event.round);
  if (event.node_rank) json["node_rank"] = *event.node_rank;
  if (!event.node_id.empty()) json["node"] = event.node_id;
  if (!event.host.empty()) json["host"] = event.host;
  if (event.rank) json["rank"] = *event.rank;
  for (const auto& [name, value] : event.fields) {
    std::visit([&, &key = name](const auto& plain) { json[key] = plain; }, value);
  }
  if (!event.text.empty()) json["text"] = event.text;
  return JsonText(json) + "\n";
}

}  // namespace ddprun
