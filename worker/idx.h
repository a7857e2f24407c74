// SPDX-License-Identifier: Apache-2.0
// IDX files, the format of MNIST and Fashion-MNIST, plain or compressed with gzip.
#pragma once

#include <string>

#include "worker/dataset.h"

namespace ddprun {

inline constexpr char kFashionMnistDirectoryDefault[] = "/usr/share/datasets/fashion-mnist";

// `directory`/NAME or NAME.gz for the four files of Fashion-MNIST. The 28x28 grey images are padded
// to 32x32 and shown on three channels, so that every model here takes them. Throws DataError.
Dataset OpenFashionMnist(const DatasetOptions& options);

// A file of images (magic 2051: N, height, width) and one of labels (magic 2049: N). Throws
// DataError.
LabelledImages ReadIdxPair(const std::string& images_path, const std::string& labels_path);

}  // namespace ddprun
