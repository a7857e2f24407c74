// SPDX-License-Identifier: Apache-2.0
// The folder of a run (--output-dir): which of its files is the trained model, and how the results
// of an earlier training there are kept when a later one writes its own.
#pragma once

#include <optional>
#include <string>

#include "worker/library/checkpoint/checkpoint_folder.h"

namespace ddprun {

inline constexpr char kSummaryFileName[] = "summary.json";

// The trained model of a run: one of the two is set, or neither if the folder has no model.
struct RunModel {
  std::optional<FoundCheckpoint> checkpoint;
  std::string file;  // NAME.pth
};

// Looks in `folder` for the model that its latest training has come to: the best checkpoint in
// checkpoints/ (--keep-best), or else the newest good one, or the model's file where the training
// that wrote it saved no checkpoint. `notify` receives sentences about damaged checkpoints. Does
// not throw.
RunModel FindRunModel(const std::string& folder, const Notify& notify);

// Before `training` (checkpoint_folder.h) writes NAME.pth, NAME.pth.json and summary.json into a
// folder that has those of an earlier training: gives these a second name, NAME-1.pth,
// NAME-1.pth.json and summary-1.json, or the next number that is free.
class EarlierResults {
 public:
  static constexpr int kNumberMax = 9999;

  // `model_file`: NAME.pth. Throws std::runtime_error, and nothing is changed, if the earlier model
  // cannot be kept.
  EarlierResults(const std::string& folder, const std::string& model_file,
                 const std::string& training);

  // After the new model has been written: where the earlier one is; empty if there was none. One
  // that has the same bytes is not kept twice.
  std::string Kept();

 private:
  struct Names {
    std::string model, description, summary;
  };
  // File names of the `number`th earlier training; 0: of the present one.
  Names NamesOf(int number) const;
  int FirstFree() const;

  const std::string folder_;
  const std::string model_file_;
  int number_ = 0;  // 0: nothing was kept
};

}  // namespace ddprun
