// SPDX-License-Identifier: Apache-2.0
// What World does over a network, between two threads: adds up their tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <barrier>

namespace ddprun {

class ThreadsSum {
 public:
  static constexpr int kRanks = 2;

  void Add(int rank, at::Tensor& values) {
    tensors_[static_cast<std::size_t>(rank)] = values.clone();
    barrier_.arrive_and_wait();
    values.copy_(tensors_[0] + tensors_[1]);
    barrier_.arrive_and_wait();  // nobody writes the next before all have read this one
  }

 private:
  std::array<at::Tensor, kRanks> tensors_;
  std::barrier<> barrier_{kRanks};
};

}  // namespace ddprun
