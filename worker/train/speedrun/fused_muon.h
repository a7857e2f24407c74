// SPDX-License-Identifier: Apache-2.0
// The elementwise parts of Muon's steps in two kernels (kernels/muon.cu): before and after the
// filters' matrices are made orthogonal.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/library/accelerator/kernel_launcher.h"

namespace ddprun {

struct FusedMuon {
  // Banks of filters, each dense and one filter after the other in memory, in the same order in
  // all. `cast` may be undefined.
  struct Item {
    at::Tensor weight;
    at::Tensor gradient;
    at::Tensor velocity;
    at::Tensor cast;
  };

  KernelLauncher& kernels;
  double momentum = 0;
  const std::vector<Item>& items;

  // Moves the velocities, and writes the directions into `matrices`, one for each item, filled with
  // zeros: one filter a row, or a column where there are more filters than numbers in each. Where
  // `skip` is 1 (Optimizer::Step) it does nothing, and neither does Update().
  void Directions(const at::Tensor& skip, const at::Tensor& matrices) const;

  // Scales each bank to a norm of the root of its filters, and takes away `rate` times its matrix.
  void Update(const at::Tensor& rate, const at::Tensor& skip, const at::Tensor& matrices) const;
};

}  // namespace ddprun
