// SPDX-License-Identifier: Apache-2.0
// The models that can be trained, by name. Each is a .cc file in this folder that adds itself to
// Models().
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/library/base/registry.h"

namespace ddprun {

// A piece of a model that takes what the piece before gives. Where one ends a pipeline may cut.
struct ModelPart {
  std::string name;
  // Those of the model's children (names as "layer1.0") whose parameters and buffers it uses. No
  // child belongs to two parts: a module that is used at several places is in one part with all.
  std::vector<std::string> modules;
  std::function<at::Tensor(const at::Tensor&)> forward;
};

// Takes images (N x C x height x width) and gives one score for each class (N x classes). Modules
// carry the names of the Python original, so that the state dict loads there.
class ImageModel : public torch::nn::Module {
 public:
  // The whole model in order. Valid as long as the model.
  virtual std::vector<ModelPart> Parts() = 0;

  // Each part on what the one before gave.
  at::Tensor forward(at::Tensor images);

  // Whether forward begins with a convolution or a linear layer, which autocast does in its own
  // type: images may come in that type then, and no number changes.
  virtual bool begins_in_autocast() const { return false; }

  // Whether images may have channels past in_channels, of zeros (layers/padded_conv.h).
  virtual bool takes_padded_images() const { return false; }

  // How many of the training set's first images the model's initial parameters depend on. Before
  // training Calibrate() is given them (N x C x height x width, normalised, in their order, in any
  // number of batches).
  virtual std::int64_t calibration_images() const { return 0; }
  virtual void Calibrate(const at::Tensor& images) { static_cast<void>(images); }

  // Told before each step how many epochs of the training are done. The number of the forward that
  // is used from now on: a recording (a CUDA graph) of one is not one of another.
  virtual std::int64_t Advance(double epochs) {
    static_cast<void>(epochs);
    return 0;
  }
  // After how many epochs it changes, in their order.
  virtual std::vector<double> ForwardChanges() const { return {}; }

  // Whether forward in training uses buffers, beside updating them as batch norm does.
  virtual bool reads_buffers_in_training() const { return false; }

 private:
  std::vector<ModelPart> parts_;  // made by the first forward
};

struct ModelOptions {
  std::int64_t in_channels = 3;
  std::int64_t height = 32;
  std::int64_t width = 32;
  std::int64_t classes = 10;
  bool shared_blocks = false;   // netresdeep only
  std::string stem = "cifar";   // resnets only: "cifar" or "imagenet"
  double widening = 1;          // airbench only: of its channels
  double whiten_epochs = 3;     // airbench only
  std::string model_file = {};  // torchscript only: a file that torch.jit.save() wrote
};

// Throws std::invalid_argument if the model cannot take such images.
using ModelFactory = std::function<std::shared_ptr<ImageModel>(const ModelOptions&)>;
Registry<ModelFactory>& Models();

// Throws std::invalid_argument that lists the names, or as the factory does.
std::shared_ptr<ImageModel> MakeModel(const std::string& name, const ModelOptions& options);

// For a model that cannot take smaller images. Throws std::invalid_argument with one sentence.
void RequireImageSize(const std::string& model, const ModelOptions& options, std::int64_t side_min);

// Convolutions' weights for images kept pixel by pixel (channels-last). Must come before the
// reducer is built: it takes the parameters' strides as they are then.
void UseChannelsLast(torch::nn::Module& module);

}  // namespace ddprun
