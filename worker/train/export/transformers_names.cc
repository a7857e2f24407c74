// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/transformers_names.h"

#include <regex>

namespace ddprun {
namespace {

// transformers counts from 0, torchvision from 1.
std::string OneLess(const std::string& number) { return std::to_string(std::stoi(number) - 1); }

}  // namespace

std::optional<std::string> TransformersName(const std::string& name) {
  static const std::regex stem(R"((conv|bn)1\.(\w+))");
  static const std::regex layer(R"(layer([1-4])\.(\d{1,4})\.(conv|bn)([1-3])\.(\w+))");
  static const std::regex shortcut(R"(layer([1-4])\.(\d{1,4})\.downsample\.([01])\.(\w+))");
  static const std::regex head(R"(fc\.(\w+))");
  const auto kind = [](const std::string& word) {
    return word == "conv" || word == "0" ? ".convolution." : ".normalization.";
  };
  const auto block = [](const std::smatch& match) {
    return "resnet.encoder.stages." + OneLess(match[1]) + ".layers." + match[2].str();
  };
  std::smatch match;
  if (std::regex_match(name, match, stem))
    return "resnet.embedder.embedder" + std::string(kind(match[1])) + match[2].str();
  if (std::regex_match(name, match, layer))
    return block(match) + ".layer." + OneLess(match[4]) + kind(match[3]) + match[5].str();
  if (std::regex_match(name, match, shortcut))
    return block(match) + ".shortcut" + kind(match[3]) + match[4].str();
  if (std::regex_match(name, match, head)) return "classifier.1." + match[1].str();
  return std::nullopt;
}

}  // namespace ddprun
