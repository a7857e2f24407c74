// SPDX-License-Identifier: Apache-2.0
#include "worker/train/observers/summary.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "proto/json_text.h"
#include "worker/library/base/text.h"
#include "worker/train/metrics/console.h"

namespace ddprun {

void Summary::CountFirstStep(std::chrono::steady_clock::time_point program_start) {
  using Seconds = std::chrono::duration<double>;
  first_step_seconds = Seconds(std::chrono::steady_clock::now() - program_start).count();
  first_step_time = Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

void Summary::Count(const StepCounter::Counts& counts) {
  steps = counts.steps;
  images = counts.images;
  training_seconds = counts.seconds();
  data_wait_seconds = counts.data_wait_seconds;
  gradient_wait_seconds = StepCounter::Seconds(counts.sections[StepSection::kGradients]).count();
}

void Summary::ChooseClasses(std::int64_t last) {
  const bool of_best = !best_file.empty() && best_by_class.step == best.step;
  if (of_best)
    by_class = best_by_class;
  else if (evaluation)
    by_class = {.step = last, .counts = evaluation->by_class};
}

void Summary::SetTotal(double seconds) {
  total_seconds = seconds;
  const auto total = std::chrono::round<RankTime::Time>(StepCounter::Seconds(seconds));
  rank_time[TimeClass::kCheckpoint] += std::max(RankTime::Time{0}, total - rank_time.Sum());
}

namespace {

// "3", or "2.50" in the middle of an epoch.
std::string EpochText(double epoch) { return Fixed(epoch, epoch == std::floor(epoch) ? 0 : 2); }

nlohmann::json ClassesToJson(const Summary& summary) {
  const ClassCounts& counts = summary.by_class.counts;
  nlohmann::json json{{"step", summary.by_class.step}, {"images", counts.images}};
  if (!summary.class_names.empty()) json["names"] = summary.class_names;
  for (std::size_t label = 0; label < counts.classes(); ++label)
    json["accuracy"].push_back(counts.images[label] == 0 ? nlohmann::json()
                                                         : nlohmann::json(counts.Accuracy(label)));
  if (!counts.matrix.empty()) json["confusion"] = counts.matrix;
  return json;
}

}  // namespace

std::string ToTable(const Summary& summary) {
  std::vector<std::pair<std::string, std::string>> rows;
  if (summary.evaluation) {
    const Evaluation& evaluation = *summary.evaluation;
    rows.emplace_back("test accuracy", Percent(evaluation.accuracy()) + " (" +
                                           std::to_string(evaluation.correct()) + " of " +
                                           std::to_string(evaluation.images) + " images, loss " +
                                           Fixed(evaluation.loss, 4) + ")");
  }
  // Where only one was made, or the last was the best, it is the row above.
  if (summary.best_file.empty() && summary.evaluation &&
      summary.best.accuracy > summary.evaluation->accuracy())
    rows.emplace_back("best accuracy", Percent(summary.best.accuracy));
  if (summary.evaluation && summary.best.epoch > 0)
    rows.emplace_back("best epoch", EpochText(summary.best.epoch));
  rows.emplace_back("images a second", Fixed(summary.images_per_second(), 0) + " (all ranks)");
  rows.emplace_back("training time", Fixed(summary.training_seconds, 1) + " s (" +
                                         std::to_string(summary.steps) + " steps, " +
                                         Fixed(summary.steps_per_second(), 1) + " a second)");
  if (summary.training_seconds > 0) {
    rows.emplace_back("waited for data",
                      Percent(summary.data_wait_seconds / summary.training_seconds));
    if (summary.world_size > 1) {
      rows.emplace_back("waited for gradients",
                        Percent(summary.gradient_wait_seconds / summary.training_seconds));
    }
  }
  rows.emplace_back("total time", Fixed(summary.total_seconds, 1) + " s");
  rows.emplace_back("world size", std::to_string(summary.world_size));
  rows.emplace_back("backend", summary.backend);
  rows.emplace_back("model", summary.model_file);
  if (!summary.best_file.empty())
    rows.emplace_back("best model", summary.best_file + " (" + summary.best_description + ")");
  return ToTable(rows);
}

std::string ToClassTable(const Summary& summary) {
  const std::string table = ToTable(summary.by_class.counts, summary.class_names);
  if (table.empty()) return "";
  return "test images by class, after step " + std::to_string(summary.by_class.step) + "\n" + table;
}

std::string ToJson(const Summary& summary) {
  nlohmann::json json{{"images_per_second", summary.images_per_second()},
                      {"steps_per_second", summary.steps_per_second()},
                      {"warm_up_seconds", summary.warm_up_seconds},
                      {"training_seconds", summary.training_seconds},
                      {"evaluation_seconds", summary.evaluation_seconds},
                      {"total_seconds", summary.total_seconds},
                      {"first_step_seconds", summary.first_step_seconds},
                      {"first_step_time", summary.first_step_time},
                      {"data_wait_seconds", summary.data_wait_seconds},
                      {"gradient_wait_seconds", summary.gradient_wait_seconds},
                      {"steps", summary.steps},
                      {"images", summary.images},
                      {"loss", summary.loss},
                      {"best_accuracy", summary.best.accuracy},
                      {"world_size", summary.world_size},
                      {"backend", summary.backend},
                      {"device", summary.device},
                      {"cuda_graph", summary.cuda_graph},
                      {"deterministic", summary.deterministic},
                      {"model_file", summary.model_file}};
  if (!summary.settings.empty()) json["settings"] = summary.settings;
  if (summary.gradients.averaging_seconds > 0) {
    json["gradients_hidden_share"] = summary.gradients.hidden_share();
    json["gradient_bytes"] = summary.gradients.bytes;
  }
  if (summary.best.step >= 0) {
    json["best_loss"] = summary.best.loss;
    json["best_step"] = summary.best.step;
    if (summary.best.epoch > 0) json["best_epoch"] = summary.best.epoch;
  }
  if (!summary.best_file.empty()) json["best_file"] = summary.best_file;
  if (summary.evaluation) {
    json["test_accuracy"] = summary.evaluation->accuracy();
    json["test_loss"] = summary.evaluation->loss;
  }
  if (summary.by_class.counts.classes() > 0) json["by_class"] = ClassesToJson(summary);
  ForEachClass(summary.rank_time, [&json](TimeClass kind, double seconds) {
    json["rank_seconds"][NameOf(kind)] = seconds;
  });
  return JsonText(json, 2) + "\n";
}

}  // namespace ddprun
