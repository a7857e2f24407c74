// SPDX-License-Identifier: Apache-2.0
#include "worker/dataset.h"

#include <functional>
#include <utility>

#include "worker/cifar10.h"
#include "worker/idx.h"
#include "worker/synthetic.h"

namespace ddprun {
namespace {

using Opener = std::function<Dataset(const DatasetOptions&)>;

const std::vector<std::pair<std::string, Opener>>& Table() {
  static const std::vector<std::pair<std::string, Opener>> table = {
      {"cifar10", OpenCifar10},
      {"fashion-mnist", OpenFashionMnist},
      {"synthetic", OpenSynthetic},
  };
  return table;
}

}  // namespace

Dataset OpenDataset(const std::string& name, const DatasetOptions& options) {
  std::string names;
  for (const auto& [known, open] : Table()) {
    if (known == name) return open(options);
    names += (names.empty() ? "" : ", ") + known;
  }
  throw std::invalid_argument("--dataset " + name + " is not known; choose one of " + names);
}

std::vector<std::string> DatasetNames() {
  std::vector<std::string> names;
  for (const auto& entry : Table()) names.push_back(entry.first);
  return names;
}

void CheckLabels(const LabelledImages& set, std::int64_t classes, const std::string& source) {
  const auto* labels = set.labels.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < set.size(); ++i) {
    if (labels[i] >= 0 && labels[i] < classes) continue;
    throw DataError(source + ": label " + std::to_string(labels[i]) + " of image " +
                    std::to_string(i) + " is not below " + std::to_string(classes) +
                    ", the file is damaged or of another data set; fetch it again");
  }
}

}  // namespace ddprun
