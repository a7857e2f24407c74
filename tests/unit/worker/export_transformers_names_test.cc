// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/transformers_names.h"

#include <gtest/gtest.h>

#include <set>

#include "worker/library/files/state_dict.h"
#include "worker/train/models/models.h"

namespace ddprun {
namespace {

TEST(TransformersName, IsWhatTheirModelCallsTheTensor) {
  const std::pair<const char*, const char*> expected[] = {
      {"conv1.weight", "resnet.embedder.embedder.convolution.weight"},
      {"bn1.running_var", "resnet.embedder.embedder.normalization.running_var"},
      {"layer1.0.conv1.weight", "resnet.encoder.stages.0.layers.0.layer.0.convolution.weight"},
      {"layer3.22.bn3.num_batches_tracked",
       "resnet.encoder.stages.2.layers.22.layer.2.normalization.num_batches_tracked"},
      {"layer2.0.downsample.0.weight",
       "resnet.encoder.stages.1.layers.0.shortcut.convolution.weight"},
      {"layer4.0.downsample.1.bias",
       "resnet.encoder.stages.3.layers.0.shortcut.normalization.bias"},
      {"fc.bias", "classifier.1.bias"},
  };
  for (const auto& [ours, theirs] : expected) EXPECT_EQ(TransformersName(ours), theirs);
}

TEST(TransformersName, NoOtherNameHasOne) {
  for (const char* name : {"", "conv2.weight", "layer0.0.conv1.weight", "layer5.0.conv1.weight",
                           "layer1.0.conv4.weight", "layer1.0.downsample.2.weight", "fc1.weight",
                           "layer1.99999999999999999999.conv1.weight", "resblocks.0.conv.weight"}) {
    EXPECT_EQ(TransformersName(name), std::nullopt) << name;
  }
}

TEST(TransformersName, EveryTensorOfAResNetHasOneOfItsOwn) {
  for (const char* model : {"resnet18", "resnet50"}) {
    std::set<std::string> names;
    const NamedTensors state = StateDict(*MakeModel(model, {.stem = "imagenet"}));
    for (const auto& [name, tensor] : state) {
      const auto theirs = TransformersName(name);
      ASSERT_TRUE(theirs) << name;
      EXPECT_TRUE(names.insert(*theirs).second) << *theirs;
    }
  }
}

}  // namespace
}  // namespace ddprun
