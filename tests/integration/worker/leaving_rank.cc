// SPDX-License-Identifier: Apache-2.0
// A trainer whose rank 1 leaves while rank 0 waits for it: `leaving_rank return` or `exit`.
#include <ddprun/ddprun.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

int main(int argc, char** argv) {
  const std::string way = argc > 1 ? argv[1] : "";
  return ddprun::Main(argc, argv, [&](ddprun::World& world) {
    at::Tensor ones = at::ones({3});
    world.AllReduceSum(ones);
    if (world.rank() == 1 && !way.empty()) {
      std::puts("the data set is empty, leaving");
      std::fflush(stdout);
      if (way == "exit") std::exit(0);
      return;
    }
    // Without a way one takes long to leave, which is no reason to end the other.
    if (way.empty() && world.rank() == 0) world.Progress(1);
    for (int i = 0; way.empty() && world.rank() == 1 && i < 30; ++i) {
      world.Progress(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    if (!way.empty()) world.AllReduceSum(ones);
  });
}
