// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 and CIFAR-100 as torchvision downloads them, the "python versions" of
// https://www.cs.toronto.edu/~kriz/cifar.html: each file is a pickled dict with the pixels as a
// numpy array and the labels as a list.
//
// A pickle is a program. It is read as data (rendezvous/values/pickle.h): nothing is called, and
// where the pixels belong, any call but numpy's of an array is an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/train/data/fixed_size_images.h"

namespace ddprun {

// One image: 3 planes of 32 x 32 pixels.
inline constexpr std::int64_t kCifarSide = 32;
inline constexpr std::int64_t kCifarChannels = 3;
inline constexpr std::int64_t kCifarImageBytes = kCifarChannels * kCifarSide * kCifarSide;

// The images and the labels that the dict has under `labels_key`. The pixels stay in the file.
// Throws DataError that names the path.
LabelledImages MapCifarPickle(const std::string& path, const std::string& labels_key,
                              const std::string& next_move);

// The list of texts under `key`: the names of the classes. Throws DataError.
std::vector<std::string> ReadPickledNames(const std::string& path, const std::string& key,
                                          const std::string& next_move);

}  // namespace ddprun
