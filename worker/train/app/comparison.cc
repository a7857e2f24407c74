// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/comparison.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "proto/json_text.h"
#include "worker/library/base/text.h"
#include "worker/train/metrics/console.h"

namespace ddprun {
namespace {

// Only what differs from the defaults, to keep the command readable.
std::vector<std::string> ToArguments(const Config& config) {
  const Config standard;
  std::vector<std::string> arguments;
  for (const Setting& setting : Settings()) {
    const std::string value = ToText(config, setting);
    if (value == ToText(standard, setting) || setting.key == "world-size") continue;
    if (IsSwitch(setting)) {
      arguments.push_back((value == "true" ? "--" : "--no-") + setting.key);
    } else {
      arguments.push_back("--" + setting.key + "=" + value);
    }
  }
  return arguments;
}

// One row of the table.
struct Figure {
  const char* label;
  const char* key;
  int digits;
  const char* unit = "";
  double factor = 1;
};

constexpr Figure kFigures[] = {
    {"images a second", "images_per_second", 0},
    {"training time", "training_seconds", 2, " s"},
    {"total time", "total_seconds", 2, " s"},
    {"steps", "steps", 0},
    {"loss", "loss", 4},
    {"test loss", "test_loss", 4},
    {"test accuracy", "test_accuracy", 2, " %", 100},
};

using Row = std::vector<std::string>;

std::optional<double> NumberOf(const ComparedResult& result, const std::string& key) {
  const auto found = result.numbers.find(key);
  if (found == result.numbers.end()) return std::nullopt;
  return found->second;
}

Row FigureRow(const std::vector<ComparedResult>& results, const Figure& figure) {
  Row row{figure.label};
  for (const ComparedResult& result : results) {
    const auto number = NumberOf(result, figure.key);
    row.push_back(number ? Fixed(*number * figure.factor, figure.digits) + figure.unit : "-");
  }
  return row;
}

// Relative to the first run.
Row SpeedUpRow(const std::vector<ComparedResult>& results) {
  Row row{"speed-up"};
  const auto base = NumberOf(results.front(), "images_per_second");
  for (const ComparedResult& result : results) {
    const auto speed = NumberOf(result, "images_per_second");
    row.push_back(base && speed && *base > 0 ? Fixed(*speed / *base, 2) : "-");
  }
  return row;
}

}  // namespace

std::vector<ComparedRun> ComparedRuns(const Config& config, int ranks) {
  const std::int64_t global_batch = config.batch_size * ranks;
  const std::int64_t stages = config.pipeline > 1 ? config.pipeline : ranks;
  const auto run = [&](const std::string& name, int run_ranks, std::int64_t batch,
                       std::int64_t run_stages) {
    Config own = config;
    own.batch_size = batch;
    own.pipeline = run_stages;
    own.output_dir = std::filesystem::path(config.output_dir) / name;
    if (run_stages == 1) own.micro_batches = 0;
    return ComparedRun{name, run_ranks, ToArguments(own)};
  };
  // The run itself rejects stages that do not divide the ranks.
  const std::int64_t models = std::max<std::int64_t>(1, ranks / stages);
  return {run("plain", 1, global_batch, 1), run("ddp", ranks, config.batch_size, 1),
          run("pipeline", ranks, global_batch / models, stages)};
}

std::string ToTable(const std::vector<ComparedResult>& results) {
  std::vector<Row> rows{{""}, {"ranks"}};
  for (const ComparedResult& result : results) {
    rows[0].push_back(result.name);
    rows[1].push_back(std::to_string(result.ranks));
  }
  for (const Figure& figure : kFigures) {
    const bool known = std::any_of(results.begin(), results.end(), [&](const auto& result) {
      return NumberOf(result, figure.key).has_value();
    });
    if (known) rows.push_back(FigureRow(results, figure));
  }
  rows.push_back(SpeedUpRow(results));
  std::string text = ToColumns(rows) + "\n";
  for (const ComparedResult& result : results) {
    if (!result.error.empty()) text += result.name + ": " + result.error + "\n";
  }
  return text;
}

std::string ToJson(const std::vector<ComparedResult>& results) {
  auto json = nlohmann::ordered_json::object();
  for (const ComparedResult& result : results) {
    auto& entry = json[result.name];
    entry["ranks"] = result.ranks;
    for (const auto& [key, value] : result.numbers) entry[key] = value;
    if (!result.error.empty()) entry["error"] = result.error;
  }
  return JsonText(json, 2) + "\n";
}

}  // namespace ddprun
