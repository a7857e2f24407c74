// SPDX-License-Identifier: Apache-2.0
// Muon for convolutions, and SGD for everything else: the optimizer of airbench94_muon.
//
// A filter bank (one filter a row) steps by the matrix that is nearest to its momentum and has
// singular values of about 1: each direction in which the gradients agree counts alike, however
// small it is. Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), and
// github.com/KellerJordan/cifar10-airbench, whose order of operations this has:
//
//     v = momentum * v + g;  u = g + momentum * v                      (Nesterov)
//     w = w * sqrt(filters) / |w| - rate * orthogonal(u)
//
// As a batch norm follows, the length of w says nothing; keeping it makes the rate the angle by
// which w turns.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "worker/train/config/config.h"
#include "worker/train/optimizer/optimizer.h"

namespace ddprun {

// Three Newton-Schulz steps (3.4445, -4.7750, 2.0315) towards U V' for each of `matrices` = U S V',
// B x R x C with R <= C: singular values from 0.2 times the largest on come to between about 0.5
// and 1.3, and one of zero stays. Rows or columns of zeros change nothing. In and out in the same
// floating type, bf16 suffices.
at::Tensor Orthogonal(const at::Tensor& matrices);

// Tensors of four dimensions are filter banks, for which lr and muon-momentum are; Nesterov's SGD
// with momentum takes those of two with head-lr and those of one with bias-lr, both falling as lr
// does. These two are for the sum of a step's images: the mean's gradient is taken size.images
// times. A step at the full rate takes the share weight-decay off them. kWhiteningBias has a rate
// of its own, which falls from bias-lr to zero within whiten-epochs, counted in "whiten.bias/step".
// The rest of the state are momentum buffers.
//
// The host never waits for the device, and no number that the host passes changes from step to
// step: a step can be recorded as a CUDA graph.
std::unique_ptr<Optimizer> MakeMuon(const Config& config, NamedTensors parameters,
                                    const StepSize& size);

}  // namespace ddprun
