// SPDX-License-Identifier: Apache-2.0
// A model written in Python and saved as TorchScript, to be trained here.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include "worker/train/models/models.h"

namespace ddprun {

class ScriptModel : public ImageModel {
 public:
  // Reads `options.model_file`. Throws std::invalid_argument with one sentence: it is no
  // TorchScript, has nothing to train, or does not give `options.classes` scores for such images.
  explicit ScriptModel(const ModelOptions& options);

  // One: TorchScript does not say where it could be cut.
  std::vector<ModelPart> Parts() override;
  void train(bool on = true) override;
  bool reads_buffers_in_training() const override { return true; }  // its program may

  // With this model's parameters and buffers.
  const torch::jit::Module& script() const { return script_; }

 private:
  void CheckScores(const ModelOptions& options);

  torch::jit::Module script_;
};

}  // namespace ddprun
