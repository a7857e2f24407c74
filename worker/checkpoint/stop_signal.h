// SPDX-License-Identifier: Apache-2.0
// SIGTERM and SIGINT as a question: the training saves and ends at its next step. A second one ends
// the process at once (if it does not come with the first: Slurm tells each process of a step, and
// then the agent tells its workers), as does the first one where no step comes to its end in time
// (the other ranks may be gone already). Of the whole process; one thread at a time may use it.
#pragma once

#include <chrono>

namespace ddprun {

class StopSignal {
 public:
  static constexpr std::chrono::seconds kPatienceMin{2};
  static constexpr std::chrono::seconds kPatienceMax{25};  // less than launchers' usual 30

  // One that comes sooner after the first is the same one, told by another.
  static constexpr std::chrono::milliseconds kRepeatMin{1000};

  // From here on, until the destructor, which sets the signals back to what they did before.
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The signal that has come; 0 if none has.
  static int Received();

  // How long after a signal the process may go on before it ends with 128 + signal. Within the two
  // limits above.
  static void SetPatience(std::chrono::duration<double> patience);

  // It has been heard, and what is to be done about it has limits of its own.
  static void Heard();
};

}  // namespace ddprun
