// SPDX-License-Identifier: Apache-2.0
#include "worker/train/data/dataset.h"

#include "worker/library/files/mapped_file.h"

namespace ddprun {

at::Tensor MapDataFile(const std::string& path, const std::string& next_move) {
  try {
    return MapFile(path);
  } catch (const std::runtime_error& error) {
    throw DataError(path + ": " + error.what() + "; " + next_move);
  }
}

Registry<DatasetOpener>& Datasets() {
  static Registry<DatasetOpener> datasets("--dataset");
  return datasets;
}

Dataset OpenDataset(const std::string& name, const DatasetOptions& options) {
  return Datasets().Get(name)(options);
}

}  // namespace ddprun
