// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/autograd/grad_mode.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "proto/json_text.h"
#include "worker/library/base/text.h"
#include "worker/train/app/command_line.h"
#include "worker/train/app/commands.h"
#include "worker/train/datasets/image_for_model.h"
#include "worker/train/evaluation/test_time_augmentation.h"
#include "worker/train/export/model_file.h"

namespace ddprun {
namespace {

constexpr std::int64_t kShownClasses = 3;
constexpr std::int64_t kShownClassesMax = 1'000'000;

struct PredictOptions {
  std::vector<std::string> images;
  std::string model = ".";  // the default of --output-dir
  std::int64_t top = kShownClasses;
  bool json = false;
  bool without_average = false;
};

PredictOptions ParsePredictOptions(const std::vector<std::string>& arguments) {
  PredictOptions options;
  CLI::App app(
      "Prints the most probable classes of image files, as a trained model sees them; on the CPU.\n"
      "train predict --model run cat.jpg dog.png",
      "train predict");
  app.add_option("image", options.images, "JPEG, PNG, PPM, PGM or BMP files")
      ->required()
      ->type_name("IMAGE");
  app.add_option("--model", options.model,
                 "the folder of a run (its --output-dir), a checkpoint, or a .pth or .safetensors "
                 "file with the PATH.json that train writes beside it; the folder may be that of "
                 "checkpoints")
      ->type_name("PATH [.]");
  app.add_option("--top", options.top, "classes to show for each image")
      ->type_name("INTEGER [" + std::to_string(kShownClasses) + "]")
      ->check(CLI::Range(std::int64_t{1}, kShownClassesMax));
  app.add_flag("--json", options.json, "print a JSON object for each image, one a line");
  app.add_flag("--no-ema", options.without_average,
               "use the weights themselves instead of their moving average");
  ParseWith(app, arguments);
  return options;
}

class Predictor {
 public:
  // Throws std::runtime_error with one sentence.
  explicit Predictor(const PredictOptions& options);

  // Reads an image and prints its classes. Throws DamagedSample.
  void Predict(const std::string& path);

 private:
  // The probabilities of all classes.
  at::Tensor Probabilities(const at::Tensor& pixels);
  std::string NameOf(std::int64_t label) const;

  const std::int64_t top_;
  const bool json_;
  Config config_;
  ModelInput input_;
  std::shared_ptr<ImageModel> model_;
};

Predictor::Predictor(const PredictOptions& options) : top_(options.top), json_(options.json) {
  if (!std::filesystem::exists(options.model))
    throw std::runtime_error(options.model +
                             " is not there; pass --model with the folder of a run, a checkpoint "
                             "or a model's file");
  const ModelFile file = ReadModelFile(
      options.model, {.averaged = !options.without_average, .notify = [](const std::string& line) {
                        std::fprintf(stderr, "train: %s\n", line.c_str());
                      }});
  if (!file.config || !file.input)
    throw std::runtime_error(file.path +
                             " does not say which model and which images it is of; write a file "
                             "that does with train export " +
                             file.path +
                             " --format pth --output NEW.pth and its --model and "
                             "--dataset");
  config_ = *file.config;
  input_ = *file.input;
  if (input_.channels != 3)
    throw std::runtime_error(file.path + " is of --dataset " + config_.dataset +
                             ", whose samples are no images in colour; pass a model of images");
  model_ = MakeModelOf(file, config_, input_);
  if (config_.channels_last) UseChannelsLast(*model_);
}

at::Tensor Predictor::Probabilities(const at::Tensor& pixels) {
  const torch::NoGradGuard no_grad;
  at::Tensor scores;
  for (const WeightedView& view : ViewsOf(pixels, config_.tta)) {
    const at::Tensor share = model_->forward(view.images).to(at::kDouble) * view.weight;
    scores = scores.defined() ? scores + share : share;
  }
  return scores.softmax(1)[0];
}

std::string Predictor::NameOf(std::int64_t label) const {
  const auto index = static_cast<std::size_t>(label);
  return index < input_.class_names.size() ? input_.class_names[index]
                                           : "class " + std::to_string(label);
}

void Predictor::Predict(const std::string& path) {
  const ImageForModel image =
      ReadImageForModel(path,
                        {.dataset = config_.dataset,
                         .shape = {input_.channels, input_.height, input_.width},
                         .mean = input_.mean,
                         .std = input_.std},
                        config_.channels_last);
  const at::Tensor all = Probabilities(image.pixels);
  const auto [probabilities, labels] = all.topk(std::min(top_, all.size(0)));
  std::string text;
  nlohmann::ordered_json json{{"image", Utf8Name(path)},
                              {"classes", nlohmann::ordered_json::array()}};
  for (std::int64_t i = 0; i < labels.size(0); ++i) {
    const auto label = labels[i].item<std::int64_t>();
    const auto probability = probabilities[i].item<double>();
    text += (i == 0 ? "" : ", ") + NameOf(label) + " " + Percent(probability);
    json["classes"].push_back(
        {{"class", NameOf(label)}, {"label", label}, {"probability", probability}});
  }
  if (image.resized_from) {
    text += " (resized from " + std::to_string(image.resized_from->width) + "x" +
            std::to_string(image.resized_from->height) + ")";
    json["resized_from"] = {image.resized_from->width, image.resized_from->height};
  }
  std::printf("%s\n", json_ ? JsonText(json).c_str() : (path + ": " + text).c_str());
}

}  // namespace

void RunPredict(const CommandContext& context) {
  const PredictOptions options = ParsePredictOptions(context.arguments);
  Predictor predictor(options);
  std::optional<DamagedSample> failure;  // the latest: it ends the program, after all images
  for (const std::string& path : options.images) {
    try {
      predictor.Predict(path);
    } catch (const DamagedSample& sample) {
      if (failure) std::fprintf(stderr, "train: %s\n", failure->what());
      failure.emplace(sample);
    }
  }
  if (failure) throw DamagedSample(*failure);
}

}  // namespace ddprun
