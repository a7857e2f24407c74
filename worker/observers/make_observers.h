// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ddprun/world.h"
#include "worker/config/config.h"
#include "worker/metrics/console.h"
#include "worker/observers/observer.h"
#include "worker/step/step_counter.h"

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
std::unique_ptr<Observer> MakeStragglerObserver(const Config& config, World& world,
                                                Console& console);

// Those that the settings ask for on this rank. All must outlive them.
Observers MakeObservers(const Config& config, World& world, Console& console, StepClock& clock,
                        const StepCounter& counter);

}  // namespace ddprun
