// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/pool.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/csrc/autograd/custom_function.h>

#include <vector>

#include "worker/layers/channels_last.h"
#include "worker/layers/pool_kernel.h"

namespace ddprun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;

pool::Shape ShapeOf(const at::Tensor& x, bool relu) {
  return {.height = x.size(2) / 2, .width = x.size(3) / 2, .channels = x.size(1), .relu = relu};
}

struct Pooled : torch::autograd::Function<Pooled> {
  static Variable forward(AutogradContext* context, const Variable& x, bool relu) {
    const pool::Shape shape = ShapeOf(x, relu);
    at::Tensor out = at::empty({x.size(0), shape.channels, shape.height, shape.width},
                               x.options().memory_format(at::MemoryFormat::ChannelsLast));
    at::parallel_for(0, x.size(0) * shape.height, 1, [&](std::int64_t begin, std::int64_t end) {
      pool::Forward(shape, x.const_data_ptr<float>(), begin, end, out.mutable_data_ptr<float>());
    });
    context->save_for_backward({x});
    context->saved_data["relu"] = relu;
    return out;
  }

  static std::vector<Variable> backward(AutogradContext* context, std::vector<Variable> gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const pool::Shape shape = ShapeOf(x, context->saved_data["relu"].toBool());
    const at::Tensor gradient = gradients[0].contiguous(at::MemoryFormat::ChannelsLast);
    at::Tensor x_gradient = at::empty_like(x);
    at::parallel_for(0, x.size(0) * shape.height, 1, [&](std::int64_t begin, std::int64_t end) {
      pool::Backward(shape, x.const_data_ptr<float>(), gradient.const_data_ptr<float>(), begin, end,
                     x_gradient.mutable_data_ptr<float>());
    });
    return {x_gradient, {}};
  }
};

bool CanPool(const at::Tensor& x) {
  return IsChannelsLastFloat(x) && x.numel() > 0 && x.size(2) % 2 == 0 && x.size(3) % 2 == 0;
}

}  // namespace

at::Tensor MaxPool2x2(const at::Tensor& x, bool relu) {
  // Autograd has something to keep only in training, and a traced program wants ATen's operations.
  if (x.requires_grad() && CanPool(x)) return Pooled::apply(x, relu);
  const at::Tensor out = at::max_pool2d(x, 2);
  return relu ? out.relu_() : out;
}

}  // namespace ddprun
