// SPDX-License-Identifier: Apache-2.0
// A trainer with all that a training that goes on may lose: two networks that train each other with
// an optimizer and a schedule each, dropout, data varied by the default generator, gradients that
// are accumulated (of one) or sent in 16 bits (of the other).
//
//   two_networks FOLDER go|die|stop EPOCHS
//
// In step 23, between the two optimizers' steps, rank 1 dies of SIGKILL or gets SIGTERM, in its
// first life. Prints the sum of all parameters.
#include <ddprun/ddprun.h>
#include <torch/torch.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

constexpr std::int64_t kFaultStep = 23;
constexpr std::int64_t kSamples = 200;
constexpr std::int64_t kBatch = 10;

torch::nn::Sequential Network(int in, int out) {
  return torch::nn::Sequential(torch::nn::Linear(in, 32), torch::nn::ReLU(),
                               torch::nn::Dropout(0.3), torch::nn::Linear(32, out));
}

// Points on a circle, by their numbers.
struct Circle : torch::data::datasets::Dataset<Circle> {
  torch::data::Example<> get(std::size_t index) override {
    const at::Tensor angle = at::scalar_tensor(0.1 * static_cast<double>(index));
    return {at::stack({angle.cos(), angle.sin()}).to(at::kFloat), at::zeros({1})};
  }
  std::optional<std::size_t> size() const override { return kSamples; }
};

void Fail(const std::string& way, const ddprun::World& world, std::int64_t step) {
  const char* const restarts = std::getenv("TORCHELASTIC_RESTART_COUNT");
  if (step != kFaultStep || world.rank() != 1 || std::string(restarts ? restarts : "0") != "0")
    return;
  if (way == "die") std::raise(SIGKILL);
  if (way == "stop") std::raise(SIGTERM);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string folder = argv[1];
  const std::string way = argv[2];
  const std::int64_t epochs = std::atoi(argv[3]);
  return ddprun::Main(argc, argv, [&](ddprun::World& world) {
    at::set_num_threads(1);
    torch::manual_seed(1);
    auto maker = Network(4, 2);
    auto judge = Network(2, 1);
    ddprun::DistributedDataParallel ddp_maker(world, *maker);
    ddprun::DistributedDataParallel ddp_judge(world, *judge,
                                              {.format = ddprun::GradientFormat::kBFloat16});
    torch::optim::Adam maker_steps(maker->parameters(), 1e-2);
    torch::optim::SGD judge_steps(judge->parameters(),
                                  torch::optim::SGDOptions(1e-2).momentum(0.9));
    torch::optim::StepLR maker_rates(maker_steps, 1, 0.5);
    torch::optim::StepLR judge_rates(judge_steps, 7, 0.8);
    ddprun::Checkpoints saved(world, {.folder = folder});
    saved.Track("maker", *maker);
    saved.Track("judge", *judge);
    saved.Track("maker_steps", maker_steps);
    saved.Track("judge_steps", judge_steps);
    saved.Track("maker_rates", maker_rates);  // by epochs
    saved.Track("judge_rates", judge_rates);  // by steps
    const auto data = Circle().map(torch::data::transforms::Stack<>());
    auto at = saved.Resume();
    for (; at.epoch < epochs; at.NextEpoch()) {
      ddprun::EpochSampler sampler(world, kSamples, {.batch_size = kBatch, .position = at});
      const auto loader = torch::data::make_data_loader(data, sampler, kBatch);
      for (auto& batch : *loader) {
        const at::Tensor real = batch.data + 0.05 * torch::randn_like(batch.data);
        const at::Tensor made = maker->forward(torch::randn({real.size(0), 4})).detach();
        auto [on_real, on_made] = ddp_judge.Forward(
            [&] { return std::make_tuple(judge->forward(real), judge->forward(made)); });
        (torch::softplus(-on_real).mean() + torch::softplus(on_made).mean()).backward();
        judge_steps.step();
        judge_rates.step();
        ddp_judge.ZeroGrad();
        Fail(way, world, at.step + 1);
        const auto fool = [&] {
          const at::Tensor again = ddp_maker.Forward([&] {
            return maker->forward(torch::randn({real.size(0), 4}));
          });
          torch::softplus(-judge->forward(again)).mean().backward();
        };
        {
          const auto no_sync = ddp_maker.NoSync();
          fool();
        }
        fool();
        maker_steps.step();
        ddp_maker.ZeroGrad();
        ddp_judge.ZeroGrad();
        sampler.Advance(at);
        if (saved.EndStep(at)) return;
      }
      maker_rates.step();
    }
    saved.Finish(at);
    double sum = 0;
    for (const auto& network : {maker, judge}) {
      for (const at::Tensor& parameter : network->parameters())
        sum += parameter.detach().to(at::kDouble).sum().item<double>();
    }
    if (world.rank() == 0) std::printf("sum %.17g after step %ld\n", sum, at.step);
  });
}
