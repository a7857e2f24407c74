// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/metric_series.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace ddprun {
namespace {

// The next whole line, without its end; nothing at the file's end, or in a line that has none.
bool NextLine(std::istream& in, std::string& line) {
  return std::getline(in, line) && !in.eof() && line.size() <= kMetricsLineBytes;
}

// An object with a whole number "step" and a number "time", else nothing.
std::optional<nlohmann::json> ParseLine(const std::string& text) {
  nlohmann::json line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool ours = line.is_object() && line.contains("step") && line["step"].is_number_integer() &&
                    line.contains("time") && line["time"].is_number();
  return ours ? std::optional(std::move(line)) : std::nullopt;
}

}  // namespace

MetricSeries ReadMetrics(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path + " cannot be read: " + std::strerror(errno));
  MetricSeries series;
  std::string text;
  for (int number = 1; NextLine(in, text); ++number) {
    const auto line = ParseLine(text);
    if (!line) {
      throw std::runtime_error(
          path + " line " + std::to_string(number) +
          " is no JSON object with step and time; was the file written by train?");
    }
    const auto step = (*line)["step"].get<std::int64_t>();
    const double time = (*line)["time"].get<double>();
    for (const auto& [name, value] : line->items()) {
      if (name == "step" || name == "time" || !value.is_number()) continue;
      series[name].push_back({step, time, value.get<double>()});
    }
  }
  return series;
}

std::uint64_t BytesUpToStep(const std::string& path, std::int64_t last_step) {
  std::error_code error;
  // To open a FIFO would wait for its writer.
  if (!std::filesystem::is_regular_file(path, error)) return 0;
  std::ifstream in(path);
  std::uint64_t bytes = 0;
  std::string text;
  while (NextLine(in, text)) {
    const auto line = ParseLine(text);
    if (!line || (*line)["step"].get<std::int64_t>() > last_step) break;
    bytes += text.size() + 1;
  }
  return bytes;
}

}  // namespace ddprun
