// SPDX-License-Identifier: Apache-2.0
// Run: its watchers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/service/run.h"

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

std::string Sentence(const RunNotice& note) {
  const std::string node = NodeName(note.host, note.node_rank);
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
    case NoticeKind::kRankSlow:
    case NoticeKind::kRankNormal:
    case NoticeKind::kRankDamaged:
    case NoticeKind::kRanksWait:
    case NoticeKind::kFault:
    case NoticeKind::kNodeNotice:
      return note.words;
    default:  // not of interest, or told in other words
      return "";
  }
}

}  // namespace

absl::StatusOr<WatchId> Run::OpenWatch(std::shared_ptr<NewsSink> sink, const RunQuestion& question,
                                       const std::string& from) {
  Action action(*this);
  if (absl::Status status = CheckNames(membership_, question.nodes); !status.ok()) return status;
  MakeRoomForWatchLocked(question.output, action.afterwards);
  LogSubscriptions::Effects effects;
  const WatchId id = subscriptions_.Open(membership_, question, effects);
  watchers_[id] = {std::move(sink), from, question.output};
  PerformLocked(std::move(effects), action.afterwards);
  FinishWatchesLocked(action.afterwards);
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
  PerformLocked(subscriptions_.Close(membership_, ended->first), afterwards);
  afterwards.replaced.push_back(std::move(ended->second.sink));
  watchers_.erase(ended);
}

void Run::CloseWatch(WatchId id) {
  Action action(*this);
  if (watchers_.erase(id) == 0) return;
  PerformLocked(subscriptions_.Close(membership_, id), action.afterwards);
}

std::optional<RunNews> Run::TakeNews(WatchId id, bool& over) {
  Action action(*this);
  LogSubscriptions::Taken taken = subscriptions_.Take(membership_, id);
  PerformLocked(std::move(taken.effects), action.afterwards);
  over = taken.over;
  return std::move(taken.news);
}

void Run::ReceiveLines(LinkId link, LogLines lines) {
  Action action(*this);
  KeepOwnLines(membership_, link, lines);
  PerformLocked(subscriptions_.Receive(membership_, link, std::move(lines)), action.afterwards);
}

void Run::EndWatches() {
  Action action(*this);
  PerformLocked(subscriptions_.Finish(membership_.verdict), action.afterwards);
}

void Run::HearNoteLocked(const RunNotice& note, Afterwards& afterwards) {
  if (subscriptions_.empty()) return;
  if (!note.node_id.value.empty()) {
    PerformLocked(subscriptions_.Update(membership_, note.node_id), afterwards);
  }
  if (note.kind == NoticeKind::kRoundStarted) {
    for (const auto& entry : membership_.members) {
      PerformLocked(subscriptions_.Update(membership_, entry.first), afterwards);
    }
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
    if (it != watchers_.end()) afterwards.flushes.push_back(it->second.sink);
  }
}

}  // namespace ddprun
