// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/comparison.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "proto/json_text.h"
#include "worker/library/base/text.h"
#include "worker/train/evaluation/class_counts.h"
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
    {"best accuracy", "best_accuracy", 2, " %", 100},
    {"best epoch", "best_epoch", 2},
};

using Row = std::vector<std::string>;

std::optional<double> NumberOf(const ComparedResult& result, const std::string& key) {
  // A training without an evaluation has 0.
  if (key == "best_accuracy" && !result.numbers.contains("best_step")) return std::nullopt;
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

namespace {

using Json = nlohmann::json;
constexpr char kSettings[] = "settings";
constexpr char kClasses[] = "by_class";

// Below its title; nothing without rows below the head.
std::string Table(const std::vector<Row>& rows) {
  return rows.size() < 2 ? "" : "\n" + ToColumns(rows) + "\n";
}

std::string FiguresTable(const PastRun& a, const PastRun& b) {
  std::vector<ComparedResult> results;
  for (const PastRun* run : {&a, &b}) {
    ComparedResult& result = results.emplace_back();
    result.name = run->name;
    result.ranks = run->summary.value("world_size", 1);
    for (const auto& [key, value] : run->summary.items()) {
      if (value.is_number()) result.numbers[key] = value.get<double>();
    }
  }
  return ToTable(results);
}

std::string SettingsTable(const PastRun& a, const PastRun& b) {
  for (const PastRun* run : {&a, &b}) {
    if (!run->summary.contains(kSettings))
      return "\nthe settings of " + run->name +
             " are not in its summary.json: an older train wrote it\n";
  }
  std::set<std::string> keys;
  for (const PastRun* run : {&a, &b}) {
    for (const auto& entry : run->summary[kSettings].items()) keys.insert(entry.key());
  }
  keys.erase("output-dir");
  std::vector<Row> rows{{"settings that differ", a.name, b.name}};
  for (const std::string& key : keys) {
    const std::string first = a.summary[kSettings].value(key, "-");
    const std::string second = b.summary[kSettings].value(key, "-");
    if (first != second) rows.push_back({key, first, second});
  }
  return rows.size() > 1 ? Table(rows) : "\nno setting differs\n";
}

std::string EvaluationsTable(const PastRun& a, const PastRun& b) {
  // By the epoch, of which a millionth is no difference.
  std::map<std::int64_t, std::vector<std::string>> all;
  for (const PastRun* run : {&a, &b}) {
    for (const PastEvaluation& evaluation : run->evaluations) {
      auto& row = all.try_emplace(std::llround(evaluation.epoch * 1e6), 5, "-").first->second;
      row[0] = Fixed(evaluation.epoch, evaluation.epoch == std::floor(evaluation.epoch) ? 0 : 2);
      const std::size_t column = run == &a ? 1 : 2;
      row[column] = Percent(evaluation.accuracy);
      row[column + 2] = Fixed(evaluation.loss, 4);
    }
  }
  std::vector<Row> rows{
      {"test accuracy, loss by epoch", a.name, b.name, "loss " + a.name, "loss " + b.name}};
  const std::size_t step = (all.size() + kComparedRowsMax - 1) / kComparedRowsMax;
  std::size_t left = all.size();
  // The last one is shown.
  for (const auto& entry : all) {
    if (--left % step == 0) rows.push_back(entry.second);
  }
  return Table(rows);
}

std::string ClassesTable(const PastRun& a, const PastRun& b) {
  if (!a.summary.contains(kClasses) || !b.summary.contains(kClasses)) return "";
  const Json& first = a.summary[kClasses];
  const Json& second = b.summary[kClasses];
  const auto names = first.value("names", std::vector<std::string>());
  if (first.at("accuracy").size() != second.at("accuracy").size() ||
      names != second.value("names", std::vector<std::string>()))
    return "\nthe classes of the two are not the same\n";
  struct Difference {
    std::size_t label;
    double a, b;
  };
  std::vector<Difference> all;
  for (std::size_t label = 0; label < first.at("accuracy").size(); ++label) {
    const Json& of_a = first["accuracy"][label];
    const Json& of_b = second["accuracy"][label];
    if (of_a.is_number() && of_b.is_number())
      all.push_back({label, of_a.get<double>(), of_b.get<double>()});
  }
  std::stable_sort(all.begin(), all.end(), [](const Difference& x, const Difference& y) {
    return std::abs(x.b - x.a) > std::abs(y.b - y.a);
  });
  all.resize(std::min(all.size(), kComparedRowsMax));
  std::vector<Row> rows{{"accuracy by class", a.name, b.name, "difference"}};
  for (const Difference& one : all)
    rows.push_back({ClassName(names, one.label), Percent(one.a), Percent(one.b),
                    (one.b > one.a ? "+" : "") + Fixed(100 * (one.b - one.a), 2)});
  return Table(rows);
}

}  // namespace

std::vector<PastEvaluation> EvaluationsIn(const MetricSeries& metrics) {
  std::map<std::int64_t, PastEvaluation> by_step;
  const auto take = [&](const char* name, double PastEvaluation::*member, bool begins) {
    const auto series = metrics.find(name);
    if (series == metrics.end()) return;
    for (const MetricPoint& point : series->second) {
      if (begins || by_step.contains(point.step)) by_step[point.step].*member = point.value;
    }
  };
  take("accuracy/test", &PastEvaluation::accuracy, /*begins=*/true);
  take("loss/test", &PastEvaluation::loss, /*begins=*/false);
  take("epoch", &PastEvaluation::epoch, /*begins=*/false);
  std::vector<PastEvaluation> evaluations;
  for (const auto& entry : by_step) evaluations.push_back(entry.second);
  return evaluations;
}

std::string ToTables(const PastRun& a, const PastRun& b) {
  try {
    return FiguresTable(a, b) + SettingsTable(a, b) + EvaluationsTable(a, b) + ClassesTable(a, b);
  } catch (const Json::exception& error) {
    throw std::runtime_error("a summary.json of " + a.name + " and " + b.name +
                             " is none of train's; give the --output-dir of two trainings");
  }
}

std::string ToJson(const PastRun& a, const PastRun& b) {
  auto json = nlohmann::ordered_json::array();
  for (const PastRun* run : {&a, &b}) {
    auto evaluations = nlohmann::ordered_json::array();
    for (const PastEvaluation& one : run->evaluations)
      evaluations.push_back({{"epoch", one.epoch}, {"accuracy", one.accuracy}, {"loss", one.loss}});
    json.push_back(
        {{"run", Utf8Name(run->name)}, {"summary", run->summary}, {"evaluations", evaluations}});
  }
  return JsonText(json, 2) + "\n";
}

}  // namespace ddprun
