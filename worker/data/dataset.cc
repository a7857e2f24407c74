// SPDX-License-Identifier: Apache-2.0
#include "worker/data/dataset.h"

namespace ddprun {

Registry<DatasetOpener>& Datasets() {
  static Registry<DatasetOpener> datasets("--dataset");
  return datasets;
}

Dataset OpenDataset(const std::string& name, const DatasetOptions& options) {
  return Datasets().Get(name)(options);
}

}  // namespace ddprun
