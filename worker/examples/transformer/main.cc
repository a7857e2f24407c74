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

struct BlockImpl : nn::Module {
  nn::LayerNorm norm1{register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})))};
  nn::LayerNorm norm2{register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})))};
  nn::Linear qkv{register_module("qkv", nn::Linear(kWidth, 3 * kWidth))};
  nn::Linear out{register_module("out", nn::Linear(kWidth, kWidth))};
  nn::Linear up{register_module("up", nn::Linear(kWidth, 4 * kWidth))};
  nn::Linear down{register_module("down", nn::Linear(4 * kWidth, kWidth))};

  at::Tensor forward(at::Tensor x) {
    const auto parts =
        qkv(norm1(x)).view({x.size(0), x.size(1), 3, 4, kWidth / 4}).permute({2, 0, 3, 1, 4});
    const auto attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + out(attended.transpose(1, 2).flatten(2));
    return x + down(at::gelu(up(norm2(x))));
  }
};
TORCH_MODULE(Block);

struct WriterImpl : nn::Module {
  nn::Embedding bytes{register_module("bytes", nn::Embedding(256, kWidth))};
  nn::Embedding places{register_module("places", nn::Embedding(kLength, kWidth))};
  Block block1{register_module("block1", Block())};
  Block block2{register_module("block2", Block())};
  nn::Linear head{register_module("head", nn::Linear(kWidth, 256))};

  at::Tensor forward(const at::Tensor& text) {
    const auto x = bytes(text) + places(at::arange(text.size(1), text.options()));
    return head(block2(block1(x)));
  }
};
TORCH_MODULE(Writer);

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each line at once, into a pipe too
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s TEXT OUT [STEPS]\n", argv[0]);
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::int64_t steps = argc > 3 ? std::atoll(argv[3]) : 300;
  const auto samples = static_cast<std::int64_t>(text.size()) / kLength - 1;
  if (samples < 1) {
    std::fprintf(stderr, "%s: %s has no text to learn from\n", argv[0], argv[1]);
    return 2;
  }
  const at::Tensor all = at::from_blob(const_cast<char*>(text.data()),
                                       {static_cast<std::int64_t>(text.size())}, at::kByte);

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
          lines.push_back(all.narrow(0, static_cast<std::int64_t>(row) * kLength, kLength + 1));
        const auto parts = at::stack(lines).to(world.device(), at::kLong).chunk(kAccumulate);
        double loss = 0;
        const auto backward = [&](const at::Tensor& text) {
          const auto input = text.narrow(1, 0, kLength);
          const auto next = text.narrow(1, 1, kLength);
          const auto logits = ddp.Forward([&] { return net(input); });
          const auto part = torch::cross_entropy_loss(logits.flatten(0, 1), next.flatten()) /
                            double(parts.size());
          part.backward();
          loss += part.item<double>();
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
