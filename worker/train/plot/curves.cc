// SPDX-License-Identifier: Apache-2.0
#include "worker/train/plot/curves.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "proto/input_file.h"
#include "worker/train/metrics/metrics_writer.h"

namespace ddprun {
namespace {

struct Metric {
  const char* name;
  bool test;
  double scale;
};

struct PanelKind {
  const char* title;
  std::vector<Metric> metrics;
};

const std::vector<PanelKind>& Kinds() {
  static const std::vector<PanelKind> kinds = {
      {"loss", {{"loss/train", false, 1}, {"loss/test", true, 1}}},
      {"accuracy (%)", {{"accuracy/train", false, 100}, {"accuracy/test", true, 100}}},
  };
  return kinds;
}

// The points of a metric; a record contains its epoch beside the measured value.
Points Place(const Run& run, const Metric& metric, XAxis x) {
  Points points;
  const auto series = run.metrics.find(metric.name);
  if (series == run.metrics.end()) return points;
  std::map<std::int64_t, double> epochs;
  double start = series->second.front().time;
  for (const auto& [name, values] : run.metrics) start = std::min(start, values.front().time);
  if (const auto found = run.metrics.find("epoch"); found != run.metrics.end()) {
    for (const MetricPoint& point : found->second) epochs[point.step] = point.value;
  }
  for (const MetricPoint& point : series->second) {
    double where = static_cast<double>(point.step);
    if (x == XAxis::kMinutes) where = (point.time - start) / 60;
    if (x == XAxis::kEpoch) {
      const auto epoch = epochs.find(point.step);
      if (epoch == epochs.end()) continue;
      where = epoch->second;
    }
    points.emplace_back(where, point.value * metric.scale);
  }
  return points;
}

std::string LastParts(const std::filesystem::path& path, std::size_t count) {
  std::vector<std::string> parts;
  for (const auto& part : path) parts.push_back(part);
  std::filesystem::path name;
  for (std::size_t i = parts.size() - std::min(count, parts.size()); i < parts.size(); ++i) {
    name /= parts[i];
  }
  return name;
}

}  // namespace

Run ReadRun(const std::string& path) {
  const bool folder = std::filesystem::is_directory(path);
  const std::string file =
      folder ? (std::filesystem::path(path) / kMetricsFileName).string() : path;
  if (!std::filesystem::exists(file)) {
    throw std::runtime_error(file +
                             " is not there; give the --output-dir of a run of train that "
                             "writes metrics (--metrics)");
  }
  Run run{.name = path, .metrics = ReadMetrics(file)};
  for (const PanelKind& kind : Kinds()) {
    for (const Metric& metric : kind.metrics) {
      if (run.metrics.contains(metric.name)) return run;
    }
  }
  throw std::runtime_error(file +
                           " holds neither losses nor accuracies yet; wait for the run's "
                           "first line, or lower its --log-every");
}

std::optional<Confusion> ReadConfusion(const std::string& folder) {
  constexpr std::size_t kSummaryBytesMax = 1u << 20;
  const auto text =
      ReadRegularFile(std::filesystem::path(folder) / "summary.json", kSummaryBytesMax);
  if (!text.ok()) return std::nullopt;
  try {
    const auto classes = nlohmann::json::parse(*text).at("by_class");
    Confusion confusion{
        .title = "test images after step " + std::to_string(classes.at("step").get<long long>()),
        .counts = classes.at("confusion").get<std::vector<std::vector<double>>>()};
    if (classes.contains("names"))
      confusion.names = classes.at("names").get<std::vector<std::string>>();
    for (std::size_t i = confusion.names.size(); i < confusion.counts.size(); ++i)
      confusion.names.push_back(std::to_string(i));
    const std::size_t size = confusion.names.size();
    const bool is_square = confusion.counts.size() == size &&
                           std::all_of(confusion.counts.begin(), confusion.counts.end(),
                                       [size](const auto& row) { return row.size() == size; });
    return is_square && size > 0 ? std::optional(confusion) : std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::vector<std::string> ShortNames(const std::vector<std::string>& paths) {
  std::vector<std::filesystem::path> whole;
  std::size_t longest = 1;
  for (const std::string& path : paths) {
    std::filesystem::path p = std::filesystem::absolute(path).lexically_normal();
    if (p.filename() == kMetricsFileName || p.filename().empty()) p = p.parent_path();
    longest = std::max(longest, static_cast<std::size_t>(std::distance(p.begin(), p.end())));
    whole.push_back(std::move(p));
  }
  std::vector<std::string> names;
  for (std::size_t parts = 1; parts <= longest; ++parts) {
    names.clear();
    for (const auto& path : whole) names.push_back(LastParts(path, parts));
    if (std::set<std::string>(names.begin(), names.end()).size() == names.size()) break;
  }
  return names;
}

Points Smoothed(const Points& points, double smoothing) {
  Points smooth;
  double sum = 0;
  double weight = 0;
  for (const auto& [x, y] : points) {
    if (!std::isfinite(y)) continue;
    sum = smoothing * sum + (1 - smoothing) * y;
    weight = smoothing * weight + (1 - smoothing);
    smooth.emplace_back(x, sum / weight);
  }
  return smooth;
}

std::vector<Panel> MakePanels(const std::vector<Run>& runs, XAxis x, double smoothing) {
  std::vector<Panel> panels;
  for (const PanelKind& kind : Kinds()) {
    Panel panel{.title = kind.title};
    for (std::size_t i = 0; i < runs.size(); ++i) {
      for (const Metric& metric : kind.metrics) {
        Curve curve{.run = i, .test = metric.test, .points = Place(runs[i], metric, x)};
        if (curve.points.empty()) continue;
        if (smoothing > 0 && !metric.test && curve.points.size() > 2) {
          curve.smooth = Smoothed(curve.points, smoothing);
        }
        panel.curves.push_back(std::move(curve));
      }
    }
    if (!panel.curves.empty()) panels.push_back(std::move(panel));
  }
  return panels;
}

}  // namespace ddprun
