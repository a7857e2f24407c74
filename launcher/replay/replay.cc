// SPDX-License-Identifier: Apache-2.0
#include "launcher/replay/replay.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/supervisor/verdict.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/journal/journal_replay.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/observe/run_event.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

// One run, step by step.
class Replay {
 public:
  explicit Replay(TimePoint begin) : begin_(begin) {}

  void OnStep(const RunState& after, const MembershipEvent& event, TimePoint now,
              const std::vector<MembershipEffect>& effects) {
    after_ = &after;
    if (const auto* reported = std::get_if<NodeReported>(&event)) Reported(*reported, now);
    for (const MembershipEffect& effect : effects) {
      if (const auto* note = std::get_if<RunNotice>(&effect)) {
        const bool of_run = note->node_id.value.empty() && !note->rank.has_value();
        Add(now, SentenceOf(*note), note->node_id, of_run);
      }
      const auto* send = std::get_if<SendDirective>(&effect);
      const auto* finish = send == nullptr ? nullptr : std::get_if<Finish>(&send->directive);
      if (finish != nullptr) result_.verdict = finish->verdict;
    }
    if (after.verdict.has_value()) result_.verdict = after.verdict;
    // A node that is lost has its ranks until here.
    ranks_.clear();
    for (const auto& [id, member] : after.members) {
      if (member.phase == MemberPhase::kWaiting) continue;
      std::vector<int>& ranks = ranks_[id];
      for (int i = 0; i < member.join.local_world_size; ++i) ranks.push_back(member.rank_first + i);
    }
  }

  Replayed Take(const RunState* state, TimePoint now) && {
    if (state != nullptr) result_.status = StatusOf(*state, now, kStatusNodesMax, progress_);
    result_.length = now - begin_;
    return std::move(result_);
  }

 private:
  void Reported(const NodeReported& reported, TimePoint now) {
    const auto link = after_->links.find(reported.link);
    if (link == after_->links.end()) return;
    const Member& member = after_->members.at(link->second);
    if (const auto* heartbeat = std::get_if<Heartbeat>(&reported.report)) {
      TakeProgress(*after_, reported.link, *heartbeat, now, progress_);
    } else if (const auto* failed = std::get_if<WorkerFailed>(&reported.report)) {
      Add(now,
          absl::StrCat("node ", NodeName(member.join.host, member.node_rank),
                       " reports: ", ToSentence(failed->failure)),
          link->second, false);
    }
  }

  void Add(TimePoint now, std::string text, const NodeId& node, bool of_run) {
    const auto ranks = ranks_.find(node);
    result_.lines.push_back({now - begin_, std::move(text),
                             ranks == ranks_.end() ? std::vector<int>() : ranks->second, of_run});
  }

  const TimePoint begin_;
  const RunState* after_ = nullptr;
  std::map<NodeId, std::vector<int>> ranks_;  // before the step
  ReportedProgresses progress_;
  Replayed result_;
};

// The first member that differs, among those that the nodes agree on.
std::string FirstDifference(const Json& recorded, const Json& replayed, const std::string& path) {
  if (!recorded.is_object() || !replayed.is_object()) {
    if (recorded == replayed) return "";
    return absl::StrCat(path, " is ", recorded.dump(), " in the record and ", replayed.dump(),
                        " in the replay");
  }
  for (const auto& [name, value] : recorded.items()) {
    const auto other = replayed.find(name);
    if (other == replayed.end()) continue;  // of another version
    std::string found = FirstDifference(value, *other, path.empty() ? name : path + "." + name);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

absl::StatusOr<Replayed> ReplaySteps(std::vector<JournalRecord> records,
                                     std::optional<Duration> until) {
  if (records.empty()) return absl::DataLossError("its steps are not recorded");
  const TimePoint begin = records.front().now;
  Replay replay(begin);
  const RunState* state = nullptr;
  JournalReplayer replayer([&](const RunState& after, const MembershipEvent& event, TimePoint now,
                               const std::vector<MembershipEffect>& effects) {
    state = &after;
    replay.OnStep(after, event, now, effects);
  });
  bool is_whole = true;
  TimePoint now = begin;
  for (JournalRecord& record : records) {
    if (until && record.now - begin > *until) {
      now = begin + *until;
      break;
    }
    now = record.now;
    // The states before the first step, and where the record went on after a loss.
    const auto* snapshot = std::get_if<RunSnapshot>(&record.what);
    if (snapshot != nullptr && state == nullptr) is_whole = snapshot->state.members.empty();
    if (absl::Status applied = replayer.Apply(std::move(record)); !applied.ok()) return applied;
  }
  Replayed result = std::move(replay).Take(state, now);
  result.is_whole = is_whole;
  return result;
}

std::string WhereTheyPart(const Json& recorded, const Verdict& replayed) {
  Json other = Json::parse(VerdictJson({.exit_code = replayed.exit_code, .verdict = replayed}));
  // Of the node that wrote it; and what heartbeats count, which is not recorded.
  for (const char* name : {"run_id", "reported_by", "exit_code", "rank_seconds", "text"})
    other.erase(name);
  return FirstDifference(recorded, other, "");
}

std::string LinesText(const std::vector<ReplayLine>& lines, std::optional<int> rank) {
  std::string text;
  for (const ReplayLine& line : lines) {
    const bool about = !rank.has_value() || line.of_run ||
                       std::find(line.ranks.begin(), line.ranks.end(), *rank) != line.ranks.end();
    if (!about) continue;
    absl::StrAppendFormat(&text, "%+10.3f s  %s\n", std::chrono::duration<double>(line.at).count(),
                          line.text);
  }
  return text;
}

}  // namespace ddprun
