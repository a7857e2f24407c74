// SPDX-License-Identifier: Apache-2.0
#include "worker/train/observers/make_observers.h"

namespace ddprun {
namespace {

// The host's times say how fast a CPU is, and nothing of a GPU; stages of a pipeline differ.
bool CanNameStragglers(const Config& config, const World& world) {
  return config.straggler_factor > 0 && world.size() > 1 && world.device().is_cpu() &&
         config.pipeline == 1;
}

}  // namespace

std::vector<std::unique_ptr<Observer>> MakeObservers(const Config& config, const Dataset& data,
                                                     World& world, Console& console,
                                                     StepClock& clock, const StepCounter& counter) {
  std::vector<std::unique_ptr<Observer>> observers;
  // First: what the others do at the end of a step is not the step's time.
  if (CanNameStragglers(config, world))
    observers.push_back(MakeStragglerObserver(config, world, console));
  observers.push_back(MakeProfileObserver(config, world, console, clock, counter));
  observers.push_back(MakeProgressObserver(world, clock, counter));
  observers.push_back(MakeConsoleObserver(config, world, console, counter));
  if (config.log_samples) observers.push_back(MakeSampleObserver(config, world));
  if (world.rank() == 0 && (config.metrics || config.tensorboard))
    observers.push_back(MakeScalarRecorder(config, counter));
  if (data.damaged) observers.push_back(MakeDamageObserver(config, data, world, console));
  return observers;
}

}  // namespace ddprun
