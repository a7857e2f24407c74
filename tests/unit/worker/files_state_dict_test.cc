// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <filesystem>

#include "tests/unit/worker/temp_files.h"
#include "worker/library/files/state_dict.h"

namespace ddprun {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

torch::nn::Sequential MakeNet(int64_t classes = 2) {
  return torch::nn::Sequential(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4),
                               torch::nn::Linear(4, classes));
}

std::vector<std::string> Names(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : StateDict(module)) names.push_back(name);
  return names;
}

template <class Call>
std::string RuntimeErrorOf(Call call) {
  return MessageOf<std::runtime_error>(call);
}

TEST(StateDict, NamesAndOrderArePythons) {
  EXPECT_THAT(Names(*MakeNet()),
              ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean",
                          "1.running_var", "1.num_batches_tracked", "2.weight", "2.bias"));
}

TEST(StateDict, WhatIsSavedIsLoadedBitForBit) {
  const TempFiles files;
  auto net = MakeNet();
  net->forward(at::randn({8, 3}));  // moves the running statistics
  SaveStateDict(*net, files.Path("net.pth"));
  auto other = MakeNet();
  LoadStateDict(*other, files.Path("net.pth"));
  const NamedTensors saved = StateDict(*net), loaded = StateDict(*other);
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_TRUE(at::equal(saved[i].second, loaded[i].second)) << saved[i].first;
    EXPECT_EQ(saved[i].second.scalar_type(), loaded[i].second.scalar_type()) << saved[i].first;
  }
}

TEST(StateDict, LoadingKeepsParametersTrainable) {
  const TempFiles files;
  auto net = MakeNet();
  SaveStateDict(*net, files.Path("net.pth"));
  LoadStateDict(*net, files.Path("net.pth"));
  for (const at::Tensor& parameter : net->parameters()) {
    EXPECT_TRUE(parameter.requires_grad());
    EXPECT_TRUE(parameter.is_leaf());
  }
}

TEST(StateDict, ShapesThatDifferAreNamedAndNothingIsLoaded) {
  const TempFiles files;
  SaveStateDict(*MakeNet(5), files.Path("net.pth"));
  auto net = MakeNet(2);
  const at::Tensor before = net->parameters()[0].detach().clone();
  EXPECT_EQ(RuntimeErrorOf([&] { LoadStateDict(*net, files.Path("net.pth")); }),
            files.Path("net.pth") +
                " does not fit the model; of another shape: 2.weight is [5, 4] instead of [2, 4], "
                "2.bias is [5] instead "
                "of [2]");
  EXPECT_TRUE(at::equal(net->parameters()[0], before));
}

TEST(StateDict, MissingAndUnexpectedKeysAreNamed) {
  const TempFiles files;
  SaveStateDict(*torch::nn::Sequential(torch::nn::Linear(3, 4)), files.Path("small.pth"));
  EXPECT_THAT(RuntimeErrorOf([&] { LoadStateDict(*MakeNet(), files.Path("small.pth")); }),
              HasSubstr("; missing: 1.weight, 1.bias, 1.running_mean, 1.running_var, "
                        "1.num_batches_tracked and 2 more"));
  SaveStateDict(*MakeNet(), files.Path("net.pth"));
  torch::nn::Sequential small(torch::nn::Linear(3, 4));
  EXPECT_THAT(RuntimeErrorOf([&] { LoadStateDict(*small, files.Path("net.pth")); }),
              HasSubstr("; unexpected: 1.bias, 1.num_batches_tracked, 1.running_mean, "
                        "1.running_var, 1.weight and 2 more"));
}

TEST(StateDict, AFileThatIsNotThereIsNamed) {
  EXPECT_EQ(RuntimeErrorOf([] { LoadStateDict(*MakeNet(), "/nonexistent/net.pth"); }),
            "/nonexistent/net.pth is not there");
}

TEST(StateDict, AFileOfAnotherFormatIsNamed) {
  const TempFiles files;
  const std::string path = files.Write("net.pth", "this is no zip file");
  const std::string message = RuntimeErrorOf([&] { LoadStateDict(*MakeNet(), path); });
  EXPECT_THAT(message, HasSubstr(path + " is not a state dict that torch.save wrote"));
  EXPECT_THAT(message, testing::Not(HasSubstr("\n")));
}

TEST(StateDict, AFileThatIsCutShortIsNamed) {
  const TempFiles files;
  const std::string path = files.Path("net.pth");
  SaveStateDict(*MakeNet(), path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(RuntimeErrorOf([&] { LoadStateDict(*MakeNet(), path); }), HasSubstr(path));
}

TEST(StateDict, AFolderThatIsNotThereIsNamed) {
  EXPECT_THAT(RuntimeErrorOf([] { SaveStateDict(*MakeNet(), "/nonexistent/net.pth"); }),
              HasSubstr("cannot create /nonexistent/net.pth: No such file"));
}

// A disk that is full, as far as a process can have one of its own.
TEST(StateDict, ADiskThatIsFullLeavesTheOldFileAndNoOther) {
  const TempFiles files;
  const std::string path = files.Write("net.pth", "the old one");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{100, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = RuntimeErrorOf([&] { SaveStateDict(*MakeNet(), path); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("cannot write " + path));
  EXPECT_EQ(std::filesystem::file_size(path), std::string("the old one").size());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(files.folder()), {}), 1);
}

}  // namespace
}  // namespace ddprun
