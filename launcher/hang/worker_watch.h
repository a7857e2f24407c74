// SPDX-License-Identifier: Apache-2.0
// The agent's eye on workers that live: hears what they say of their progress, tells the service,
// and when one hangs (hang_watch) reads the stacks of all before anything is done to them.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "launcher/base/poller.h"
#include "launcher/hang/hang_watch.h"
#include "launcher/hang/stacks.h"
#include "launcher/options/options_hangs.h"
#include "launcher/output/console.h"
#include "launcher/processes/workers.h"
#include "launcher/supervisor/supervisor.h"

namespace ddprun {

class WorkerWatch {
 public:
  WorkerWatch(HangOptions options, Workers& workers, Poller& poller, Console& console)
      : options_(options), watch_(options), workers_(workers), poller_(poller), console_(console) {}

  // The workers of this round have been started.
  void Begin(const Start& start, TimePoint now);

  // Of Source::kWorkerProgress, kWorkerOut and kWorkerErr.
  void OnReady(const Ready& ready, TimePoint now);

  // Before the supervisor sees the event, which learns where the workers wait. True: it will be
  // among the events again once the stacks are read, since what it makes the supervisor do would
  // end those who have them.
  bool DeferUntilStacksRead(Event& event, TimePoint now);

  std::optional<TimePoint> NextDeadline() const;
  // Also when Source::kStacks is ready. Nobody is looked for in a round that is being stopped.
  void OnTurn(TimePoint now, bool round_runs, std::vector<Event>& events);

  // What the service is to be told, if there is anything new and it is time.
  std::optional<Heartbeat> TakeHeartbeat(TimePoint now);

 private:
  void End();
  void ReadStacks(TimePoint now);
  void Finish(Stacks stacks, TimePoint now, std::vector<Event>& events);
  void Show(const Stacks& stacks);
  void Report(const std::string& sentence);
  Failure Describe(const HungWorker& hung) const;

  const HangOptions options_;
  HangWatch watch_;
  Workers& workers_;
  Poller& poller_;
  Console& console_;

  Start start_;
  std::optional<HungWorker> found_;      // its stacks are being read
  std::optional<Stop> held_;             // until they are,
  std::optional<TimePoint> held_until_;  // or until then
  bool examined_ = false;                // the stacks of this round's workers have been read
  std::unique_ptr<StackReader> reader_;  // null: nothing is being read

  bool heard_ = false;                 // something that the service may not have been told
  std::optional<Progress> last_sent_;  // the service, last
  TimePoint next_tell_{};              // not before
};

}  // namespace ddprun
