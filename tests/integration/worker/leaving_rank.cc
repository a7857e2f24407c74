// SPDX-License-Identifier: Apache-2.0
// A trainer whose rank 1 leaves while rank 0 waits for it: `leaving_rank return` or `exit`.
#include <ddprun/ddprun.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <string>

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
    // Without a way both take long to leave, which is no reason to end.
    if (way.empty() && world.rank() == 1) std::system("sleep 4");
    if (!way.empty()) world.AllReduceSum(ones);
  });
}
