// SPDX-License-Identifier: Apache-2.0
#include "worker/train/speedrun/muon.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_reciprocal.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "worker/train/optimizer/fused_sgd.h"
#include "worker/train/speedrun/fused_muon.h"
#include "worker/train/speedrun/whitening.h"

namespace ddprun {
namespace {

// The quintic of Jordan et al.; its slope at zero is what the few steps need.
constexpr double kA = 3.4445;
constexpr double kB = -4.7750;
constexpr double kC = 2.0315;
constexpr int kNewtonSchulzSteps = 3;
constexpr double kNormMin = 1e-7;  // of a gradient of zeros

// One filter a row. The columns in the order in which `like`, a filter bank of the same shape, lies
// in memory: to orthogonalise it is all the same, and a view takes no time.
at::Tensor AsRows(const at::Tensor& filters, const at::Tensor& like) {
  const bool by_pixel = like.is_contiguous(at::MemoryFormat::ChannelsLast);
  return by_pixel ? filters.permute({0, 2, 3, 1}).flatten(1) : filters.flatten(1);
}

at::Tensor AsFilters(const at::Tensor& rows, const at::Tensor& like) {
  const auto size = like.sizes();
  const bool by_pixel = like.is_contiguous(at::MemoryFormat::ChannelsLast);
  return by_pixel ? rows.reshape({size[0], size[2], size[3], size[1]}).permute({0, 3, 1, 2})
                  : rows.reshape(size);
}

// A filter bank's as a matrix that is not higher than wide.
struct Shape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool transposed = false;  // more filters than numbers in each

  static Shape Of(const at::Tensor& filters) {
    const std::int64_t count = filters.size(0);
    const std::int64_t numbers = filters.numel() / count;
    return {std::min(count, numbers), std::max(count, numbers), count > numbers};
  }
};

struct Slot {
  at::Tensor parameter;
  at::Tensor velocity;
  Shape shape;
};

class Muon : public Optimizer {
 public:
  Muon(const Config& config, NamedTensors parameters, const StepSize& size)
      : Optimizer(Trained(std::move(parameters))),
        filter_momentum_(config.muon_momentum),
        momentum_(config.momentum),
        bias_lr_(config.bias_lr * static_cast<double>(size.images)),
        whiten_steps_(std::round(config.whiten_epochs * static_cast<double>(size.steps_per_epoch))),
        heads_(GroupOf(config.head_lr * static_cast<double>(size.images), config)),
        biases_(GroupOf(bias_lr_, config)),
        whitening_{.decay = biases_.decay},
        kernels_(KernelsOf(parameters_)) {
    const std::vector<at::Tensor> velocities = MakeState("momentum_buffer");
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto& [name, parameter] = parameters_[i];
      if (parameter.dim() == 4) {
        const Shape shape = Shape::Of(parameter);
        banks_[shape.rows].push_back({parameter, velocities[i], shape});
      } else if (name == kWhiteningBias) {
        whitening_.Add(parameter, velocities[i]);
        step_ = at::zeros({}, parameter.options().dtype(at::kFloat).requires_grad(false));
        state_.emplace_back(name + "/step", step_);
      } else {
        (parameter.dim() == 2 ? heads_ : biases_).Add(parameter, velocities[i]);
      }
    }
  }

  void Step(const at::Tensor& filter_rate, const at::Tensor& skip) override {
    const torch::NoGradGuard no_grad;
    const at::Tensor rate = filter_rate.to(at::kFloat);
    for (const auto& [rows, slots] : banks_) {
      if (kernels_ != nullptr)
        StepFiltersByKernels(slots, rate, skip);
      else
        StepFilters(slots, rate, skip);
    }
    StepGroup(heads_, rate * heads_.ratio, skip);
    StepGroup(biases_, rate * biases_.ratio, skip);
    if (!step_.defined()) return;
    // The remaining share of the way to zero.
    const at::Tensor left = (1 - step_ / std::max(1.0, whiten_steps_)).clamp_min_(0);
    StepGroup(whitening_, left * (whiten_steps_ > 0 ? bias_lr_ : 0.0), skip);
    step_ += skip.defined() ? 1 - skip : at::ones_like(step_);
  }

  bool WriteCasts(const NamedTensors& casts) override {
    if (kernels_ == nullptr) return false;
    const std::map<std::string, at::Tensor> by_name(casts.begin(), casts.end());
    for (const auto& [name, parameter] : parameters_) {
      const auto cast = by_name.find(name);
      if (cast != by_name.end()) casts_[parameter.unsafeGetTensorImpl()] = cast->second;
    }
    return true;
  }

