// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/run_watches.h"

#include <algorithm>

#include "rendezvous/base/limits.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/observe/run_event.h"

namespace ddprun {
namespace {

absl::Status CheckNames(const RunState& state, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const bool found = std::any_of(state.members.begin(), state.members.end(),
                                   [&](const auto& entry) { return IsNamed(entry.second, name); });
    if (!found) return NoSuchNode(state, name);
  }
  return absl::OkStatus();
}

// A node may send lines of its own ranks only. Its ranks in earlier rounds are no longer known.
void KeepOwnLines(const RunState& state, LinkId link, LogLines& lines) {
  const auto id = state.links.find(link);
  if (id == state.links.end()) return;
  const Member& member = state.members.at(id->second);
  const int first = member.rank_first;
  const int last = first + member.join.local_world_size - 1;
  std::erase_if(lines.lines, [&](const LogLine& line) {
    if (line.round != ToNumber(state.round) || member.phase == MemberPhase::kWaiting) return false;
    return line.rank < first || line.rank > last;
  });
}

// Among lines of output; empty: not of interest there, or said in other words.
std::string SentenceForLogs(const RunNotice& note) {
  switch (note.kind) {
    case NoticeKind::kNodeJoined:
    case NoticeKind::kNodeRefused:
    case NoticeKind::kNodeSucceeded:
    case NoticeKind::kRestart:
    case NoticeKind::kRunFinished:
      return "";
    default:
      return SentenceOf(note);
  }
}

}  // namespace

absl::StatusOr<WatchId> RunWatches::Open(const RunState& run, std::shared_ptr<NewsSink> sink,
                                         const RunQuestion& question, const std::string& from,
                                         Effects& effects) {
  if (absl::Status status = CheckNames(run, question.nodes); !status.ok()) return status;
  MakeRoom(run, question.output, effects);
  LogSubscriptions::Effects opened;
  const WatchId id = subscriptions_.Open(
      run, question, question.events ? history_.Lines() : std::vector<std::string>(), opened);
  watchers_[id] = {std::move(sink), from, question.output};
  Add(std::move(opened), effects);
  if (run.phase == RunPhase::kClosed) Add(subscriptions_.Finish(run.verdict), effects);
  return id;
}

// Watchers must not keep others out for ever.
void RunWatches::MakeRoom(const RunState& run, bool output, Effects& effects) {
  std::map<std::string, int> of_address;
  std::size_t count = 0;
  for (const auto& entry : watchers_) {
    if (entry.second.output != output) continue;
    ++of_address[entry.second.from];
    ++count;
  }
  if (count < (output ? kWatchesMax : kQuietWatchesMax)) return;
  auto ended = watchers_.end();
  for (auto it = watchers_.begin(); it != watchers_.end(); ++it) {  // the oldest first
    if (it->second.output != output) continue;
    if (ended == watchers_.end() || of_address[it->second.from] > of_address[ended->second.from]) {
      ended = it;
    }
  }
  Add(subscriptions_.Close(run, ended->first), effects);
  effects.replaced.push_back(std::move(ended->second.sink));
  watchers_.erase(ended);
}

RunWatches::Effects RunWatches::Close(const RunState& run, WatchId id) {
  Effects effects;
  if (watchers_.erase(id) != 0) Add(subscriptions_.Close(run, id), effects);
  return effects;
}

std::optional<RunNews> RunWatches::Take(const RunState& run, WatchId id, bool& over,
                                        Effects& effects) {
  LogSubscriptions::Taken taken = subscriptions_.Take(run, id);
  Add(std::move(taken.effects), effects);
  over = taken.over;
  return std::move(taken.news);
}

RunWatches::Effects RunWatches::Receive(const RunState& run, LinkId link, LogLines lines) {
  Effects effects;
  KeepOwnLines(run, link, lines);
  Add(subscriptions_.Receive(run, link, std::move(lines)), effects);
  return effects;
}

RunWatches::Effects RunWatches::Hear(const RunState& run, const RunNotice& note, EventTime time) {
  Effects effects;
  history_.Add(run.run_id, note, time);
  if (subscriptions_.empty()) return effects;
  if (!note.node_id.value.empty()) Add(subscriptions_.Update(run, note.node_id), effects);
  if (note.kind == NoticeKind::kRoundStarted) {
    for (const auto& entry : run.members) Add(subscriptions_.Update(run, entry.first), effects);
  }
  Add(subscriptions_.Report(SentenceForLogs(note), history_.newest()), effects);
  return effects;
}

RunWatches::Effects RunWatches::Finish(const RunState& run) {
  Effects effects;
  if (!subscriptions_.empty()) Add(subscriptions_.Finish(run.verdict), effects);
  return effects;
}

void RunWatches::Add(LogSubscriptions::Effects from, Effects& effects) {
  for (auto& [link, directive] : from.directives)
    effects.directives.push_back({link, std::move(directive)});
  for (const WatchId id : from.awake) {
    const auto it = watchers_.find(id);
    if (it != watchers_.end()) effects.awake.push_back(it->second.sink);
  }
}

}  // namespace ddprun
