// SPDX-License-Identifier: Apache-2.0
// One file adds a model, a data set, an optimizer, a loss and a metric, and `train` takes them by
// their names: nothing else knows of them.
#include "worker/library/base/registry.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/torch.h>

#include <fstream>
#include <sstream>

#include "tests/unit/worker/temp_files.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/data/dataset.h"
#include "worker/train/evaluation/metric.h"
#include "worker/train/layers/loss.h"
#include "worker/train/models/models.h"
#include "worker/train/optimizer/optimizer.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Brightness : public ImageModel {
 public:
  explicit Brightness(const ModelOptions& options)
      : fc_(register_module("fc", torch::nn::Linear(options.in_channels, options.classes))) {}

  std::vector<ModelPart> Parts() override {
    return {{"fc", {"fc"}, [this](const at::Tensor& x) {
               return fc_->forward(x.mean(at::IntArrayRef{2, 3}));
             }}};
  }

 private:
  torch::nn::Linear fc_;
};

const bool kModelAdded =
    Models().Add("test-model", [](const ModelOptions& options) -> std::shared_ptr<ImageModel> {
      return std::make_shared<Brightness>(options);
    });

// Bright images of class 1, dark ones of class 0.
class Lamps : public SampleSet {
 public:
  explicit Lamps(std::int64_t size) : size_(size) {}
  std::int64_t size() const override { return size_; }
  std::int64_t Label(std::int64_t index) const override { return index % 2; }
  SampleShape shape() const override { return {1, 2, 2}; }
  void Write(std::int64_t index, const Draw*, bool, float* out) const override {
    std::fill(out, out + 4, Label(index) == 1 ? 1.0f : -1.0f);
  }

 private:
  const std::int64_t size_;
};

const bool kDatasetAdded = Datasets().Add("test-data", [](const DatasetOptions& options) {
  return Dataset{.train = std::make_shared<Lamps>(options.samples),
                 .test = std::make_shared<Lamps>(options.samples / 4),
                 .classes = 2,
                 .mean = {0},
                 .std = {1}};
});

class SignDescent : public Optimizer {
 public:
  explicit SignDescent(NamedTensors parameters) : Optimizer(std::move(parameters)) {}
  void Step(const at::Tensor& rate, const at::Tensor&) override {
    const torch::NoGradGuard no_grad;
    for (const auto& [name, parameter] : parameters_)
      at::Tensor(parameter).sub_(parameter.grad().sign() * rate);
  }
};

const bool kOptimizerAdded =
    Optimizers().Add("test-optimizer", [](const Config&, NamedTensors parameters, const StepSize&) {
      return std::make_unique<SignDescent>(std::move(parameters));
    });

const bool kLossAdded = Losses().Add("test-loss", [](const LossOptions& options) -> Loss {
  return [options](const at::Tensor& scores, const at::Tensor& labels) {
    const at::Tensor errors = (scores - at::one_hot(labels, scores.size(1))).square().sum(1);
    return options.reduction == at::Reduction::Mean ? errors.mean() : errors.sum();
  };
});

// Counts all images, as each has a label of two.
const bool kMetricAdded =
    Metrics().Add("test-metric", [](const at::Tensor& scores, const at::Tensor& labels) {
      return (labels < scores.size(1)).sum();
    });

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Registry, WhatIsAddedIsTrainedWith) {
  const TempFiles files;
  RunTrain({.arguments = {"--model", "test-model", "--dataset", "test-data", "--optimizer",
                          "test-optimizer", "--loss", "test-loss", "--samples", "64", "--epochs",
                          "4", "--device", "cpu", "--output-dir", files.folder()},
            .program_start = std::chrono::steady_clock::now()});
  EXPECT_THAT(TextOf(files.Path("metrics.jsonl")),
              AllOf(HasSubstr("\"test-metric/test\":1"), HasSubstr("\"test-metric/train\":1"),
                    HasSubstr("\"accuracy/test\":1")));
  EXPECT_THAT(TextOf(files.Path("cifar_net.pth.json")), HasSubstr("test-model"));
}

TEST(Registry, HelpListsWhatIsAdded) {
  std::string help;
  try {
    ParseCommandLine({"--help"});
  } catch (const Information& information) {
    help = information.text;
  }
  for (const char* name : {"test-model", "test-data", "test-optimizer", "test-loss"})
    EXPECT_THAT(help, HasSubstr(name));
}

TEST(Registry, AMisspeltNameIsTold) {
  EXPECT_THAT(MessageOf<UsageError>([] {
                ParseCommandLine({"--loss", "tset-loss"});
              }),
              HasSubstr("--loss 'tset-loss' is not known; choose one of cross-entropy, test-loss; "
                        "did you mean test-loss?"));
  EXPECT_THAT(MessageOf<UsageError>([] {
                ParseCommandLine({"--model", "resnet81"});
              }),
              HasSubstr("did you mean resnet18?"));
}

TEST(Registry, AnUnknownNameIsRejectedWithTheNames) {
  EXPECT_THAT(MessageOf<std::invalid_argument>([] { Losses().Get("hinge"); }),
              HasSubstr("--loss hinge is not known; choose one of cross-entropy, test-loss"));
}

TEST(Registry, ANameIsAddedOnce) {
  Registry<int> registry("--number");
  EXPECT_TRUE(registry.Add("one", 1));
  EXPECT_THROW(registry.Add("one", 2), std::logic_error);
  EXPECT_EQ(registry.Get("one"), 1);
}

}  // namespace
}  // namespace ddprun
