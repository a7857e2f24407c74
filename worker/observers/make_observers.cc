// SPDX-License-Identifier: Apache-2.0
#include "worker/observers/make_observers.h"

namespace ddprun {

Observers MakeObservers(const Config& config, World& world, Console& console,
                        ProgressSender& progress, StepClock& clock, const StepCounter& counter) {
  Observers observers;
  observers.push_back(MakeProfileObserver(config, world, console, clock, counter));
  observers.push_back(MakeProgressObserver(progress, clock, counter));
  observers.push_back(MakeConsoleObserver(config, world, console, counter));
  if (config.log_samples) observers.push_back(MakeSampleObserver(config, world));
  if (world.rank() == 0 && (config.metrics || config.tensorboard))
    observers.push_back(MakeScalarRecorder(config, counter));
  return observers;
}

}  // namespace ddprun
