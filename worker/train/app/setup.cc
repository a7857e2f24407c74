// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/setup.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "proto/version.h"
#include "worker/library/distributed/device_agreement.h"
#include "worker/train/config/config.h"
#include "worker/train/data/damaged_samples.h"
#include "worker/train/kernels/kernels.h"
#include "worker/train/parallel/precision.h"
#include "worker/train/training/training_checkpoints.h"

namespace ddprun {

void PrepareRank(const Config& config, const WorkerEnv& env) {
  FindCudaDevices(config.backend, config.device);
  if (std::getenv("OMP_NUM_THREADS")) return;
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  at::set_num_threads(std::max(1, cores / std::max(1, env.local_world_size)));
}

void ChooseKernels(const Config& config) {
  if (config.deterministic)
    UseDeterministicAlgorithms();
  else
    UseFastestKernels();
  UseFusedKernels(config.fused_kernels);
}

Console::Options ConsoleOptions(const WorkerEnv& env) {
  const bool alone = env.agent_socket.empty();
  const bool terminal = alone ? isatty(STDOUT_FILENO) == 1 : env.console_is_terminal;
  const char* const kind = std::getenv("TERM");
  const bool can_erase = kind == nullptr || std::string_view(kind) != "dumb";
  return {.bar = env.rank == 0 && terminal && can_erase, .erase_bar = alone};
}

SharedFacts FactsOf(const Config& config, const Dataset& data) {
  SharedFacts facts = {{"the version of train", kSoftwareVersion}};
  for (auto& setting : SharedSettings(config)) facts.push_back(std::move(setting));
  facts.emplace_back("saving of checkpoints", SavesCheckpoints(config) ? "enabled" : "disabled");
  const auto add = [&facts](const char* name, std::int64_t number) {
    facts.emplace_back(name, std::to_string(number));
  };
  add("the number of training images", data.train->size());
  add("the number of test images", data.test->size());
  add("the number of classes", data.classes);
  add("the number of channels", data.shape().channels);
  add("the height of images", data.shape().height);
  add("the width of images", data.shape().width);
  return facts;
}

World::Options WorldOptions(const Config& config) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  };
  return {.backend = config.backend,
          .device = config.device,
          .timeout = milliseconds(config.timeout),
          .step_timeout = milliseconds(config.collective_timeout)};
}

Dataset OpenDataset(const Config& config) {
  Dataset data = OpenDataset(config.dataset, {.directory = config.data_dir,
                                              .seed = config.seed,
                                              .samples = config.samples,
                                              .input_size = config.input_size,
                                              .classes = config.num_classes,
                                              .val_share = config.val_share});
  const std::int64_t side = std::min(data.shape().height, data.shape().width);
  if (config.augment && config.padding_mode == Padding::kReflect && config.crop_padding >= side)
    throw UsageError("--crop-padding " + std::to_string(config.crop_padding) +
                     " with --padding-mode reflect needs images of more pixels a side than the " +
                     std::to_string(side) + " of --dataset " + config.dataset +
                     "; choose a smaller padding or --padding-mode zero");
  if (config.tta == TestTimeAugmentation::kMirrorTranslate && side < 2)
    throw UsageError(
        "--tta mirror-translate needs images of at least 2x2 pixels, which --dataset " +
        config.dataset + " has not; choose --tta off");
  if (config.skip_damaged) {
    data.damaged = std::make_shared<DamagedSamples>([](const std::string& line) {
      EraseBar();
      std::fprintf(stderr, "train: %s\n", line.c_str());
    });
  }
  return data;
}

}  // namespace ddprun
