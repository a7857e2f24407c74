// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "ddprun/world.h"
#include "tests/integration/worker/ranks.h"
#include "tests/integration/worker/service.h"

namespace ddprun {

// In a world of `size` ranks, each a process, over the run's store.
inline void InWorld(int size, const std::function<void(World&)>& body) {
  std::unique_ptr<Service> service;
  if (!IsRankProcess()) service = std::make_unique<Service>();
  RunProcesses(
      size, [&](int rank) { return service->EnvOf(rank, size); },
      [&](const WorkerEnv& env) {
        const auto world = World::Join(
            env, {.backend = BackendChoice::kGloo, .timeout = std::chrono::seconds(20)});
        body(*world);
        world->Shutdown();
      });
}

}  // namespace ddprun
