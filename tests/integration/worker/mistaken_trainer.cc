// SPDX-License-Identifier: Apache-2.0
// Trainers with the mistakes that users of a DDP wrapper make: `mistaken_trainer MISTAKE FOLDER`.
#include <ddprun/ddprun.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace {

using ddprun::DistributedDataParallel;

struct Net : torch::nn::Module {
  torch::nn::Linear used = register_module("used", torch::nn::Linear(4, 2));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(4, 2));
};

void Train(ddprun::World& world, const std::string& mistake, const std::string& folder) {
  torch::manual_seed(1);
  Net net;
  const bool outside = mistake == "outside";
  if (!mistake.starts_with("unused") && !outside) net.unused->weight.set_requires_grad(false);
  if (!mistake.starts_with("unused") && !outside) net.unused->bias.set_requires_grad(false);
  DistributedDataParallel ddp(world, net, {.find_unused_parameters = outside});
  // With a rate of 0 the first step cannot tell whether gradients were averaged.
  const bool early = mistake == "early-end";
  torch::optim::SGD optimizer(
      net.parameters(),
      torch::optim::SGDOptions(mistake == "no-forward-late" ? 0.0 : 0.1).momentum(early ? 0.9 : 0));
  ddprun::ZeroRedundancyOptimizer<torch::optim::SGD> parts(world, net.parameters(),
                                                           torch::optim::SGDOptions(0.1));
  ddprun::Checkpoints saved(world,
                            {.folder = folder, .check_parameters = mistake != "unused-unchecked"});
  saved.Track("net", net);
  saved.Track("optimizer", optimizer);
  if (mistake == "no-finish-of-parts") saved.Track("parts", parts);
  if (mistake == "second-checkpoints")
    ddprun::Checkpoints more(world, {.folder = folder + "/more"});
  ddprun::TrainingPosition at = saved.Resume();
  for (int i = 0; i < 3; ++i) {
    const at::Tensor batch = torch::full({8, 4}, 1.0 + world.rank());
    const auto forward = [&] { return net.used(batch).square().mean(); };
    const bool forgets = mistake.starts_with("no-forward");
    at::Tensor loss = forgets ? forward() : ddp.Forward(forward);
    if (outside) loss = loss + net.unused(batch).square().mean();
    loss.backward({}, /*retain_graph=*/true);
    if (mistake == "twice") loss.backward();
    if (!early) optimizer.step();
    if (!early) optimizer.zero_grad(/*set_to_none=*/mistake != "zero-grad");
    static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).lr(0.1);
    if (mistake != "no-advance") ++at.step;
    if (mistake == "hang" && world.rank() == 0) {
      std::puts("hangs");
      std::fflush(stdout);
      std::this_thread::sleep_for(std::chrono::minutes(10));
    }
    if (saved.EndStep(at)) return;
  }
  if (!mistake.starts_with("no-finish")) saved.Finish(at);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string mistake = argv[1];
  ddprun::MainOptions options;
  options.world.device = ddprun::DeviceChoice::kCpu;
  if (mistake == "nccl-on-cpu") options.world.backend = ddprun::BackendChoice::kNccl;
  return ddprun::Main(
      argc, argv, [&](ddprun::World& world) { Train(world, mistake, argv[2]); }, options);
}
