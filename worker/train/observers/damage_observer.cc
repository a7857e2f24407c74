// SPDX-License-Identifier: Apache-2.0
#include <ATen/Functions.h>

#include <string>

#include "worker/train/data/damaged_samples.h"
#include "worker/train/observers/make_observers.h"
#include "worker/train/parallel/pipeline_plan.h"

namespace ddprun {
namespace {

// --skip-damaged: how many damaged training images of an epoch were replaced, on all ranks.
class DamageObserver : public Observer {
 public:
  // All must outlive the observer.
  DamageObserver(const Config& config, const Dataset& data, World& world, Console& console)
      : config_(config), data_(data), world_(world), console_(console) {}

  void OnEpochBegin() override { data_.damaged->TakeFilled(); }  // those of a warm-up's batches

  void OnEpochEnd(const TrainingState&, std::int64_t epoch, const Evaluation&) override {
    at::Tensor filled =
        at::tensor({data_.damaged->TakeFilled()}, at::TensorOptions(at::kLong)).to(world_.device());
    world_.AllReduceSum(filled);
    // All stages of a pipeline load the same images.
    const int stages = world_.size() / DataParallelSize(config_, world_.size());
    const std::int64_t count = world_.ToHost(filled).item<std::int64_t>() / stages;
    if (count == 0 || world_.rank() != 0) return;
    console_.Line("epoch " + std::to_string(epoch) + ": " + std::to_string(count) +
                  (count == 1 ? " damaged training image was" : " damaged training images were") +
                  " replaced by the next ones");
  }

 private:
  const Config& config_;
  const Dataset& data_;
  World& world_;
  Console& console_;
};

}  // namespace

std::unique_ptr<Observer> MakeDamageObserver(const Config& config, const Dataset& data,
                                             World& world, Console& console) {
  return std::make_unique<DamageObserver>(config, data, world, console);
}

}  // namespace ddprun
