// SPDX-License-Identifier: Apache-2.0
// The folder of a run (--output-dir): how the results of an earlier training there are kept when a
// later one writes its own.
#pragma once

#include <string>

namespace ddprun {

inline constexpr char kSummaryFileName[] = "summary.json";

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
  // Those of the `number`th earlier training; 0: of the present one.
  Names NamesOf(int number) const;
  int FirstFree() const;

  const std::string folder_;
  const std::string model_file_;
  int number_ = 0;  // 0: nothing was kept
};

}  // namespace ddprun
