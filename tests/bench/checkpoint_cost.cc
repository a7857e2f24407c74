// SPDX-License-Identifier: Apache-2.0
// What a checkpoint of ResNet-18 and its momentum costs a training on one thread, and how long it
// takes to go on from one. A line of JSON; checkpoint_cost.py runs it beside PyTorch.
//   checkpoint_cost FOLDER [SAVES [BATCH]]
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "worker/library/checkpoint/checkpoint_writer.h"
#include "worker/library/files/state_dict.h"
#include "worker/train/config/config.h"
#include "worker/train/models/models.h"
#include "worker/train/optimizer/optimizer.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Training {
 public:
  explicit Training(std::int64_t batch)
      : model_(MakeModel("resnet18", {})),
        images_(at::randn({batch, 3, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast)),
        labels_(at::randint(10, {batch}, at::kLong)) {
    UseChannelsLast(*model_);
    NamedTensors parameters;
    for (const auto& item : model_->named_parameters())
      parameters.emplace_back(item.key(), item.value());
    parameters_ = parameters;
    optimizer_ = MakeOptimizer(Config{}, std::move(parameters));
  }

  void ForwardAndBackward() {
    for (auto& [name, parameter] : parameters_) parameter.mutable_grad().reset();
    at::cross_entropy_loss(model_->forward(images_), labels_).backward();
  }
  void Update() { optimizer_->Step(0.01); }

  NamedTensors Tensors(bool copy_buffers) const {
    NamedTensors tensors;
    std::unordered_map<const void*, bool> is_buffer;
    for (const at::Tensor& buffer : model_->buffers())
      is_buffer[buffer.unsafeGetTensorImpl()] = true;
    for (const auto& [name, tensor] : StateDict(*model_)) {
      const bool copy = copy_buffers && is_buffer.contains(tensor.unsafeGetTensorImpl());
      tensors.emplace_back("model/" + name, copy ? tensor.clone() : tensor);
    }
    for (const auto& [name, tensor] : optimizer_->State())
      tensors.emplace_back("optimizer/" + name, tensor);
    return tensors;
  }

 private:
  std::shared_ptr<ImageModel> model_;
  NamedTensors parameters_;
  std::unique_ptr<Optimizer> optimizer_;
  const at::Tensor images_;
  const at::Tensor labels_;
};

double TimeOfStep(Training& training) {
  const Clock::time_point begin = Clock::now();
  training.ForwardAndBackward();
  training.Update();
  return MillisecondsSince(begin);
}

double TimeOfLoad(Training& training, const std::string& folder) {
  const Clock::time_point begin = Clock::now();
  const FoundCheckpoint found =
      OpenCheckpoint(folder, [](const std::string& text) { std::puts(text.c_str()); });
  const std::unordered_map<std::string, at::Tensor> read(found.snapshot.tensors.begin(),
                                                         found.snapshot.tensors.end());
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : training.Tensors(/*copy_buffers=*/false))
    at::Tensor(tensor).copy_(read.at(name));
  return MillisecondsSince(begin);
}

void Run(const std::string& folder, int saves, std::int64_t batch) {
  Training training(batch);
  CheckpointWriter writer({.folder = folder, .training = "bench"});
  std::vector<double> steps, stalls, costs, loads;
  for (int i = 0; i < 3; ++i) TimeOfStep(training);
  std::size_t bytes = 0;
  for (int save = 1; save <= saves; ++save) {
    for (int i = 0; i < 3; ++i) steps.push_back(TimeOfStep(training));
    const Clock::time_point begin = Clock::now();
    writer.Save(save, {.tensors = training.Tensors(/*copy_buffers=*/true)});
    double stall = MillisecondsSince(begin);
    training.ForwardAndBackward();
    stall += 1000 * writer.WaitUntilCopied().count();
    training.Update();
    int taken = 1;
    std::vector<CheckpointWriter::Report> reports;
    for (; (reports = writer.TakeReports()).empty(); ++taken) TimeOfStep(training);
    if (!reports[0].error.empty()) std::exit((std::puts(reports[0].error.c_str()), 1));
    bytes = reports[0].bytes;
    stalls.push_back(stall);
    costs.push_back(MillisecondsSince(begin) - taken * Median(steps));
  }
  for (int i = 0; i < saves; ++i) loads.push_back(TimeOfLoad(training, folder));
  const nlohmann::json figures = {
      {"step_ms", Median(steps)}, {"stall_ms", Median(stalls)},
      {"stalls_ms", stalls},      {"cost_ms", Median(costs)},
      {"load_ms", Median(loads)}, {"megabytes", static_cast<double>(bytes) / 1e6}};
  std::puts(figures.dump().c_str());
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: checkpoint_cost FOLDER [SAVES [BATCH]]\n");
    return 2;
  }
  at::set_num_threads(1);
  ddprun::Run(argv[1], argc > 2 ? std::atoi(argv[2]) : 5, argc > 3 ? std::atoi(argv[3]) : 16);
  return 0;
}
