// SPDX-License-Identifier: Apache-2.0
// IDX files, the format of MNIST and its like, plain or compressed with gzip: big-endian numbers,
// first the magic one, then the dimensions, then a byte for each pixel or label.
#pragma once

#include <string>

#include "worker/train/data/dataset.h"
#include "worker/train/data/fixed_size_images.h"

namespace ddprun {

inline constexpr char kFashionMnistDirectoryDefault[] = "/usr/share/datasets/fashion-mnist";

// Images whose side is smaller are shown in the middle of this many pixels, on black, so that every
// model here takes them.
inline constexpr std::int64_t kIdxSideMin = 32;

// The four files of Fashion-MNIST, ten classes of 28x28 grey images, which are shown on three
// channels: train-images-idx3-ubyte and so on, also train-images.idx3-ubyte, and with .gz. They lie
// in `directory`, or below it where torchvision puts them, in FashionMNIST/raw. Throws DataError.
Dataset OpenFashionMnist(const DatasetOptions& options);

// Opens any four files of those names, also in the folder raw of any one data set there:
// sizes are the headers', there are as many classes as the greatest label says, mean and deviation
// are those of the first thousand training images. Throws DataError.
Dataset OpenIdx(const DatasetOptions& options);

// A file of images (magic 2051: N, height, width), which stay in it, and one of labels (magic 2049:
// N), each below `classes`. Throws DataError.
LabelledImages ReadIdxPair(const std::string& images_path, const std::string& labels_path,
                           std::int64_t classes);

}  // namespace ddprun
