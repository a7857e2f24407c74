// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/log_subscriptions.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"

namespace ddprun {

namespace {

std::string NameOf(const Member& node) { return NodeName(node.join.host, node.node_rank); }

}  // namespace

bool IsNamed(const Member& node, const std::string& name) {
  return (node.node_rank && absl::StrCat(*node.node_rank) == name) || node.join.host == name ||
         node.join.node_id.value == name;
}

// ---- Watchers

WatchId LogSubscriptions::Open(const RunState& run, RunQuestion question,
                               std::vector<std::string> events, Effects& effects) {
  const std::uint64_t id = ++last_id_;
  question.watch.id = id;
  Watch& watch = watches_[id];
  watch.question = std::move(question);
  WatchBegun begun{run.run_id, {}, {}};
  for (const auto& [node_id, node] : run.members) {
    if (!Wants(watch, node)) continue;
    std::vector<std::string>& names = node.link ? begun.nodes : begun.away;
    if (names.size() < kStatusNodesMax) names.push_back(NameOf(node));
  }
  Put(id, watch, {std::move(begun), 0, {}}, effects);
  for (std::string& json : events) PutEvent(id, watch, std::move(json), effects);
  watch.over = watch.question.events && !watch.question.output && !watch.question.watch.follow;
  for (const auto& [node_id, node] : run.members) Notify(node, /*always=*/false, effects);
  EndTails(run, id, watch, effects);
  return WatchId{id};
}

LogSubscriptions::Effects LogSubscriptions::Close(const RunState& run, WatchId id) {
  Effects effects;
  const auto it = watches_.find(static_cast<std::uint64_t>(id));
  if (it == watches_.end()) return effects;
  const Watch closed = std::move(it->second);
  watches_.erase(it);
  for (const auto& [node_id, progress] : closed.progress) {
    const auto node = run.members.find(node_id);
    // A node that has sent everything has dropped the watch by itself.
    const bool goes_on = closed.question.watch.follow || !progress.tail_ended;
    if (node == run.members.end() || progress.told != node->second.link || !goes_on) continue;
    Notify(node->second, /*always=*/true, effects);
  }
  return effects;
}

bool LogSubscriptions::Wants(const Watch& watch, const Member& node) {
  if (!watch.question.output || watch.over) return false;
  const auto it = watch.progress.find(node.join.node_id);
  const bool tail_ended = it != watch.progress.end() && it->second.tail_ended;
  if (tail_ended && !watch.question.watch.follow) return false;
  const std::vector<std::string>& names = watch.question.nodes;
  return names.empty() || std::any_of(names.begin(), names.end(),
                                      [&](const std::string& name) { return IsNamed(node, name); });
}

// Sends all watches of the node, if it does not know one of them on its current link, or if
// `always`.
void LogSubscriptions::Notify(const Member& node, bool always, Effects& effects) {
  if (!node.link) return;
  LogWatches all;
  bool changed = always;
  for (auto& [id, watch] : watches_) {
    if (!Wants(watch, node)) continue;
    Progress& progress = watch.progress[node.join.node_id];
    LogWatch wanted = watch.question.watch;
    wanted.resumed = progress.told.has_value();
    wanted.received = progress.received;
    all.watches.push_back(std::move(wanted));
    changed = changed || progress.told != node.link;
    progress.told = node.link;
  }
  if (changed) effects.directives.emplace_back(*node.link, std::move(all));
}

// ---- Nodes

LogSubscriptions::Effects LogSubscriptions::Update(const RunState& run, const NodeId& id) {
  Effects effects;
  const auto node = run.members.find(id);
  if (node != run.members.end() && node->second.link) {
    Notify(node->second, /*always=*/false, effects);
  } else {
    for (auto& [watch_id, watch] : watches_) EndTails(run, watch_id, watch, effects);
  }
  return effects;
}

LogSubscriptions::Effects LogSubscriptions::Receive(const RunState& run, LinkId link,
                                                    LogLines lines) {
  Effects effects;
  const auto from = run.links.find(link);
  const auto it = watches_.find(lines.watch);
  // The watcher is gone; the node is being notified.
  if (from == run.links.end() || it == watches_.end()) return effects;
  const NodeId& node_id = from->second;
  const Member& node = run.members.at(node_id);
  Watch& watch = it->second;
  Progress& progress = watch.progress[node_id];
  if (lines.number <= progress.received) return effects;  // repeated on another connection
  progress.received = lines.number;
  if (lines.tail_end) progress.tail_ended = true;
  const std::size_t bytes = BytesOf(lines);
  if (watch.over) {
    Acknowledge(run, it->first, node_id, lines.number, effects);
  } else if (watch.bytes + bytes > kWatchBytesMax) {
    progress.dropped += lines.lines.size() + lines.left_out;
    progress.dropped_number = lines.number;
  } else {
    lines.left_out += std::exchange(progress.dropped, 0);
    WorkerLines said{NameOf(node), node.node_rank.value_or(-1), std::move(lines)};
    Put(it->first, watch, {std::move(said), bytes, node_id}, effects);
  }
  EndTails(run, it->first, watch, effects);
  return effects;
}

// ---- News

LogSubscriptions::Effects LogSubscriptions::Report(const std::string& sentence,
                                                   const std::string& json) {
  Effects effects;
  for (auto& [id, watch] : watches_) {
    if (!watch.question.watch.follow || watch.over) continue;
    if (watch.question.events) {
      PutEvent(id, watch, json, effects);
    } else if (!sentence.empty() && watch.bytes + sentence.size() <= kWatchBytesMax) {
      Put(id, watch, {RunWords{sentence}, sentence.size() + kLogLineOverhead, {}}, effects);
    }
  }
  return effects;
}

// Bounded also for a watcher that reads nothing while a run fails repeatedly: events have numbers,
// so that it sees which are missing.
void LogSubscriptions::PutEvent(std::uint64_t id, Watch& watch, std::string json,
                                Effects& effects) {
  const std::size_t bytes = json.size() + kLogLineOverhead;
  if (watch.bytes + bytes <= kWatchBytesMax)
    Put(id, watch, {RunEventLine{std::move(json)}, bytes, {}}, effects);
}

LogSubscriptions::Effects LogSubscriptions::Finish(const std::optional<Verdict>& verdict) {
  Effects effects;
  for (auto& [id, watch] : watches_) {
    if (watch.over) continue;
    if (watch.question.watch.follow) Put(id, watch, {RunOver{verdict}, 0, {}}, effects);
    watch.over = true;
    effects.awake.push_back(WatchId{id});
  }
  return effects;
}

void LogSubscriptions::EndTails(const RunState& run, std::uint64_t id, Watch& watch,
                                Effects& effects) {
  if (watch.tails_ended || watch.over || !watch.question.output) return;
  for (const auto& [node_id, node] : run.members) {
    const auto it = watch.progress.find(node_id);
    const bool ended = it != watch.progress.end() && it->second.tail_ended;
    if (node.link && !ended && Wants(watch, node)) return;
  }
  watch.tails_ended = true;
  Put(id, watch, {TailsEnd{}, 0, {}}, effects);
  watch.over = !watch.question.watch.follow;
}

void LogSubscriptions::Put(std::uint64_t id, Watch& watch, Queued queued, Effects& effects) {
  watch.bytes += queued.bytes;
  watch.queue.push_back(std::move(queued));
  effects.awake.push_back(WatchId{id});
}

LogSubscriptions::Taken LogSubscriptions::Take(const RunState& run, WatchId watch_id) {
  Taken taken;
  const auto id = static_cast<std::uint64_t>(watch_id);
  const auto it = watches_.find(id);
  if (it == watches_.end()) {
    taken.over = true;
    return taken;
  }
  Watch& watch = it->second;
  // The count of dropped lines comes before the last news.
  const bool last = watch.queue.size() == 1 && watch.over;
  if (watch.queue.empty() || last) taken.news = TakeDropped(run, id, watch, taken.effects);
  if (taken.news.has_value()) return taken;
  if (watch.queue.empty()) {
    taken.over = watch.over;
    return taken;
  }
  Queued next = std::move(watch.queue.front());
  watch.queue.pop_front();
  watch.bytes -= next.bytes;
  if (const auto* said = std::get_if<WorkerLines>(&next.news)) {
    Acknowledge(run, id, next.node, said->lines.number, taken.effects);
  }
  taken.news = std::move(next.news);
  return taken;
}

std::optional<RunNews> LogSubscriptions::TakeDropped(const RunState& run, std::uint64_t id,
                                                     Watch& watch, Effects& effects) {
  for (auto& [node_id, progress] : watch.progress) {
    if (progress.dropped == 0) continue;
    const auto it = run.members.find(node_id);
    WorkerLines said;
    said.node = it == run.members.end() ? node_id.value : NameOf(it->second);
    said.lines.watch = id;
    said.lines.number = progress.dropped_number;
    said.lines.left_out = std::exchange(progress.dropped, 0);
    Acknowledge(run, id, node_id, progress.dropped_number, effects);
    return said;
  }
  return std::nullopt;
}

void LogSubscriptions::Acknowledge(const RunState& run, std::uint64_t id, const NodeId& node_id,
                                   std::uint64_t number, Effects& effects) {
  const auto it = run.members.find(node_id);
  if (it == run.members.end() || !it->second.link) return;
  effects.directives.emplace_back(*it->second.link, LogsTaken{id, number});
}

std::size_t LogSubscriptions::BytesOf(const LogLines& lines) {
  std::size_t bytes = kLogLineOverhead;
  for (const LogLine& line : lines.lines) {
    bytes += line.prefix.size() + line.text.size() + kLogLineOverhead;
  }
  return bytes;
}

}  // namespace ddprun
