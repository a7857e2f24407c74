// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "ddprun/world.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/metrics/console.h"
#include "worker/train/step/observer.h"
#include "worker/train/step/step_counter.h"

namespace ddprun {

// Each of them; all arguments must outlive it.
std::unique_ptr<Observer> MakeConsoleObserver(const Config& config, const World& world,
                                              Console& console, const StepCounter& counter);
std::unique_ptr<Observer> MakeProfileObserver(const Config& config, World& world, Console& console,
                                              StepClock& clock, const StepCounter& counter);
std::unique_ptr<Observer> MakeProgressObserver(World& world, const StepClock& clock,
                                               const StepCounter& counter);
std::unique_ptr<Observer> MakeScalarRecorder(const Config& config, const StepCounter& counter);
std::unique_ptr<Observer> MakeSampleObserver(const Config& config, const World& world);
// For a data set that is trained without its damaged images (--skip-damaged).
std::unique_ptr<Observer> MakeDamageObserver(const Config& config, const Dataset& data,
                                             World& world, Console& console);
std::unique_ptr<Observer> MakeStragglerObserver(const Config& config, World& world,
                                                Console& console);

// What shows the training, as the settings ask for on this rank. All must outlive them.
std::vector<std::unique_ptr<Observer>> MakeObservers(const Config& config, const Dataset& data,
                                                     World& world, Console& console,
                                                     StepClock& clock, const StepCounter& counter);

}  // namespace ddprun
