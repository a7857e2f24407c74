// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "worker/data/dataset.h"
#include "worker/export/model_file.h"

namespace ddprun {

// What the data set gives to a model.
inline ModelInput InputOf(const Dataset& data) {
  return {.channels = data.shape().channels,
          .height = data.shape().height,
          .width = data.shape().width,
          .classes = data.classes,
          .mean = data.mean,
          .std = data.std,
          .class_names = data.class_names};
}

}  // namespace ddprun