 private:
  // Tensors that step alike by SGD.
  struct Group {
    double decay = 0;
    double ratio = 1;  // of its rate to the filters'
    std::vector<at::Tensor> parameters = {};
    std::vector<at::Tensor> velocities = {};

    void Add(const at::Tensor& parameter, const at::Tensor& velocity) {
      parameters.push_back(parameter);
      velocities.push_back(velocity);
    }
  };

  // A velocity begins as zero, see Sgd.
  void StepGroup(const Group& group, const at::Tensor& rate, const at::Tensor& skip) const {
    std::vector<at::Tensor> moved, gradients, moving;
    std::vector<FusedSgd::Item> items;
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const at::Tensor& parameter = group.parameters[i];
      if (!parameter.grad().defined()) continue;
      moved.push_back(parameter);
      gradients.push_back(GradientLike(parameter));
      if (momentum_ > 0) moving.push_back(group.velocities[i]);
      items.push_back({.parameter = parameter,
                       .gradient = gradients.back(),
                       .velocity = momentum_ > 0 ? moving.back() : at::Tensor(),
                       .cast = CastOf(parameter)});
    }
    if (moved.empty()) return;
    if (kernels_ != nullptr) {
      FusedSgd{.kernels = *kernels_,
               .momentum = momentum_,
               .decay = group.decay,
               .nesterov = momentum_ > 0}
          .Step(items, rate, skip);
      return;
    }
    at::_fused_sgd_(moved, gradients, moving, group.decay, momentum_, rate, /*dampening=*/0,
                    /*nesterov=*/momentum_ > 0, /*maximize=*/false, /*is_first_step=*/false,
                    /*grad_scale=*/{}, IfDefined(skip));
  }

  // Undefined if there is none.
  at::Tensor CastOf(const at::Tensor& parameter) const {
    const auto cast = casts_.find(parameter.unsafeGetTensorImpl());
    return cast == casts_.end() ? at::Tensor() : cast->second;
  }

  static Group GroupOf(double lr, const Config& config) {
    return {.decay = config.weight_decay / lr, .ratio = lr / config.lr};
  }

  // Batch norms' weights may be frozen.
  static NamedTensors Trained(NamedTensors parameters) {
    std::erase_if(parameters, [](const auto& entry) { return !entry.second.requires_grad(); });
    return parameters;
  }

  // Null unless filters lie one after the other in memory.
  static KernelLauncher* KernelsOf(const NamedTensors& parameters) {
    const bool in_order = std::all_of(parameters.begin(), parameters.end(), [](const auto& entry) {
      const at::Tensor& parameter = entry.second;
      return parameter.dim() != 4 || parameter.is_contiguous() ||
             parameter.is_contiguous(at::MemoryFormat::ChannelsLast);
    });
    return in_order ? SgdKernels(parameters) : nullptr;
  }

  // Those of one bank, which have the same number of rows, in one batch of matrices: a GPU takes
  // hardly longer for all than for one of them.
  void StepFilters(const std::vector<Slot>& all, const at::Tensor& rate,
                   const at::Tensor& skip) const {
    std::vector<at::Tensor> weights, gradients, velocities;
    std::vector<at::Scalar> lengths;
    std::vector<Shape> shapes;
    for (const Slot& slot : all) {
      if (!slot.parameter.grad().defined()) continue;
      weights.push_back(slot.parameter);
      gradients.push_back(GradientLike(slot.parameter));
      velocities.push_back(slot.velocity);
      lengths.emplace_back(std::sqrt(static_cast<double>(slot.parameter.size(0))));
      shapes.push_back(slot.shape);
    }
    if (weights.empty()) return;
    // A step that is left out: gradients of zero, velocities and weights times 1, updates times 0.
    if (skip.defined()) {
      for (at::Tensor& gradient : gradients) gradient = at::where(skip > 0, 0, gradient);
      at::_foreach_mul_(velocities, filter_momentum_ + (1 - filter_momentum_) * skip);
    } else {
      at::_foreach_mul_(velocities, filter_momentum_);
    }
    at::_foreach_add_(velocities, gradients);
    const std::vector<at::Tensor> directions =
        at::_foreach_add(gradients, velocities, filter_momentum_);
    const at::Tensor updates = Orthogonal(Packed(directions, weights, shapes)).to(at::kFloat) *
                               (skip.defined() ? rate * (skip - 1) : -rate);
    std::vector<at::Tensor> scales = at::_foreach_norm(weights);
    at::_foreach_reciprocal_(scales);
    at::_foreach_mul_(scales, lengths);
    for (at::Tensor& scale : scales)
      if (skip.defined()) scale = at::where(skip > 0, 1, scale);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const at::Tensor update = AsFilters(Unpacked(updates, i, shapes[i]), weights[i]);
      at::addcmul_out(weights[i], update, weights[i], scales[i]);
    }
  }

  // The same in two kernels, and the matrices' multiplications.
  void StepFiltersByKernels(const std::vector<Slot>& all, const at::Tensor& rate,
                            const at::Tensor& skip) const {
    std::vector<FusedMuon::Item> items;
    std::int64_t columns = 0;
    for (const Slot& slot : all) {
      if (!slot.parameter.grad().defined()) continue;
      items.push_back({.weight = slot.parameter.detach(),
                       .gradient = GradientLike(slot.parameter),
                       .velocity = slot.velocity,
                       .cast = CastOf(slot.parameter)});
      columns = std::max(columns, slot.shape.columns);
    }
    if (items.empty()) return;
    const at::Tensor& first = items[0].weight;
    const at::Tensor matrices =
        at::zeros({static_cast<std::int64_t>(items.size()), all[0].shape.rows, columns},
                  first.options().dtype(MatrixType(first)));
    const FusedMuon muon{.kernels = *kernels_, .momentum = filter_momentum_, .items = items};
    muon.Directions(skip, matrices);
    muon.Update(rate, skip, Orthogonal(matrices));
  }

  // On a GPU bf16: tensor cores want it, and three steps do not come nearer in more digits.
  static at::ScalarType MatrixType(const at::Tensor& weights) {
    return weights.is_cuda() ? at::kBFloat16 : weights.scalar_type();
  }

  // Filled up with zeros to the columns of the widest.
  static at::Tensor Packed(const std::vector<at::Tensor>& directions,
                           const std::vector<at::Tensor>& weights,
                           const std::vector<Shape>& shapes) {
    std::int64_t columns = 0;
    for (const Shape& shape : shapes) columns = std::max(columns, shape.columns);
    at::Tensor matrices =
        at::zeros({static_cast<std::int64_t>(shapes.size()), shapes[0].rows, columns},
                  weights[0].options().dtype(MatrixType(weights[0])).requires_grad(false));
    for (std::size_t i = 0; i < shapes.size(); ++i)
      Unpacked(matrices, i, shapes[i]).copy_(AsRows(directions[i], weights[i]));
    return matrices;
  }

  // The view of one of them, one filter a row.
  static at::Tensor Unpacked(const at::Tensor& matrices, std::size_t i, const Shape& shape) {
    const at::Tensor matrix = matrices[static_cast<std::int64_t>(i)].narrow(1, 0, shape.columns);
    return shape.transposed ? matrix.t() : matrix;
  }

  const double filter_momentum_;
  const double momentum_;
  const double bias_lr_;
  const double whiten_steps_;
  std::map<std::int64_t, std::vector<Slot>> banks_;  // by the number of rows
  Group heads_;
  Group biases_;
  Group whitening_;
  at::Tensor step_;                // how many were made; where there is a whitening
  KernelLauncher* const kernels_;  // null: the device has none
  std::unordered_map<const c10::TensorImpl*, at::Tensor> casts_;
};

}  // namespace

at::Tensor Orthogonal(const at::Tensor& matrices) {
  const at::Tensor norms =
      at::linalg_vector_norm(matrices, 2, at::IntArrayRef{1, 2},
                             /*keepdim=*/true, at::toOpMathType(matrices.scalar_type()));
  at::Tensor x = (matrices / (norms + kNormMin)).to(matrices.scalar_type());
  for (int i = 0; i < kNewtonSchulzSteps; ++i) {
    const at::Tensor squares = at::bmm(x, x.transpose(1, 2));
    const at::Tensor factor = at::baddbmm(squares, squares, squares, /*beta=*/kB, /*alpha=*/kC);
    x = at::baddbmm(x, factor, x, /*beta=*/kA, /*alpha=*/1);
  }
  return x;
}

std::unique_ptr<Optimizer> MakeMuon(const Config& config, NamedTensors parameters,
                                    const StepSize& size) {
  return std::make_unique<Muon>(config, std::move(parameters), size);
}

namespace {

const bool kMuonAdded = Optimizers().Add("muon", MakeMuon);

}  // namespace
}  // namespace ddprun
