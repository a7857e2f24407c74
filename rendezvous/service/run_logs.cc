// SPDX-License-Identifier: Apache-2.0
// Run: its watchers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/peer_limits.h"
#include "rendezvous/service/run.h"

namespace ddprun {
namespace {

LogSubscriptions::Node LogNodeOf(const Member& member) {
  return {member.join.node_id, member.join.host, member.node_rank, member.link};
}

std::vector<LogSubscriptions::Node> LogNodesOf(const RunState& state) {
  std::vector<LogSubscriptions::Node> nodes;
  nodes.reserve(state.members.size());
  for (const auto& entry : state.members) nodes.push_back(LogNodeOf(entry.second));
  return nodes;
}

absl::Status CheckNames(const RunState& state, const std::vector<std::string>& names) {
  const std::vector<LogSubscriptions::Node> nodes = LogNodesOf(state);
  for (const std::string& name : names) {
    const bool found = std::any_of(nodes.begin(), nodes.end(),
                                   [&](const auto& node) { return IsNamed(node, name); });
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

std::string Sentence(const RunNotice& note) {
  const std::string node =
      NameOf({.id = note.node_id, .host = note.host, .rank = note.node_rank, .link = {}});
  switch (note.kind) {
    case NoticeKind::kRoundStarted:
      return absl::StrCat("round ", ToNumber(note.round), " begins: ", note.world_size,
                          note.world_size == 1 ? " worker on " : " workers on ", note.node_count,
                          note.node_count == 1 ? " node" : " nodes");
    case NoticeKind::kRoundBroken:
      return absl::StrCat("round ", ToNumber(note.round), " ends: ", ToSentence(*note.why));
    case NoticeKind::kNodeAway:
      return absl::StrCat("the connection of node ", node,
                          " ended; its lines come once it is back");
    case NoticeKind::kNodeReturned:
      return absl::StrCat("node ", node, " is back");
    case NoticeKind::kNodeLost:
    case NoticeKind::kNodeLeft:
    case NoticeKind::kNodeDrained:
      return ToSentence(*note.why);
    case NoticeKind::kNodeJoined:
    case NoticeKind::kNodeRefused:
    case NoticeKind::kNodeSucceeded:
    case NoticeKind::kRestart:
    case NoticeKind::kRunFinished:
      return "";
  }
  return "";
}

}  // namespace

absl::StatusOr<WatchId> Run::OpenWatch(std::shared_ptr<NewsSink> sink, const RunQuestion& question,
                                       const std::string& from) {
  Afterwards afterwards;
  WatchId id{};
  {
    absl::MutexLock lock(&mutex_);
    if (absl::Status status = CheckNames(membership_, question.nodes); !status.ok()) return status;
    MakeRoomForWatchLocked(question.output, afterwards);
    LogSubscriptions::Effects effects;
    id = subscriptions_.Open(run_id_, question, LogNodesOf(membership_), effects);
    watchers_[id] = {std::move(sink), from, question.output};
    PerformLocked(std::move(effects), afterwards);
    FinishWatchesLocked(afterwards);
  }
  Perform(std::move(afterwards));
  return id;
}

// Watchers must not keep others out for ever.
void Run::MakeRoomForWatchLocked(bool output, Afterwards& afterwards) {
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
  PerformLocked(subscriptions_.Close(ended->first), afterwards);
  afterwards.replaced.push_back(std::move(ended->second.sink));
  watchers_.erase(ended);
}

void Run::CloseWatch(WatchId id) {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    if (watchers_.erase(id) == 0) return;
    PerformLocked(subscriptions_.Close(id), afterwards);
  }
  Perform(std::move(afterwards));
}

std::optional<RunNews> Run::TakeNews(WatchId id, bool& over) {
  Afterwards afterwards;
  LogSubscriptions::Taken taken;
  {
    absl::MutexLock lock(&mutex_);
    taken = subscriptions_.Take(id);
    PerformLocked(std::move(taken.effects), afterwards);
  }
  Perform(std::move(afterwards));
  over = taken.over;
  return std::move(taken.news);
}

void Run::ReceiveLines(LinkId link, LogLines lines) {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    KeepOwnLines(membership_, link, lines);
    PerformLocked(subscriptions_.Receive(link, std::move(lines)), afterwards);
  }
  Perform(std::move(afterwards));
}

void Run::EndWatches() {
  Afterwards afterwards;
  {
    absl::MutexLock lock(&mutex_);
    PerformLocked(subscriptions_.Finish(membership_.verdict), afterwards);
  }
  Perform(std::move(afterwards));
}

void Run::HearNoteLocked(const RunNotice& note, Afterwards& afterwards) {
  if (subscriptions_.empty()) return;
  const auto here = [&](const NodeId& id) {
    mutex_.AssertHeld();
    const auto it = membership_.members.find(id);
    if (it == membership_.members.end() || !it->second.link) return;
    PerformLocked(subscriptions_.Here(LogNodeOf(it->second)), afterwards);
  };
  switch (note.kind) {
    case NoticeKind::kNodeJoined:
    case NoticeKind::kNodeReturned:
      here(note.node_id);
      break;
    case NoticeKind::kNodeAway:
    case NoticeKind::kNodeLost:
    case NoticeKind::kNodeLeft:
    case NoticeKind::kNodeDrained:
      PerformLocked(subscriptions_.Gone(note.node_id), afterwards);
      break;
    case NoticeKind::kRoundStarted:
      for (const auto& entry : membership_.members) here(entry.first);
      break;
    case NoticeKind::kNodeRefused:
    case NoticeKind::kNodeSucceeded:
    case NoticeKind::kRoundBroken:
    case NoticeKind::kRestart:
    case NoticeKind::kRunFinished:
      break;
  }
  const std::string sentence = Sentence(note);
  if (!sentence.empty()) PerformLocked(subscriptions_.Report(sentence), afterwards);
}

// Does nothing the second time.
void Run::FinishWatchesLocked(Afterwards& afterwards) {
  if (subscriptions_.empty() || membership_.phase != RunPhase::kClosed) return;
  PerformLocked(subscriptions_.Finish(membership_.verdict), afterwards);
}

// The set of watches is sent in order with the node's other directives. Acknowledgements need no
// order: only a node that knows that it is in the run gets them.
void Run::PerformLocked(LogSubscriptions::Effects effects, Afterwards& afterwards) {
  for (auto& [link, directive] : effects.directives) {
    const auto it = sessions_.find(link);
    if (it == sessions_.end()) continue;
    ToSession word{it->second, std::move(directive)};
    if (std::holds_alternative<LogsTaken>(*word.directive)) {
      Push(std::move(word), afterwards);
    } else {
      SayLocked(std::move(word), afterwards);
      afterwards.record = last_record_;
    }
  }
  for (const WatchId id : effects.awake) {
    const auto it = watchers_.find(id);
    if (it != watchers_.end()) afterwards.watchers.push_back(it->second.sink);
  }
}

}  // namespace ddprun
