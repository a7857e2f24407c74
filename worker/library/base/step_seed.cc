// SPDX-License-Identifier: Apache-2.0
#include "worker/library/base/step_seed.h"

#include <ATen/Context.h>

#include <mutex>

#include "rendezvous/base/random.h"

namespace ddprun {

void SeedStep(at::Device device, std::uint64_t seed, std::int64_t step, int rank) {
  const std::uint64_t number =
      SplitMix64({seed, static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(rank)}).Next();
  const auto set = [number](at::Device of) {
    at::Generator generator = at::globalContext().defaultGenerator(of);
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(number);
  };
  set(at::kCPU);
  if (!device.is_cpu()) set(device);
}

}  // namespace ddprun
