// SPDX-License-Identifier: Apache-2.0
#include "worker/train/pipeline/part_costs.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>

#include "worker/library/base/unique_tensors.h"

namespace ddprun {
namespace {

constexpr int kMeasurements = 3;  // the first one also warms caches

// One pass through memory and back for each activation costs as much as so many multiplications.
constexpr double kMultiplicationsPerActivation = 64;

using Clock = std::chrono::steady_clock;

// Runs every part forward and backward by itself and gives each one's time.
std::vector<double> MeasureOnce(const std::vector<ModelPart>& parts, const at::Tensor& images,
                                const std::function<void()>& synchronize) {
  std::vector<double> seconds;
  at::Tensor input = images;
  for (const ModelPart& part : parts) {
    synchronize();
    const auto begin = Clock::now();
    const at::Tensor output = part.forward(input);
    torch::autograd::backward({output}, {at::ones_like(output)});
    synchronize();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    input = output.detach().set_requires_grad(true);
  }
  return seconds;
}

// Puts back what a training forward and backward change in a module.
class Untouched {
 public:
  explicit Untouched(torch::nn::Module& module)
      : module_(module), training_(module.is_training()), buffers_(UniqueBuffers(module)) {
    for (const at::Tensor& buffer : buffers_) saved_.push_back(buffer.clone());
    module_.train();
  }
  ~Untouched() {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(saved_[i]);
    for (at::Tensor& parameter : UniqueParameters(module_)) parameter.mutable_grad().reset();
    module_.train(training_);
  }
  Untouched(const Untouched&) = delete;
  Untouched& operator=(const Untouched&) = delete;

 private:
  torch::nn::Module& module_;
  const bool training_;
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> saved_;
};

double Pixels(const at::Tensor& tensor) {
  return tensor.dim() == 4 ? static_cast<double>(tensor.size(2) * tensor.size(3)) : 1.0;
}

double Multiplications(torch::nn::Module& model, const ModelPart& part, double pixels) {
  double count = 0;
  const auto modules = model.named_modules("", /*include_self=*/false);
  for (const std::string& name : part.modules) {
    for (const at::Tensor& parameter : UniqueParameters(*modules[name])) {
      const auto numbers = static_cast<double>(parameter.numel());
      count += parameter.dim() == 4 ? numbers * pixels : numbers;
    }
  }
  return count;
}

}  // namespace

std::vector<double> MeasuredCosts(ImageModel& model, const at::Tensor& images,
                                  const std::function<void()>& synchronize) {
  const Untouched untouched(model);
  const std::vector<ModelPart> parts = model.Parts();
  std::vector<double> best(parts.size(), std::numeric_limits<double>::infinity());
  for (int i = 0; i < kMeasurements; ++i) {
    const std::vector<double> seconds = MeasureOnce(parts, images, synchronize);
    for (std::size_t j = 0; j < best.size(); ++j) best[j] = std::min(best[j], seconds[j]);
  }
  return best;
}

std::vector<double> EstimatedCosts(ImageModel& model, const at::Tensor& images) {
  const Untouched untouched(model);
  const torch::NoGradGuard no_grad;
  std::vector<double> costs;
  at::Tensor input = images;
  for (const ModelPart& part : model.Parts()) {
    const at::Tensor output = part.forward(input);
    const auto activations = static_cast<double>(input.numel() + output.numel());
    costs.push_back(Multiplications(model, part, Pixels(output)) *
                        static_cast<double>(images.size(0)) +
                    activations * kMultiplicationsPerActivation);
    input = output;
  }
  return costs;
}

std::vector<std::size_t> BalancedCuts(const std::vector<double>& costs, std::size_t stages) {
  const std::size_t parts = costs.size();
  if (stages == 0 || stages > parts)
    throw std::invalid_argument("a model cannot be cut into more stages than it has parts");
  // least[s][i]: what the dearest stage costs when the parts from i on make s + 1 stages, and
  // next[s][i] where the second of these begins.
  const auto unreachable = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(stages, std::vector<double>(parts + 1, unreachable));
  std::vector<std::vector<std::size_t>> next(stages, std::vector<std::size_t>(parts + 1, parts));
  double rest = 0;
  for (std::size_t i = parts; i-- > 0;) least[0][i] = rest += costs[i];
  for (std::size_t s = 1; s < stages; ++s) {
    for (std::size_t i = 0; i + s < parts; ++i) {
      double own = 0;
      for (std::size_t j = i + 1; j + s <= parts; ++j) {
        own += costs[j - 1];
        const double dearest = std::max(own, least[s - 1][j]);
        if (dearest < least[s][i]) {
          least[s][i] = dearest;
          next[s][i] = j;
        }
      }
    }
  }
  std::vector<std::size_t> cuts{0};
  for (std::size_t s = stages - 1; s > 0; --s) cuts.push_back(next[s][cuts.back()]);
  return cuts;
}

}  // namespace ddprun
