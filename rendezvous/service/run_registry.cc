// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/run_registry.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

// GetStatus has the rest.
constexpr std::size_t kNamesInSentence = 8;

}  // namespace

absl::Status UnknownRun(absl::string_view run_id) {
  return absl::NotFoundError(
      absl::StrCat("the rendezvous service knows no run '", run_id, "'; it may be over"));
}

RunRegistry::RunRegistry(std::optional<std::string> default_run_id,
                         std::unique_ptr<ServiceJournal> journal, RunWatcher* watcher)
    : default_run_id_(std::move(default_run_id)),
      journal_(std::move(journal)),
      watcher_(watcher),
      timer_([this](TimePoint now) { return Tick(now); }) {
  if (journal_ == nullptr) return;
  const TimePoint now = std::chrono::steady_clock::now();
  {
    absl::MutexLock lock(&mutex_);
    for (auto& [number, replayed] : journal_->TakeRuns()) {
      auto run = std::make_shared<Run>(
          number, std::move(replayed), [this](TimePoint deadline) { timer_.Arm(deadline); },
          *journal_, now, watcher_);
      runs_.insert_or_assign(run->run_id(), std::move(run));
    }
  }
  timer_.Arm(now);
}

absl::StatusOr<RunRegistry::Place> RunRegistry::Admit(const Join& join,
                                                      std::shared_ptr<DirectiveSink> sink,
                                                      const std::string& peer, TimePoint now) {
  const std::string& run_id = join.run_id;
  if (run_id.empty() && !default_run_id_) {
    return absl::InvalidArgumentError(
        "this rendezvous service has no default run, and the node named none; start all nodes with "
        "the same "
        "--rdzv-id NAME");
  }
  const std::string& name = run_id.empty() ? *default_run_id_ : run_id;
  absl::MutexLock lock(&mutex_);
  if (const auto it = runs_.find(name); it != runs_.end()) {
    if (const auto link = it->second->Admit(sink, join.resume)) return Place{it->second, *link};
  } else if (absl::Status status = MakeRoomFor(peer, now); !status.ok()) {
    return status;
  }
  if (const auto it = runs_.find(name); it != runs_.end()) {
    const std::shared_ptr<Run> over = it->second;
    Forget(over);
    if (!over->ending().is_drained) replaced_.push_back(over);
  }
  auto run = std::make_shared<Run>(
      name, [this](TimePoint deadline) { timer_.Arm(deadline); }, journal_.get(), watcher_, peer);
  runs_.emplace(name, run);
  const auto link = run->Admit(std::move(sink), join.resume);
  return Place{std::move(run), *link};
}

void RunRegistry::Refused(const std::string& address, const absl::Status& why) {
  if (watcher_ == nullptr) return;
  RunNotice note;
  note.kind = NoticeKind::kNodeRefused;
  note.host = address;
  note.words = address.empty() ? std::string(why.message())
                               : absl::StrCat(why.message(), " (it is at ", address, ")");
  watcher_->OnNotice("", note);
}

// A run without a connected node keeps its place until another run needs it.
absl::Status RunRegistry::MakeRoomFor(const std::string& peer, TimePoint now) {
  const auto is_peers = [&peer](const Run& run) { return !peer.empty() && run.begun_by() == peer; };
  const auto of_peer = static_cast<std::size_t>(std::count_if(
      runs_.begin(), runs_.end(), [&](const auto& entry) { return is_peers(*entry.second); }));
  const bool peer_has_all = of_peer >= kRunsPerPeerMax;
  if (!peer_has_all && runs_.size() < kRunsMax) return absl::OkStatus();
  std::shared_ptr<Run> longest;
  TimePoint since = now - kDesertedRunTimeout;
  for (const auto& entry : runs_) {
    if (peer_has_all && !is_peers(*entry.second)) continue;
    const auto deserted = entry.second->ending().deserted;
    if (!deserted || *deserted > since) continue;
    longest = entry.second;
    since = *deserted;
  }
  if (longest == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "this rendezvous service has ", peer_has_all ? of_peer : runs_.size(), " runs",
        peer_has_all ? " that were begun from the same address or with the same certificate" : "",
        ", its limit; wait for one to end or start another service"));
  }
  longest->GiveUp("no node of the run was connected, and another run needed its place", now);
  Forget(longest);
  return absl::OkStatus();
}

void RunRegistry::Closed(const Place& place) {
  absl::MutexLock lock(&mutex_);
  place.run->Closed(place.link);
  ForgetIfDrained(place.run);
}

