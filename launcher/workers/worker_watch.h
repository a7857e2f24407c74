// SPDX-License-Identifier: Apache-2.0
// Watches the workers that are alive: receives their progress, reports it to the service, and when
// one hangs (hang_watch) reads the stacks of all before they are stopped.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "launcher/base/poller.h"
#include "launcher/hang/hang_watch.h"
#include "launcher/hang/late_workers.h"
#include "launcher/hang/rank_ledger.h"
#include "launcher/hang/stacks.h"
#include "launcher/options/options.h"
#include "launcher/output/console.h"
#include "launcher/supervisor/supervisor.h"
#include "launcher/workers/workers.h"

namespace ddprun {

class WorkerWatch {
 public:
  WorkerWatch(HangOptions options, Workers& workers, Poller& poller, Console& console)
      : options_(options),
        watch_(workers.hang_watch()),
        workers_(workers),
        poller_(poller),
        console_(console) {}

  // The workers of this round have been started.
  void Begin(const Start& start, TimePoint now);

  void OnProgress(int worker, const ProgressMessage& message, TimePoint now);
  void OnOutput(int worker, TimePoint now);

  // Where this node's workers were when the round broke, or they had all ended: workers of other
  // nodes may wait for them.
  std::vector<RanksInPlace> TakePlaces() { return std::exchange(places_, {}); }
  // Before the supervisor's step.
  void OnEvent(const Event& event, TimePoint now);

  // The supervisor's ExamineWorkers: reads the stacks of workers that have made no progress for at
  // least half of `silent`, if there is one, and the flight recorders of those that report nothing,
  // and appends WorkerHung and StacksRead to the events of this or a later turn. Half: a node that
  // learns of the hang a moment later still finds its own.
  void Examine(std::chrono::milliseconds silent, TimePoint now, std::vector<Event>& events);

  // Hangs are looked for only while the round runs.
  std::optional<TimePoint> NextDeadline(bool round_runs) const;
  // Also when Source::kStacks is ready.
  void OnTurn(TimePoint now, bool round_runs, std::vector<Event>& events);

  // An operator asks for the stacks of a worker: they are the answer `id`, once TakeStacks() has
  // them. FAILED_PRECONDITION, UNAVAILABLE: a sentence.
  absl::Status BeginStacks(std::uint64_t id, int local_rank, TimePoint now);
  std::optional<FaultReport> TakeStacks(TimePoint now);

  // The report for the service, if there is new progress and the interval is over.
  std::optional<Heartbeat> TakeHeartbeat(TimePoint now);
  // The last one again, where a rank does not move: it may have been lost. Else an empty one.
  Heartbeat Repeat() const { return sent_.still.empty() ? Heartbeat{} : LastHeartbeat(); }
  // For a while the report comes much more often: a fault was injected.
  void ReportOften(TimePoint now);
  // Progress of all live workers together; absent: none has reported any.
  std::optional<Progress> CurrentProgress() const { return watch_.Summarize(); }
  // Time of this node's ranks, in all rounds so far.
  RankTime TimeOfRanks(TimePoint now) { return ledger_.Take(now); }

 private:
  void End();
  void KeepPlaces();
  void ReadStacks(TimePoint now);
  void ReadDumps(TimePoint now);
  bool IsReading() const { return reader_ != nullptr || dumps_.valid(); }
  void TakeWhatIsRead(TimePoint now);
  void LookForLate(TimePoint now);
  void Finish(Stacks stacks, TimePoint now, std::vector<Event>& events);
  void Show(const Stacks& stacks, int first);
  void Report(const std::string& sentence);
  Heartbeat LastHeartbeat() const;
  void ReadMemory(TimePoint now);
  Failure Describe(const HungWorker& hung) const;

  const HangOptions options_;
  HangWatch& watch_;
  RankLedger ledger_;
  LateWorkers late_;
  Workers& workers_;
  Poller& poller_;
  Console& console_;

  Start start_;
  std::optional<HungWorker> found_;      // the stacks and dumps of this node are being read
  std::optional<int> late_first_;        // the stacks of workers that are late are being read
  bool asked_ = false;                   // for the supervisor, which waits for StacksRead
  std::unique_ptr<StackReader> reader_;  // null: no stack is being read
  Stacks stacks_;                        // that have been read
  std::future<DumpedPlaces> dumps_;      // not valid: no dump is being read
  TimePoint dumps_deadline_{};

  // BeginStacks(): the answer without them, and the process.
  struct AskedStacks {
    StackReader reader;
    pid_t pid = 0;
    FaultReport report;
  };
  std::unique_ptr<AskedStacks> asked_stacks_;  // null: none are being read

  std::vector<RanksInPlace> places_;  // TakePlaces()
  bool changed_ = false;              // progress that the service may not know
  struct Sent {                       // to the service
    std::optional<Progress> progress;
    std::vector<RanksInPlace> still;
    std::vector<RankReport> ranks;  // without their memory
    bool operator==(const Sent&) const = default;
  };
  Sent sent_;
  std::vector<std::int64_t> memory_;    // of the workers' processes
  TimePoint next_memory_{};             // not read before
  std::optional<TimePoint> still_due_;  // when another rank will have been still for long
  TimePoint next_report_{};             // no report before
  TimePoint often_until_{};             // ReportOften()
};

}  // namespace ddprun
