// SPDX-License-Identifier: Apache-2.0
// A trainer of one's own: a small convolutional network on Fashion-MNIST, on as many ranks as there
// are. It goes on from its last checkpoint after a restart, and in place when another rank dies.
//
//   ddprun --standalone --nproc-per-node 2 --max-restarts 3 ./fashion_mnist DATA OUT [STEPS]
//
// DATA has the four files of MNIST's format, not compressed.
#include <ddprun/ddprun.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <limits>

#include "images.h"

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(3, 6, 5))};
  torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(6, 16, 5))};
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(16 * 5 * 5, 120))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(120, 84))};
  torch::nn::Linear fc3{register_module("fc3", torch::nn::Linear(84, 10))};

  at::Tensor forward(at::Tensor x) {
    x = at::max_pool2d(conv1(x), 2).relu_();
    x = at::max_pool2d(conv2(x), 2).relu_();
    return fc3(fc2(fc1(x.flatten(1)).relu_()).relu_());
  }
};
TORCH_MODULE(Net);

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each line at once, into a pipe too
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s DATA OUT [STEPS]\n", argv[0]);
    return 2;
  }
  const std::int64_t last_step =
      argc > 3 ? std::atoll(argv[3]) : std::numeric_limits<std::int64_t>::max();
  const Images data(argv[1]);
  const auto train = [&](ddprun::World& world) {
    torch::manual_seed(0);
    Net net;
    net->to(world.device());
    ddprun::DistributedDataParallel ddp(world, *net);
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
    ddprun::Checkpoints saved(world, {.folder = argv[2], .every_steps = 500});
    saved.Track("model", *net);
    saved.Track("optimizer", optimizer);
    for (auto& epoch : saved.Epochs(data, {.batch_size = 64, .epochs = 10, .steps = last_step})) {
      for (auto& [batch, at] : epoch) {
        const auto images = batch.data.to(world.device());
        const auto labels = batch.target.to(world.device());
        const auto loss =
            torch::cross_entropy_loss(ddp.Forward([&] { return net(images); }), labels);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        if (at.step % 100 == 0 && world.rank() == 0)
          std::printf("epoch %ld step %ld loss %.4f\n", long(at.epoch), long(at.step),
                      loss.item<double>());
      }
    }
  };
  return ddprun::Main(argc, argv, train, {.keep_freed_memory = true});
}