absl::Status RunRegistry::Lost(const LossReport& report, TimePoint now) {
  const std::shared_ptr<Run> run = Find(report.run_id);
  if (run == nullptr || !run->Lost(report.node_id, report.reason, now)) {
    return absl::NotFoundError(absl::StrCat("the rendezvous service knows no node '",
                                            report.node_id.value, "' of run '", report.run_id,
                                            "'; it is lost or the run is over already"));
  }
  absl::MutexLock lock(&mutex_);
  ForgetIfDrained(run);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RunStatus>> RunRegistry::Status(const std::string& run_id, TimePoint now,
                                                           bool with_ranks) {
  std::vector<std::shared_ptr<Run>> runs;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [name, run] : runs_) {
      if (run_id.empty() || name == run_id) runs.push_back(run);
    }
  }
  if (runs.empty() && !run_id.empty()) return UnknownRun(run_id);
  std::sort(runs.begin(), runs.end(),
            [](const auto& a, const auto& b) { return a->run_id() < b->run_id(); });
  std::vector<RunStatus> found;
  std::size_t nodes_left = kStatusNodesMax;
  std::size_t ranks_left = with_ranks ? kStatusRanksMax : 0;
  for (const auto& run : runs) {
    found.push_back(run->Status(now, nodes_left, ranks_left));
    nodes_left -= found.back().nodes.size();
    for (const NodeStatus& node : found.back().nodes) ranks_left -= node.rank_reports.size();
  }
  return found;
}

absl::StatusOr<std::shared_ptr<Run>> RunRegistry::FindForOperator(const std::string& run_id) {
  absl::MutexLock lock(&mutex_);
  if (run_id.empty() && runs_.size() == 1) return runs_.begin()->second;
  const auto it = runs_.find(run_id);
  if (it != runs_.end()) return it->second;
  if (!run_id.empty()) return UnknownRun(run_id);
  if (runs_.empty()) {
    return absl::NotFoundError("the rendezvous service has no run; it may be over");
  }
  std::vector<std::string> names;
  names.reserve(runs_.size());
  for (const auto& entry : runs_) names.push_back(entry.first);
  std::sort(names.begin(), names.end());
  names.resize(std::min(names.size(), kNamesInSentence));
  return absl::InvalidArgumentError(
      absl::StrCat("the rendezvous service has ", runs_.size(),
                   " runs; name one of them with --rdzv-id: ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<std::string> RunRegistry::Stop(const std::string& run_id, const StopRequest& request,
                                              TimePoint now) {
  const auto run = FindForOperator(run_id);
  if (!run.ok()) return run.status();
  auto sentence = (*run)->Stop(request, now);
  absl::MutexLock lock(&mutex_);
  ForgetIfDrained(*run);
  return sentence;
}

absl::StatusOr<std::string> RunRegistry::Drain(const std::string& run_id,
                                               const DrainRequest& request, TimePoint now) {
  const auto run = FindForOperator(run_id);
  if (!run.ok()) return run.status();
  auto sentence = (*run)->Drain(request, now);
  // A node that is away has no stream whose end would do this.
  absl::MutexLock lock(&mutex_);
  ForgetIfDrained(*run);
  return sentence;
}

std::shared_ptr<Run> RunRegistry::Find(const std::string& run_id) {
  absl::MutexLock lock(&mutex_);
  const auto it = runs_.find(run_id.empty() && default_run_id_ ? *default_run_id_ : run_id);
  return it == runs_.end() ? nullptr : it->second;
}

void RunRegistry::WaitUntilDrained(std::chrono::milliseconds timeout) {
  const absl::Time deadline = absl::Now() + absl::FromChrono(timeout);
  absl::MutexLock lock(&mutex_);
  while (AnyEnding()) {
    if (run_removed_.WaitWithDeadline(&mutex_, deadline)) return;
  }
}

std::optional<TimePoint> RunRegistry::Tick(TimePoint now) {
  std::vector<std::shared_ptr<Run>> runs;
  {
    absl::MutexLock lock(&mutex_);
    runs = replaced_;
    for (const auto& entry : runs_) runs.push_back(entry.second);
  }
  std::optional<TimePoint> next;
  for (const auto& run : runs) next = Earliest({next, run->Tick(now)});
  // Members that never came back for their verdict have just been removed.
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& run : runs) ForgetIfDrained(run);
  }
  if (journal_ != nullptr && journal_->WantsSnapshot()) TakeSnapshot();
  return next;
}

void RunRegistry::ForgetIfDrained(const std::shared_ptr<Run>& run) {
  if (!run->ending().is_drained) return;
  if (std::erase(replaced_, run) > 0) run_removed_.SignalAll();
  const auto it = runs_.find(run->run_id());
  if (it != runs_.end() && it->second == run) Forget(run);
}

void RunRegistry::Forget(const std::shared_ptr<Run>& run) {
  run->Forget();
  runs_.erase(run->run_id());
  run_removed_.SignalAll();
}

// The analysis does not follow the locks of a list. No other thread holds two runs' locks.
void RunRegistry::TakeSnapshot() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> parts;
  for (const auto& entry : runs_) entry.second->snapshot_mutex().Lock();
  for (const auto& entry : runs_) entry.second->AddParts(parts);
  journal_->Snapshot(std::move(parts));
  for (const auto& entry : runs_) entry.second->snapshot_mutex().Unlock();
}

bool RunRegistry::AnyEnding() {
  return !replaced_.empty() || std::any_of(runs_.begin(), runs_.end(), [](const auto& entry) {
    return entry.second->ending().is_ending;
  });
}

}  // namespace ddprun
