// SPDX-License-Identifier: Apache-2.0
// Small checkpoints for the tests: of a step, which can be told from each other.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>

#include "worker/library/checkpoint/checkpoint_file.h"
#include "worker/library/checkpoint/checkpoint_folder.h"
#include "worker/library/files/atomic_file.h"

namespace ddprun {

inline Snapshot SmallSnapshot(std::int64_t step, const std::string& training = "t",
                              const nlohmann::json& config = nlohmann::json::object()) {
  return {.tensors = {{"model/weight", at::full({2, 3}, static_cast<double>(step), at::kFloat)},
                      {"model/steps", at::full({}, step, at::kLong)},
                      {"random/0", at::full({5}, 7, at::kByte)}},
          .about = {{"step", step}, {kTrainingKey, training}, {"config", config}}};
}

inline void ExpectStep(const Snapshot& snapshot, std::int64_t step) {
  EXPECT_EQ(snapshot.about.value("step", std::int64_t{-1}), step);
  ASSERT_EQ(snapshot.tensors.size(), 3u);
  for (const auto& [name, tensor] : snapshot.tensors) {
    if (name != "random/0") {
      EXPECT_TRUE(at::equal(tensor, at::full_like(tensor, static_cast<double>(step)))) << name;
    }
  }
}

// As a writer does, in the foreground. Returns the path.
inline std::string WriteSmall(const std::string& folder, std::int64_t step,
                              const std::string& training = "t",
                              const nlohmann::json& config = nlohmann::json::object()) {
  CheckpointImage image;
  image.Fill(SmallSnapshot(step, training, config));
  const std::string path = folder + "/" + CheckpointName(step);
  AtomicFile file(path);
  file.Write(image.bytes(), image.size());
  file.Commit();
  return path;
}

}  // namespace ddprun
