// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/trainer_progress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/base/limits.h"
#include "proto/input_file.h"
#include "rendezvous/base/bounded_call.h"

namespace ddprun {
namespace {

using nlohmann::json;

std::int64_t ToInt32(double value) {
  return static_cast<std::int64_t>(
      std::clamp(value, 0.0, static_cast<double>(std::numeric_limits<std::int32_t>::max())));
}

std::string Now() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
}

void AddMetric(json& metrics, const std::string& name, const std::string& value) {
  metrics.push_back({{"name", name.substr(0, kTrainerTextBytesMax)},
                     {"value", value.substr(0, kTrainerTextBytesMax)}});
}

// Reads the token anew for each request: the kubelet replaces the file.
absl::Status Send(HttpsPost post, const std::string& token_file) {
  const absl::StatusOr<std::string> token = ReadRegularFile(token_file, kTrainerTokenBytesMax);
  if (!token.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot read ", token_file, ": ", token.status().message()));
  }
  post.bearer = std::string(absl::StripAsciiWhitespace(*token));
  return Post(post);
}

}  // namespace

std::string TrainerStatusJson(const TrainerStatus& status, const std::string& time) {
  const ProgressMessage& progress = status.progress;
  json trainer = {{"lastUpdatedTime", time}};
  if (status.complete) {
    trainer["progressPercentage"] = 100;
    trainer["estimatedRemainingSeconds"] = 0;
  } else if (progress.step.has_value() && progress.steps.value_or(0) > 0) {
    const double done = static_cast<double>(std::min(*progress.step, *progress.steps));
    const double all = static_cast<double>(*progress.steps);
    // 100 is for a run that has ended.
    trainer["progressPercentage"] = std::min(std::int64_t{99}, ToInt32(100 * done / all));
    if (status.seconds_per_step.has_value())
      trainer["estimatedRemainingSeconds"] =
          ToInt32(std::ceil((all - done) * *status.seconds_per_step));
  }
  json metrics = json::array();
  if (progress.step.has_value()) AddMetric(metrics, "step", absl::StrCat(*progress.step));
  if (progress.epoch.has_value()) AddMetric(metrics, "epoch", absl::StrCat(*progress.epoch));
  if (progress.rate.has_value()) {
    const std::string unit = progress.unit.value_or("").empty() ? "rate" : *progress.unit;
    AddMetric(metrics, absl::StrCat(unit.substr(0, kTrainerTextBytesMax / 2), "_per_second_rank0"),
              absl::StrCat(*progress.rate));
  }
  AddMetric(metrics, "world_size", absl::StrCat(status.world_size));
  AddMetric(metrics, "restarts", absl::StrCat(status.restarts));
  trainer["metrics"] = std::move(metrics);
  return json{{"trainerStatus", std::move(trainer)}}.dump(-1, ' ', false,
                                                          json::error_handler_t::replace);
}

TrainerProgress::TrainerProgress(const GetVariable& get_variable, const Background& background)
    : background_(background) {
  ca_file_ = get_variable("KUBEFLOW_TRAINER_SERVER_CA_CERT").value_or("");
  token_file_ = get_variable("KUBEFLOW_TRAINER_SERVER_TOKEN").value_or("");
  if (!ca_file_.empty() && !token_file_.empty())
    url_ = get_variable("KUBEFLOW_TRAINER_SERVER_URL").value_or("");
}

void TrainerProgress::OnStart(const Start& start) {
  has_rank0_ = start.rank_first == 0;
  first_step_.reset();
  status_ = {.world_size = start.world_size, .restarts = start.restart_count};
}

void TrainerProgress::OnProgress(int local_rank, const ProgressMessage& message, TimePoint now) {
  if (url_.empty() || !has_rank0_ || local_rank != 0) return;
  Merge(message, status_.progress);
  const std::optional<std::int64_t>& step = status_.progress.step;
  if (!step.has_value()) return;
  if (!first_step_.has_value() || *step < *first_step_) {
    first_step_ = step;
    first_time_ = now;
    status_.seconds_per_step.reset();
  } else if (*step > *first_step_) {
    status_.seconds_per_step = std::chrono::duration<double>(now - first_time_).count() /
                               static_cast<double>(*step - *first_step_);
  }
  unsent_ = true;
}

HttpsPost TrainerProgress::Request() const {
  return {.url = url_,
          .ca_file = ca_file_,
          .body = TrainerStatusJson(status_, Now()),
          .timeout = kTrainerRequestTimeout};
}

std::optional<std::string> TrainerProgress::OnTurn(TimePoint now) {
  std::optional<std::string> sentence;
  if (const auto status = TakeResult(sending_)) {
    sending_ = {};
    if (!status->ok() && !std::exchange(has_failed_, true)) {
      sentence =
          absl::StrCat("cannot report the progress to Kubeflow Trainer at ", url_, ": ",
                       status->message(), "; the run goes on, and later failures are not shown");
    }
  }
  if (!unsent_ || sending_.valid() || now < next_) return sentence;
  unsent_ = false;
  next_ = now + kTrainerInterval;
  sending_ = background_.Start<absl::Status>(
      [post = Request(), token_file = token_file_] { return Send(post, token_file); });
  return sentence;
}

std::optional<TimePoint> TrainerProgress::NextDeadline() const {
  if (!unsent_ || sending_.valid()) return std::nullopt;
  return next_;
}

void TrainerProgress::OnEnd(bool success) {
  // A server that does not answer delays no end.
  if (!has_rank0_ || !first_step_.has_value() || has_failed_) return;
  status_.complete = success;
  if (!success && !unsent_) return;
  CallWithDeadline<absl::Status>(kTrainerLastWait, [post = Request(), token_file = token_file_] {
    return Send(post, token_file);
  });
}

}  // namespace ddprun
