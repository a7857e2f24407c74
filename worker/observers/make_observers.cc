// SPDX-License-Identifier: Apache-2.0
#include "worker/observers/make_observers.h"

#include "worker/observers/console_observer.h"
#include "worker/observers/profile_observer.h"
#include "worker/observers/progress_observer.h"
#include "worker/observers/sample_observer.h"
#include "worker/observers/scalar_recorder.h"

namespace ddprun {

Observers MakeObservers(const Config& config, World& world, Console& console,
                        ProgressSender& progress, StepClock& clock, const StepCounter& counter) {
  Observers observers;
  observers.push_back(std::make_unique<ProfileObserver>(config, world, console, clock, counter));
  observers.push_back(std::make_unique<ProgressObserver>(progress, counter));
  observers.push_back(std::make_unique<ConsoleObserver>(world, console, counter));
  if (config.log_samples) observers.push_back(std::make_unique<SampleObserver>(config, world));
  if (world.rank() == 0 && (config.metrics || config.tensorboard))
    observers.push_back(std::make_unique<ScalarRecorder>(config, counter));
  return observers;
}

}  // namespace ddprun
