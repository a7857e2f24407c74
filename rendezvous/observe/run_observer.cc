// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/observe/run_observer.h"

#include <algorithm>
#include <chrono>

#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

void Count(const RunNotice& note, TimePoint now, RunCounters& counters) {
  switch (note.kind) {
    case NoticeKind::kNodeJoined:
      ++counters.nodes_joined;
      if (counters.forming == TimePoint{}) counters.forming = now;
      return;
    case NoticeKind::kNodeLost:
      ++counters.nodes_lost;
      return;
    case NoticeKind::kNodeDrained:
      ++counters.nodes_drained;
      return;
    case NoticeKind::kNodeNotice:
      ++counters.notices;
      return;
    case NoticeKind::kRoundStarted:
      ++counters.rounds;
      ++counters.rendezvous_count;
      counters.rendezvous_seconds += std::chrono::duration<double>(now - counters.forming).count();
      return;
    case NoticeKind::kRoundBroken:
      ++counters.failures[CodeName(note.why->kind)];
      if (note.why->rank >= 0) ++counters.worker_exits[ToExitCode(*note.why)];
      return;
    case NoticeKind::kRestart:
      counters.forming = now;
      if (note.why->kind != FailureKind::kNodeDrained) ++counters.restarts;
      return;
    case NoticeKind::kRunFinished:
      ++counters.finished;
      counters.forming = TimePoint{};
      return;
    default:
      return;
  }
}

}  // namespace

void RunObserver::OnNotice(const std::string& run_id, const RunNotice& note) {
  if (sink_ != nullptr) sink_(EventOf(run_id, note));
  if (run_id.empty()) return;  // of no run
  const TimePoint now = std::chrono::steady_clock::now();
  absl::MutexLock lock(&mutex_);
  Count(note, now, CountersOf(run_id, now));
}

void RunObserver::OnStoreOperations(const std::string& run_id, std::size_t count) {
  absl::MutexLock lock(&mutex_);
  CountersOf(run_id, std::chrono::steady_clock::now()).store_operations += count;
}

RunCounters& RunObserver::CountersOf(const std::string& run_id, TimePoint now) {
  const auto [it, is_new] = counters_.try_emplace(run_id);
  it->second.last_seen = now;
  if (is_new && counters_.size() > kCountedRunsMax) {
    counters_.erase(std::min_element(
        counters_.begin(), counters_.end(),
        [](const auto& a, const auto& b) { return a.second.last_seen < b.second.last_seen; }));
  }
  return it->second;
}

std::map<std::string, RunCounters> RunObserver::Counters() {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

}  // namespace ddprun
