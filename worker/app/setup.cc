// SPDX-License-Identifier: Apache-2.0
#include "worker/app/setup.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>

namespace ddprun {

void ShareCores(int local_world_size) {
  if (std::getenv("OMP_NUM_THREADS")) return;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(std::max(1, cores / std::max(1, local_world_size)));
}

Reporter::Options ReporterOptions(const WorkerEnv& env) {
  const bool alone = env.agent_socket.empty();
  const bool terminal = alone ? isatty(STDOUT_FILENO) == 1 : env.console_is_terminal;
  return {.bar = env.rank == 0 && terminal, .erase_bar = alone};
}

World::Options WorldOptions(const Config& config) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  };
  return {.backend = ParseBackend(config.backend),
          .device = ParseDevice(config.device),
          .timeout = milliseconds(config.timeout),
          .step_timeout = milliseconds(config.collective_timeout)};
}

Dataset OpenDataset(const Config& config) {
  return OpenDataset(config.dataset, {.directory = config.data_dir,
                                      .seed = config.seed,
                                      .samples = config.samples,
                                      .input_size = config.input_size,
                                      .classes = config.num_classes});
}

}  // namespace ddprun
