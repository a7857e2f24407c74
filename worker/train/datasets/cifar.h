// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 and CIFAR-100, binary versions (https://www.cs.toronto.edu/~kriz/cifar.html): records of
// one label byte, or two (coarse, fine), and 3072 pixel bytes (red, green and blue plane, row by
// row).
#pragma once

#include <string>
#include <vector>

#include "worker/train/data/dataset.h"
#include "worker/train/data/fixed_size_images.h"

namespace ddprun {

// In `options.directory` or its sub-folder cifar-10-batches-bin, as the archive unpacks:
// data_batch_1.bin to data_batch_5.bin and test_batch.bin; or as torchvision has them
// (cifar_pickle.h), without .bin, there or in cifar-10-batches-py. Throws DataError, also for a
// file that ends between two records where the others tell how many there should be.
Dataset OpenCifar10(const DatasetOptions& options);

// In `options.directory` or its sub-folder cifar-100-binary: train.bin and test.bin; or pickled, in
// cifar-100-python. The classes are the hundred fine ones. Throws DataError.
Dataset OpenCifar100(const DatasetOptions& options);

struct CifarFormat {
  std::string name;
  std::string dataset;       // of --dataset
  std::int64_t label_bytes;  // the last of them is the label
  std::int64_t classes;
};
inline const CifarFormat kCifar10{"CIFAR-10", "cifar10", 1, 10};
inline const CifarFormat kCifar100{"CIFAR-100", "cifar100", 2, 100};

// The records of a file, whose images stay in it. Throws DataError.
LabelledImages MapCifarFile(const std::string& path, const CifarFormat& format);

}  // namespace ddprun
