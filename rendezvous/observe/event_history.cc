// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/event_history.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/limits.h"
#include "rendezvous/observe/run_event.h"

namespace ddprun {
namespace {

std::string LineOf(const std::string& run_id, const RunNotice& note, EventTime time,
                   std::uint64_t number) {
  std::string line = ToJsonLine(EventOf(run_id, note), time.wall, time.steady, number);
  line.pop_back();  // its line end
  return line;
}

}  // namespace

std::string EventHistory::Kept::Line(const std::string& run_id) const {
  return line.empty() ? LineOf(run_id, note, time, number) : line;
}

void EventHistory::Add(const std::string& run_id, const RunNotice& note, EventTime time) {
  run_id_ = run_id;
  const bool routine = IsRoutine(note.kind);
  std::deque<Kept>& kept = routine ? routine_ : others_;
  Kept added{.number = ++last_number_, .time = time, .note = {}, .line = ""};
  if (routine) {
    added.note = note;
  } else {
    added.line = LineOf(run_id, note, time, added.number);
  }
  kept.push_back(std::move(added));
  if (kept.size() > (routine ? kRoutineHistoryMax : kEventHistoryMax)) kept.pop_front();
}

std::vector<std::string> EventHistory::Lines() const {
  std::vector<const Kept*> all;
  for (const std::deque<Kept>* kept : {&routine_, &others_}) {
    for (const Kept& one : *kept) all.push_back(&one);
  }
  std::sort(all.begin(), all.end(),
            [](const Kept* a, const Kept* b) { return a->number < b->number; });
  std::vector<std::string> lines;
  lines.reserve(all.size());
  for (const Kept* one : all) lines.push_back(one->Line(run_id_));
  return lines;
}

std::string EventHistory::newest() const {
  const bool routine =
      others_.empty() || (!routine_.empty() && routine_.back().number > others_.back().number);
  return (routine ? routine_ : others_).back().Line(run_id_);
}

}  // namespace ddprun
