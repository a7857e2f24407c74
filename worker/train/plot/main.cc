// SPDX-License-Identifier: Apache-2.0
// The program ddprun-plot, which users run as `train plot`.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "worker/train/plot/chart.h"
#include "worker/train/plot/curves.h"

namespace ddprun {
namespace {

constexpr int kSuccess = 0;
constexpr int kFailure = 1;
constexpr int kUsage = 2;
// More curves than this cannot be told apart in one picture.
constexpr int kRuns = 50;

struct Arguments {
  std::vector<std::string> runs;
  std::string output;
  std::string x = "step";
  double smoothing = 0.6;
  int width = 0;  // 0: that of the panels
  int height = 480;
};

void Describe(CLI::App& app, Arguments& arguments) {
  app.add_option("RUN", arguments.runs, "output folders of runs, or their metrics.jsonl")
      ->required()
      ->expected(1, kRuns);
  app.add_option("-o,--output", arguments.output, "picture to write: FILE.png or FILE.svg")
      ->required();
  app.add_option("--x", arguments.x, "unit of the x axis: step, epoch or time (minutes)")
      ->check(CLI::IsMember({"step", "epoch", "time"}))
      ->capture_default_str();
  app.add_option("--smoothing", arguments.smoothing,
                 "smoothing of training curves, 0 (none) to 0.999; measured values stay visible")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  app.add_option("--width", arguments.width, "pixels [1200, or 1680 with a confusion matrix]")
      ->check(CLI::Range(400, 8000));
  app.add_option("--height", arguments.height, "pixels")
      ->check(CLI::Range(240, 8000))
      ->capture_default_str();
}

int Plot(const Arguments& arguments) {
  const std::string kind = std::filesystem::path(arguments.output).extension();
  if (kind != ".png" && kind != ".svg") {
    std::fprintf(stderr, "train plot: --output %s is neither .png nor .svg; name it so\n",
                 arguments.output.c_str());
    return kUsage;
  }
  const XAxis x = arguments.x == "epoch"  ? XAxis::kEpoch
                  : arguments.x == "time" ? XAxis::kMinutes
                                          : XAxis::kStep;
  std::vector<Run> runs;
  for (const std::string& path : arguments.runs) runs.push_back(ReadRun(path));
  const std::vector<Panel> panels = MakePanels(runs, x, arguments.smoothing);
  if (panels.empty())
    throw std::runtime_error("no record of these runs has an epoch; use --x step");
  const std::optional<Confusion> confusion =
      arguments.runs.size() == 1 ? ReadConfusion(arguments.runs[0]) : std::nullopt;
  const int width = arguments.width > 0 ? arguments.width : confusion ? 1680 : 1200;
  DrawChart(panels, ShortNames(arguments.runs), confusion,
            {.file = arguments.output,
             .x_title = x == XAxis::kMinutes ? "minutes" : arguments.x,
             .width = width,
             .height = arguments.height});
  return kSuccess;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Plots loss and accuracy of one or more runs side by side, and the confusion matrix of one "
      "that has ended.",
      "train plot");
  Arguments arguments;
  Describe(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kSuccess;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "train plot: %s; see train plot --help\n", error.what());
    return kUsage;
  }
  try {
    return Plot(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train plot: %s\n", error.what());
    return kFailure;
  }
}

}  // namespace
}  // namespace ddprun

int main(int argc, char** argv) { return ddprun::Main(argc, argv); }
