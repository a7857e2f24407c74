// SPDX-License-Identifier: Apache-2.0
// Handles SIGTERM, SIGINT, SIGHUP and SIGQUIT as a request: the training saves and ends at its next
// step. A second signal ends the process at once, unless it comes together with the first: Slurm
// signals each process of a step, and then the agent signals its workers. So does the first signal
// if the training makes no progress in time, because the other ranks may be gone already. State of
// the whole process; only one thread at a time may use it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "ddprun/errors.h"

namespace ddprun {

class StopSignal {
 public:
  static constexpr std::chrono::seconds kPatienceMin{2};
  static constexpr std::chrono::seconds kPatienceMax{25};  // less than launchers' usual 30

  // One that comes sooner after the first is the same one, sent by another.
  static constexpr std::chrono::milliseconds kRepeatMin{1000};

  // From here on, until the destructor, which restores what the signals did before. A SIGHUP that
  // is ignored (nohup) stays ignored.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The signal that has come; 0 if none has.
  static int Received();

  // The training has come further, and may take so long, within the limits above, until it does so
  // again: a process that has received a signal and exceeds that ends with 128 + signal. Until the
  // first call kPatienceMin.
  static void Progress(std::chrono::duration<double> patience);

  // From here on no signal's time runs out: what is done now (a save) has limits of its own.
  static void Acknowledge();
};

// How long a step may take before it is taken for one that hangs: a few times the longest of the
// latest steps, as some of them wait for all that a device has queued. Pure.
class StepPatience {
 public:
  using Seconds = std::chrono::duration<double>;

  // Until `unknown` steps are added nothing is known: then kPatienceMax.
  explicit StepPatience(std::int64_t unknown = 0) : unknown_(unknown) {}

  void Add(Seconds step);
  Seconds Get() const;

 private:
  static constexpr int kTimes = 3;
  static constexpr std::int64_t kWindow = 32;  // steps

  std::int64_t unknown_;
  std::int64_t steps_ = 0;  // of this window
  Seconds longest_{0};
  Seconds longest_before_{0};  // of the window before
};

// The training was asked to end by a signal, has saved what it could, and ends: one sentence. The
// program's exit code is 128 + signal, as a shell would show it.
struct Stopped : OwnError {
  Stopped(int by, const std::string& sentence) : OwnError(sentence), signal(by) {}
  int signal;
};

}  // namespace ddprun
