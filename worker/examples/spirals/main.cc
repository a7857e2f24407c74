// SPDX-License-Identifier: Apache-2.0
// What most trainings need: a data set of one's own, two optimizers, clipped gradients, a schedule
// by epochs and an evaluation over all ranks. It goes on where it was, whatever ended it.
//
//   ddprun --standalone --nproc-per-node 2 --max-restarts 3 ./spirals OUT [EPOCHS]
#include <ddprun/ddprun.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

// Points on two spirals, by their numbers, and on which of them each lies.
struct Spirals : torch::data::datasets::Dataset<Spirals> {
  explicit Spirals(std::size_t points) : points(points) {}
  torch::data::Example<> get(std::size_t index) override {
    const double way = double(index) / double(points), angle = 9 * way + M_PI * (index % 2);
    return {at::tensor({4 * way * std::cos(angle), 4 * way * std::sin(angle)}, at::kFloat),
            at::scalar_tensor(std::int64_t(index % 2), at::kLong)};
  }
  std::optional<std::size_t> size() const override { return points; }
  std::size_t points;
};

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each line at once, into a pipe too
  const std::int64_t epochs = argc > 2 ? std::atoll(argv[2]) : 40;
  const auto data = Spirals(2000).map(torch::data::transforms::Stack<>());
  auto others = Spirals(701).map(torch::data::transforms::Stack<>());
  return ddprun::Main(argc, argv, [&](ddprun::World& world) {
    torch::manual_seed(0);
    using torch::nn::Linear, torch::nn::Tanh;
    torch::nn::Sequential net(Linear(2, 64), Tanh(), Linear(64, 64), Tanh(), Linear(64, 2));
    net->to(world.device());
    ddprun::DistributedDataParallel ddp(world, *net);
    auto first = net->parameters();
    const std::vector<at::Tensor> last(first.end() - 2, first.end());
    first.resize(first.size() - 2);
    torch::optim::AdamW adam(first, 1e-2);
    torch::optim::SGD sgd(last, torch::optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::StepLR schedule(adam, /*step_size=*/15, /*gamma=*/0.3);
    ddprun::Checkpoints saved(world, {.folder = argc > 1 ? argv[1] : "spirals-run"});
    saved.Track("net", *net);
    saved.Track("adam", adam);
    saved.Track("sgd", sgd);
    saved.Track("schedule", schedule);
    for (auto& epoch : saved.Epochs(data, {.batch_size = 32, .epochs = epochs})) {
      for (auto& [batch, at] : epoch) {
        const auto points = batch.data.to(world.device()), sides = batch.target.to(world.device());
        torch::cross_entropy_loss(ddp.Forward([&] { return net->forward(points); }), sides)
            .backward();
        torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
        adam.step();
        sgd.step();
        adam.zero_grad();
        sgd.zero_grad();
      }
      schedule.step();

      const torch::NoGradGuard no_grad;
      std::vector<std::size_t> own;  // each rank's share of the other points
      for (auto i = std::size_t(world.rank()); i < 701; i += std::size_t(world.size()))
        own.push_back(i);
      const auto batch = others.get_batch(own);
      const auto scores = net->forward(batch.data.to(world.device())).cpu();
      at::Tensor right = scores.argmax(1).eq(batch.target).sum().to(world.device());
      world.AllReduceSum(right);
      if (world.rank() == 0)
        std::printf("rate %.4f accuracy %.4f\n", adam.param_groups()[0].options().get_lr(),
                    right.item<double>() / 701);
    }
  });
}
