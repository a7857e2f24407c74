// SPDX-License-Identifier: Apache-2.0
// A network in stages, one on each rank: activations go forward and gradients backward by send and
// receive of the world's process group. Micro-batches keep the stages busy (GPipe, Huang et al.,
// 2019): rank 0 sends the second one while rank 1 works on the first.
//
//   ddprun --standalone --nproc-per-node 2 ./pipeline [STEPS]
#include <ddprun/ddprun.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr std::int64_t kWidth = 32;
constexpr std::int64_t kMicroBatches = 4;
constexpr std::int64_t kRows = 16;  // of a micro-batch

// Row and column of a point in the unit square, and on which side of a circle it lies.
struct Points {
  at::Tensor places = at::rand({kMicroBatches * kRows, 2});
  at::Tensor sides = ((places - 0.5).square().sum(1) > 0.12).to(at::kLong);
};

// Moves tensors between neighbours. What is sent must stay as it is until Finish().
class Links {
 public:
  explicit Links(ddprun::World& world) : world_(world) {}

  void Send(const at::Tensor& tensor, int to) {
    sent_.push_back(tensor.detach().contiguous());
    std::vector<at::Tensor> message{sent_.back()};
    works_.push_back(world_.group()->send(message, to, /*tag=*/0));
  }
  at::Tensor Receive(int from) {
    std::vector<at::Tensor> message{at::empty({kRows, kWidth}, world_.device())};
    ddprun::Await(world_, world_.group()->recv(message, from, /*tag=*/0));
    return message[0];
  }
  void Finish() {
    for (const auto& work : works_) ddprun::Await(world_, work);
    works_.clear();
    sent_.clear();
  }

 private:
  ddprun::World& world_;
  std::vector<at::Tensor> sent_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each line at once, into a pipe too
  const std::int64_t steps = argc > 1 ? std::atoll(argv[1]) : 200;
  // Each rank holds a part that no other one has: none can go on without all.
  return ddprun::Main(
      argc, argv,
      [&](ddprun::World& world) {
        const bool first = world.rank() == 0;
        const bool last = world.rank() == world.size() - 1;
        torch::manual_seed(world.rank());
        torch::nn::Sequential stage(torch::nn::Linear(first ? 2 : kWidth, kWidth),
                                    torch::nn::ReLU(),
                                    torch::nn::Linear(kWidth, last ? 2 : kWidth));
        if (!last) stage->push_back(torch::nn::ReLU());
        stage->to(world.device());
        torch::optim::Adam optimizer(stage->parameters(), torch::optim::AdamOptions(1e-2));
        Links links(world);
        for (std::int64_t step = 1; step <= steps; ++step) {
          torch::manual_seed(1000 + step);  // the same points on all ranks
          const Points points;
          const auto rows = points.places.to(world.device()).chunk(kMicroBatches);
          const auto sides = points.sides.to(world.device()).chunk(kMicroBatches);
          std::vector<at::Tensor> inputs, outputs;
          double loss = 0;
          for (std::int64_t i = 0; i < kMicroBatches; ++i) {
            inputs.push_back(first ? rows[i] : links.Receive(world.rank() - 1).requires_grad_());
            outputs.push_back(stage->forward(inputs[i]));
            if (!last) links.Send(outputs[i], world.rank() + 1);
          }
          for (std::int64_t i = 0; i < kMicroBatches; ++i) {
            if (last) {
              const auto part =
                  torch::cross_entropy_loss(outputs[i], sides[i]) / double(kMicroBatches);
              part.backward();
              loss += part.item<double>();
            } else {
              outputs[i].backward(links.Receive(world.rank() + 1));
            }
            if (!first) links.Send(inputs[i].grad(), world.rank() - 1);
          }
          links.Finish();
          optimizer.step();
          optimizer.zero_grad();
          world.Progress(step);
          if (step % 50 == 0 && last) std::printf("step %ld loss %.4f\n", long(step), loss);
        }
      },
      {.keep = false});
}
