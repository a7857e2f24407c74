// SPDX-License-Identifier: Apache-2.0
// A small transformer that learns to write the next byte of a text, with what several ranks need
// beyond plain data parallelism: gradient accumulation, gradients that travel as bfloat16, and an
// optimizer whose state is divided among the ranks (ZeRO-1).
//
//   ddprun --standalone --nproc-per-node 2 ./transformer TEXT OUT [STEPS]
#include <ddprun/ddprun.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace nn = torch::nn;

constexpr std::int64_t kLength = 64;     // bytes of a sample
constexpr std::int64_t kWidth = 64;      // of a byte's vector
constexpr std::int64_t kBatch = 8;       // samples of one rank
constexpr std::int64_t kAccumulate = 2;  // batches a step

// Two layers of four heads.
nn::TransformerEncoderOptions Layers() {
  return {nn::TransformerEncoderLayerOptions(kWidth, 4).dim_feedforward(4 * kWidth).dropout(0), 2};
}

struct WriterImpl : nn::Module {
  nn::Embedding bytes{register_module("bytes", nn::Embedding(256, kWidth))};
  nn::Embedding places{register_module("places", nn::Embedding(kLength, kWidth))};
  nn::TransformerEncoder layers{register_module("layers", nn::TransformerEncoder(Layers()))};
  nn::Linear head{register_module("head", nn::Linear(kWidth, 256))};

  // N x length bytes to N x length x 256 scores, each of the byte after.
  at::Tensor forward(const at::Tensor& text) {
    const auto x = bytes(text) + places(at::arange(text.size(1), text.options()));
    // Minus infinity where a byte would see a later one.
    const auto mask = nn::TransformerImpl::generate_square_subsequent_mask(kLength).to(x.device());
    return head(layers(x.transpose(0, 1), mask).transpose(0, 1));
  }
};
TORCH_MODULE(Writer);

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each line at once, into a pipe too
  std::ifstream file(argc > 2 ? argv[1] : "", std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::int64_t steps = argc > 3 ? std::atoll(argv[3]) : 300;
  const std::int64_t samples = std::int64_t(text.size()) / kLength - 1;
  if (samples < 1) {
    std::fprintf(stderr, "usage: %s TEXT OUT [STEPS]: TEXT has more than 128 bytes\n", argv[0]);
    return 2;
  }
  const at::Tensor all = at::from_blob(text.data(), {std::int64_t(text.size())}, at::kByte);

  return ddprun::Main(argc, argv, [&](ddprun::World& world) {
    torch::manual_seed(0);
    Writer net;
    net->to(world.device());
    ddprun::DistributedDataParallel ddp(world, *net, {.format = ddprun::GradientFormat::kBFloat16});
    ddprun::ZeroRedundancyOptimizer<torch::optim::AdamW> optimizer(
        world, net->parameters(), torch::optim::AdamWOptions(3e-3));
    ddprun::Checkpoints saved(world, {.folder = argv[2], .every_steps = 100});
    saved.Track("model", *net);
    saved.Track("optimizer", optimizer);
    for (auto& epoch :
         saved.Epochs(samples, {.batch_size = kBatch * kAccumulate, .steps = steps})) {
      for (auto& [rows, at] : epoch) {
        std::vector<at::Tensor> lines;
        for (const std::size_t row : rows)
          lines.push_back(all.narrow(0, std::int64_t(row) * kLength, kLength + 1));
        const auto parts = at::stack(lines).to(world.device(), at::kLong).chunk(kAccumulate);
        double loss = 0;
        const auto backward = [&](const at::Tensor& part) {
          const auto scores = ddp.Forward([&] { return net(part.narrow(1, 0, kLength)); });
          const auto next = part.narrow(1, 1, kLength);
          const auto of_part = torch::cross_entropy_loss(scores.flatten(0, 1), next.flatten());
          (of_part / double(parts.size())).backward();
          loss += of_part.item<double>() / double(parts.size());
        };
        {
          const auto no_sync = ddp.NoSync();  // only the last backward of a step communicates
          for (std::size_t i = 0; i + 1 < parts.size(); ++i) backward(parts[i]);
        }
        backward(parts.back());
        optimizer.step();
        optimizer.zero_grad();
        if ((at.step == 1 || at.step % 50 == 0) && world.rank() == 0)
          std::printf("step %ld loss %.4f\n", long(at.step), loss);
      }
    }
  });
}
