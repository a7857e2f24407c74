// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

#include <functional>
#include <utility>

#include "worker/datasets/cifar.h"
#include "worker/datasets/idx.h"
#include "worker/datasets/image_folder.h"
#include "worker/datasets/synthetic.h"

namespace ddprun {
namespace {

using Opener = std::function<Dataset(const DatasetOptions&)>;

const std::vector<std::pair<std::string, Opener>>& Table() {
  static const std::vector<std::pair<std::string, Opener>> table = {
      {"cifar10", OpenCifar10},
      {"cifar100", OpenCifar100},
      {"fashion-mnist", OpenFashionMnist},
      {"idx", OpenIdx},
      {"imagefolder", OpenImageFolder},
      {"random", OpenRandom},
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

}  // namespace ddprun
