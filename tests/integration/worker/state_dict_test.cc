// SPDX-License-Identifier: Apache-2.0
// Model files between C++ and the real Python, both ways.
#include "worker/library/files/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "tests/testing/paths.h"

namespace ddprun {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The same as Net in state_dict_peer.py.
struct SmallNetImpl : torch::nn::Module {
  SmallNetImpl() {
    register_module("conv", conv = torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 4, 3)));
    register_module("norm", norm = torch::nn::BatchNorm2d(4));
    register_module("body",
                    body = torch::nn::Sequential(torch::nn::Linear(16, 8), torch::nn::ReLU(),
                                                 torch::nn::Linear(8, 3)));
  }
  at::Tensor forward(const at::Tensor& input) {
    return body->forward(torch::relu(norm(conv(input))).flatten(1));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Sequential body{nullptr};
};
TORCH_MODULE(SmallNet);

at::Tensor Ramp(at::IntArrayRef shape, std::size_t start, at::ScalarType type) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return (at::arange(count, at::kDouble) / 8 + static_cast<double>(start)).reshape(shape).to(type);
}

void FillWithRamps(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  const NamedTensors state = StateDict(module);
  for (std::size_t i = 0; i < state.size(); ++i) {
    at::Tensor tensor = state[i].second;
    tensor.copy_(Ramp(tensor.sizes(), i, tensor.scalar_type()));
  }
}

struct Outcome {
  int status = -1;
  std::string output;
};

Outcome Python(const std::string& verb, const std::string& path) {
  const std::string command = "PYTHONPATH='" + TorchPythonPath() + "' '" + TestPython() + "' '" +
                              SourcePath("tests/integration/worker/state_dict_peer.py") + "' " +
                              verb + " '" + path + "' 2>&1";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  while (const std::size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    outcome.output.append(buffer.data(), size);
  }
  outcome.status = pclose(pipe);
  return outcome;
}

class StateDictWithPython : public testing::Test {
 protected:
  std::string path_ = testing::TempDir() + "state_dict_" + std::to_string(getpid()) + ".pth";
  ~StateDictWithPython() override { std::filesystem::remove(path_); }
};

TEST_F(StateDictWithPython, PythonLoadsOursWithItsDefaultsAndComputesTheSame) {
  SmallNet net;
  FillWithRamps(*net);
  SaveStateDict(*net, path_);
  const Outcome python = Python("read", path_);
  ASSERT_EQ(python.status, 0) << python.output;
  net->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor logits = net->forward(Ramp({1, 2, 4, 4}, 0, at::kFloat) / 10).flatten();
  std::istringstream text(python.output);
  for (int64_t i = 0; i < logits.numel(); ++i) {
    double theirs = 0;
    ASSERT_TRUE(text >> theirs) << python.output;
    EXPECT_NEAR(logits[i].item<double>(), theirs, 1e-4 * std::abs(theirs));
  }
}

TEST_F(StateDictWithPython, ChannelsLastParametersArriveContiguous) {
  SmallNet net;
  FillWithRamps(*net);
  net->conv->weight.set_data(net->conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  SaveStateDict(*net, path_);
  const Outcome python = Python("read", path_);
  EXPECT_EQ(python.status, 0) << python.output;
}

TEST_F(StateDictWithPython, WeLoadPythons) {
  const Outcome python = Python("write", path_);
  ASSERT_EQ(python.status, 0) << python.output;
  SmallNet net;
  LoadStateDict(*net, path_);
  const NamedTensors state = StateDict(*net);
  for (std::size_t i = 0; i < state.size(); ++i) {
    const at::Tensor& tensor = state[i].second;
    EXPECT_TRUE(at::equal(tensor, Ramp(tensor.sizes(), i, tensor.scalar_type()))) << state[i].first;
  }
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    const at::Tensor weight = at::zeros({2, 3});
    register_buffer("a", weight);
    register_buffer("b", weight);
    register_buffer("row", at::zeros({3}));
    register_buffer("turned", at::zeros({3, 2}));
  }
};

TEST_F(StateDictWithPython, WeLoadPythonsViewsAndSharedTensors) {
  const Outcome python = Python("write_tied", path_);
  ASSERT_EQ(python.status, 0) << python.output;
  TiedImpl module;
  LoadStateDict(module, path_);
  const at::Tensor weight = at::arange(6, at::kFloat).reshape({2, 3});
  EXPECT_TRUE(at::equal(module.named_buffers()["b"], weight));
  EXPECT_TRUE(at::equal(module.named_buffers()["row"], weight[1]));
  EXPECT_TRUE(at::equal(module.named_buffers()["turned"], weight.t()));
}

TEST_F(StateDictWithPython, PythonFindsTiedTensorsTiedAndViewsAlone) {
  const at::Tensor weight = at::arange(6, at::kFloat).reshape({2, 3});
  torch::nn::Module module;
  module.register_buffer("a", weight);
  module.register_buffer("b", weight);
  module.register_buffer("view", weight[1]);
  module.register_buffer("turned", weight.t());
  SaveStateDict(module, path_);
  const Outcome python = Python("check_tied", path_);
  EXPECT_EQ(python.status, 0) << python.output;
}

}  // namespace
}  // namespace ddprun
