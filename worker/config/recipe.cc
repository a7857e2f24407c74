// SPDX-License-Identifier: Apache-2.0
#include "worker/config/recipe.h"

#include <utility>

#include "worker/config/config.h"

namespace ddprun {
namespace {

struct Recipe {
  std::string name;
  std::vector<std::pair<std::string, std::string>> settings;  // as on the command line
};

// CIFAR-10 to 94 % in eight epochs: airbench94_muon of github.com/KellerJordan/cifar10-airbench
// (2024), whose ingredients these are.
//
// - --batch-size is that of one rank: with eight, 250 is the same training. Its decay of 2e-6 an
//   image is 0.004 a step of 2000.
// - It computes in fp16 throughout. Mixed precision with bf16 is as fast on tensor cores and needs
//   no scaling of the loss, which would have to ask the GPU for overflows in every step.
Recipe Speedrun() {
  return {"speedrun",
          {{"model", "airbench"},
           {"width", "1"},
           {"whiten-epochs", "3"},
           {"augment", "true"},
           {"crop-padding", "2"},
           {"padding-mode", "reflect"},
           {"flip", "alternating"},
           {"batch-size", "2000"},
           {"epochs", "8"},
           {"optimizer", "muon"},
           {"lr", "0.24"},
           {"muon-momentum", "0.6"},
           {"head-lr", "0.67"},
           {"bias-lr", "0.053"},
           {"momentum", "0.85"},
           {"weight-decay", "0.004"},
           {"schedule", "linear"},
           {"warmup-epochs", "0"},
           {"label-smoothing", "0.2"},
           {"amp", "auto"},
           {"channels-last", "true"},
           {"eval-batch-size", "2000"},
           {"tta", "mirror-translate"}}};
}

const std::vector<Recipe>& Recipes() {
  static const std::vector<Recipe> recipes = {Speedrun()};
  return recipes;
}

}  // namespace

std::vector<std::string> RecipeNames() {
  std::vector<std::string> names;
  for (const Recipe& recipe : Recipes()) names.push_back(recipe.name);
  return names;
}

void ApplyRecipe(Config& config, const std::string& name) {
  if (name.empty()) return;
  std::string names;
  for (const Recipe& recipe : Recipes()) {
    names += (names.empty() ? "" : ", ") + recipe.name;
    if (recipe.name != name) continue;
    config.recipe = name;
    for (const auto& [key, text] : recipe.settings)
      SetFromText(config, *FindSetting(key), text, "recipe " + name + ": " + key);
    return;
  }
  throw UsageError("--recipe '" + name + "' is not known; choose one of " + names);
}

}  // namespace ddprun
