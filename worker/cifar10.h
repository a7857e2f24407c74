// SPDX-License-Identifier: Apache-2.0
// CIFAR-10, binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin, records of one
// label byte and 3072 pixel bytes (red, green and blue plane, row by row).
#pragma once

#include <string>
#include <vector>

#include "worker/dataset.h"

namespace ddprun {

// Where deploy/fetch-data.sh unpacks it: data/ in DDPRUN_CACHE_DIR or the user's cache folder.
std::string Cifar10DirectoryDefault();

// In `options.directory` or its sub-folder cifar-10-batches-bin, as the archive unpacks. Throws
// DataError.
Dataset OpenCifar10(const DatasetOptions& options);

// The records of some files, in order. Throws DataError.
LabelledImages ReadCifar10Files(const std::vector<std::string>& paths);

}  // namespace ddprun
