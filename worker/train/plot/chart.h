// SPDX-License-Identifier: Apache-2.0
// Panels side by side with axes and a legend, drawn by Cairo.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker/train/plot/curves.h"

namespace ddprun {

struct ChartOptions {
  std::string file;  // .png or .svg
  std::string x_title = "step";
  int width = 1200;  // pixels, or points of an SVG
  int height = 480;
};

// Draws one stroked path per curve in the colour of its run; measured values are pale if the curve
// is smoothed. Throws std::runtime_error if the file cannot be written.
// A confusion matrix is one more panel; the darker a cell, the more of its row's images are in it.
void DrawChart(const std::vector<Panel>& panels, const std::vector<std::string>& run_names,
               const std::optional<Confusion>& confusion, const ChartOptions& options);

}  // namespace ddprun
