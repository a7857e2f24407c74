// SPDX-License-Identifier: Apache-2.0
#include "worker/training/trainer.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "worker/base/text.h"
#include "worker/base/unique_tensors.h"
#include "worker/ddp/checksum.h"
#include "worker/distributed/accelerator.h"
#include "worker/export/model_description.h"
#include "worker/export/model_input.h"
#include "worker/files/atomic_file.h"
#include "worker/files/state_dict.h"
#include "worker/parallel/make_strategy.h"
#include "worker/parallel/pipeline_plan.h"
#include "worker/parallel/precision.h"
#include "worker/profile/gather_profiles.h"
#include "worker/step/make_train_step.h"
#include "worker/training/prepare_model.h"

namespace ddprun {
namespace {

// What a person sees as "now", and long enough for a few steps.
constexpr std::chrono::seconds kRateInterval{1};

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The words that a person reads beside a rank that hangs. A collective's say that it waits for
// others.
const char* WordsOf(StepSection section) {
  switch (section) {
    case StepSection::kData:
      return "data";
    case StepSection::kForward:
      return "forward";
    case StepSection::kBackward:
      return "backward, all_reduce";
    case StepSection::kGradients:
      return "all_reduce";
    case StepSection::kOptimizer:
      return "optimizer";
    case StepSection::kEvaluation:
      return "evaluate";
    case StepSection::kCheckpoint:
      return "checkpoint";
    case StepSection::kOther:
      return "other";
  }
  return "other";
}

// In what else there is one rank may be busy for longer than the others.
bool IsWithinStep(StepSection section) {
  return section != StepSection::kEvaluation && section != StepSection::kCheckpoint &&
         section != StepSection::kOther;
}

}  // namespace

Trainer::Trainer(const Config& config, const Dataset& data, World& world, Console& console,
                 ProgressSender& progress, Time program_start)
    : config_(config),
      data_(data),
      world_(world),
      console_(console),
      progress_(progress),
      program_start_(program_start),
      length_(MakeTrainingPlan(config, data.train->size(), DataParallelSize(config, world.size()))),
      schedule_(MakeSchedule(config, length_)),
      model_(PrepareModel(config, data, world, console)),
      strategy_(MakeParallelStrategy(
          config, data, world, *model_, console,
          StepOptions{
              .loss = Losses().Get(config.loss)({.label_smoothing = config.label_smoothing}),
              .autocast = AutocastType(config.amp, world.device()),
              .gradients = ParseGradientFormat(config.compress),
              .enter = [this](StepSection section) { Enter(section); },
              .on_scores =
                  [this](const at::Tensor& scores, const at::Tensor& labels,
                         const at::Tensor& loss) {
                    tally_.Add(scores, labels, loss, static_cast<double>(labels.size(0)));
                  }})),
      parameters_(strategy_->Parameters()),
      optimizer_(MakeOptimizer(
          config, parameters_,
          {.steps_per_epoch = length_.steps_per_epoch,
           .images = config.batch_size * config.accumulate * strategy_->shard().world_size})),
      scaler_(config.amp == "fp16", world.device()) {
  if (config_.ema_decay > 0) average_.emplace(parameters_, config_.ema_decay);
  checkpoints_.emplace(config_, data_, world_, console_,
                       TrainingCheckpoints::Parts{.model = *model_,
                                                  .strategy = *strategy_,
                                                  .optimizer = *optimizer_,
                                                  .scaler = scaler_,
                                                  .average = average_ ? &*average_ : nullptr});
  const auto report = [this](const std::string& text) {
    if (world_.rank() == 0) console_.Line(text);
  };
  step_ = MakeTrainStep({.config = config_,
                         .world = world_,
                         .strategy = *strategy_,
                         .parameters = parameters_,
                         .optimizer = *optimizer_,
                         .scaler = scaler_,
                         .average = average_ ? &*average_ : nullptr,
                         .on_loss =
                             [this](const at::Tensor& loss) {
                               if (loss.is_cpu()) LookAt(loss);
                             },
                         .before_update = [this] { checkpoints_->BeforeUpdate(); },
                         .enter = [this](StepSection section) { Enter(section); }},
                        data_, report);
}

void Trainer::Run() {
  strategy_->Train();
  Begin();
  Send("barrier");
  world_.Barrier();
  StartMetrics();
  training_start_ = line_time_ = rate_time_ = std::chrono::steady_clock::now();
  if (evaluation_due_) {
    EvaluateAndReport();
    checkpoints_->StopIfAsked(Place());
  }
  while (!Done()) TrainEpoch();
  checkpoints_->EndSteps();
  world_.Synchronize();
  summary_.training_seconds = SecondsSince(training_start_);
  summary_.gradient_wait_seconds =
      std::chrono::duration<double>((clock_.totals() - set_up_)[StepSection::kGradients]).count();
  summary_.gradients = strategy_->traffic();
  ShowProfile();
  CheckParametersFinite();
  Send("checkpoint");
  checkpoints_->Finish(Place());

  strategy_->Evaluate();
  CheckRanksAgree();
  if (config_.eval && !evaluation_) EvaluateAtTheEnd();
  if (average_) average_->Swap();
  strategy_->GatherModel();
  if (world_.rank() == 0) WriteResults();
  if (average_) average_->Swap();
}

// Where a checkpoint says, if there is one to go on from.
void Trainer::Begin() {
  Send("checkpoint");
  const TrainingCheckpoints::Place place = checkpoints_->Resume();
  position_ = place.position;
  reached_target_ = place.reached_target;
  evaluation_due_ = place.evaluation_due;
  const std::int64_t images = data_.train->size();
  const int ranks = DataParallelSize(config_, world_.size());
  length_ = MakeTrainingPlan(config_, images, ranks, position_);
  schedule_ = MakeSchedule(config_, length_);
  plan_step_ = StepInPlan(config_, length_, images, ranks, position_);
  if (position_.step > 0 && Done() && world_.rank() == 0) {
    console_.Line("the training is complete at step " + std::to_string(position_.step) +
                  (config_.max_steps ? " of --max-steps " + std::to_string(*config_.max_steps)
                                     : " of --epochs " + ToText(config_, *FindSetting("epochs"))) +
                  ": no step is left");
  }
  if (config_.log_samples)
    sample_log_.emplace(SampleLog::Options{.output_dir = config_.output_dir,
                                           .rank = world_.rank(),
                                           .world_size = world_.size(),
                                           .steps = position_.step});
}

void Trainer::TrainEpoch() {
  const std::int64_t epoch = position_.epoch + 1;
  const EpochPlan plan({.size = data_.train->size(),
                        .shard = strategy_->shard(),
                        .batch_size = config_.batch_size,
                        .seed = config_.seed,
                        .epoch = static_cast<std::uint64_t>(position_.epoch),
                        .consumed = position_.consumed});
  step_->BeginEpoch(plan, static_cast<std::uint64_t>(position_.epoch));
  const std::int64_t left = StepsOf(config_, plan.batches());
  // After a change of the number of ranks an epoch may be cut into other steps than the schedule's.
  const std::int64_t before = length_.steps_per_epoch - left;
  plan_step_ = position_.epoch * length_.steps_per_epoch + before;
  const std::int64_t steps_of_epoch =
      std::min(length_.steps_per_epoch, length_.steps - position_.epoch * length_.steps_per_epoch);
  for (std::int64_t i = 0; i < left && !Done(); ++i) {
    if (profiler_) profiler_->BeginStep(position_.step + 1);
    TellStep();
    checkpoints_->BeginStep(position_);
    if (model_->Advance(static_cast<double>(plan_step_) /
                        static_cast<double>(length_.steps_per_epoch)))
      step_->ForwardChanged();
    const std::int64_t first = i * config_.accumulate;
    const std::int64_t count = std::min(config_.accumulate, plan.batches() - first);
    for (std::int64_t batch = first; sample_log_ && batch < first + count; ++batch)
      sample_log_->Add(position_.step + 1, position_.epoch + 1, plan.Samples(batch));
    const TrainStep::Result result =
        step_->Make({.first = first, .count = count}, RateAt(plan_step_));
    images_ += result.own_samples;
    summary_.images += result.samples;
    summary_.data_wait_seconds += result.data_wait_seconds;
    position_.consumed = plan.ConsumedAfter(first + count - 1);
    AfterStep(result, before + i + 1, steps_of_epoch);
    EvaluateIfDue();
    if (position_.consumed == data_.train->size()) {
      ++position_.epoch;
      position_.consumed = 0;
    }
    Enter(StepSection::kCheckpoint);
    checkpoints_->EndStep(Place());
  }
  EndEpoch(epoch);
}

// Also of one that was not trained to its end, or not from its beginning.
void Trainer::EndEpoch(std::int64_t epoch) {
  Enter(StepSection::kOther);
  const Evaluation totals = tally_.Take(world_);
  if (world_.rank() != 0 || totals.images == 0) return;
  console_.Line("epoch " + std::to_string(epoch) + "/" + std::to_string(length_.epochs) +
                " mean loss " + Fixed(totals.loss, 4) + " training accuracy " +
                Percent(totals.accuracy()) + " (" + std::to_string(totals.images) +
                " images of all ranks)");
  if (log_) log_->WriteEpoch({position_.step, EpochsDone()}, totals);
}

// To ask a GPU for a number means to wait for it, so there a loss is looked at when it is shown.
void Trainer::LookAt(const at::Tensor& loss) {
  loss_ = loss.item<double>();
  if (!scaler_.enabled()) CheckFinite(loss_);
}

void Trainer::AfterStep(const TrainStep::Result& result, std::int64_t step_of_epoch,
                        std::int64_t steps_of_epoch) {
  const bool line_due = step_of_epoch % config_.log_every == 0 || step_of_epoch == steps_of_epoch;
  if (line_due && !result.loss.is_cpu()) LookAt(result.loss);
  if (line_due && scaler_.enabled() && scaler_.state().scale < 1) CheckFinite(std::nan(""));
  ++position_.step;
  ++plan_step_;
  ++summary_.steps;
  evaluation_.reset();
  if (summary_.steps == 1) {
    world_.Synchronize();
    summary_.first_step_seconds = SecondsSince(program_start_);
    summary_.first_step_time =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  Send(WordsOf(StepSection::kOther));
  clock_.EndStep();
  if (profiler_) profiler_->EndStep(position_.step);
  if (line_due) Report(loss_, step_of_epoch, steps_of_epoch);
  if (log_) log_->AddStep(result.loss, result.samples);
  if (line_due && log_) {
    log_->WriteTraining(
        {position_.step, EpochsDone()}, RateAt(plan_step_ - 1),
        config_.clip_norm > 0 ? std::optional(step_->gradient_norm()) : std::nullopt);
  }
  if (console_.BarIsDue(std::chrono::steady_clock::now()) && !Done()) ShowBar();
}

void Trainer::EvaluateIfDue() {
  const std::int64_t interval = EvaluationInterval(config_, length_);
  if (interval == 0 || plan_step_ % interval != 0) return;
  EvaluateAndReport();
}

void Trainer::EvaluateAndReport() {
  const auto begun = std::chrono::steady_clock::now();
  evaluation_ = EvaluateNow();
  evaluation_due_ = !evaluation_;
  if (evaluation_ && world_.rank() == 0) {
    console_.Line("epoch " + std::to_string(position_.epoch + 1) + " step " +
                  std::to_string(position_.step) + " test accuracy " +
                  Percent(evaluation_->accuracy()) + " loss " + Fixed(evaluation_->loss, 4));
  }
  reached_target_ = evaluation_ && config_.target_accuracy > 0 &&
                    100 * evaluation_->accuracy() >= config_.target_accuracy;
  strategy_->Train();
  // Speeds are those of training.
  const auto spent = std::chrono::steady_clock::now() - begun;
  training_start_ += spent;
  line_time_ += spent;
  rate_time_ += spent;
  if (log_) log_->LeaveOut(spent);
}

void Trainer::EvaluateAtTheEnd() {
  evaluation_ = EvaluateNow();
  if (!evaluation_) checkpoints_->StopIfAsked(Place());
}

std::optional<Evaluation> Trainer::EvaluateNow() {
  const auto begun = std::chrono::steady_clock::now();
  Enter(StepSection::kEvaluation);
  checkpoints_->BeforeUpdate();  // of the average
  if (average_) average_->Swap();
  strategy_->Evaluate();
  const std::optional<Evaluation> evaluation =
      Evaluate(world_, *strategy_, data_,
               {.batch_size = config_.eval_batch_size,
                .channels_last = config_.channels_last,
                .threads = config_.loader_threads,
                .loss = Losses().Get(config_.loss)({.reduction = at::Reduction::Sum}),
                .views = ParseTestTimeAugmentation(config_.tta),
                .go_on = [this] { return checkpoints_->EvaluationGoesOn(); }});
  checkpoints_->EndEvaluation();
  if (average_) average_->Swap();
  summary_.evaluation_seconds = SecondsSince(begun);
  Enter(StepSection::kOther);
  if (!evaluation) return std::nullopt;
  summary_.best_accuracy = std::max(summary_.best_accuracy, evaluation->accuracy());
  latest_accuracy_ = evaluation->accuracy();
  if (log_) log_->WriteTest({position_.step, EpochsDone()}, *evaluation);
  return evaluation;
}

void Trainer::Enter(StepSection section) {
  clock_.Enter(section);
  world_.ExpectPeersSoon(IsWithinStep(section));
  Send(WordsOf(section));
}

void Trainer::Send(const char* section) {
  ProgressMessage message;
  message.section = section;
  progress_.Send(message);
}

void Trainer::TellStep() {
  ProgressMessage message;
  message.step = position_.step + 1;
  message.epoch = position_.epoch + 1;
  message.section = "data";
  const auto now = std::chrono::steady_clock::now();
  if (now - rate_time_ >= kRateInterval) {
    const std::chrono::duration<double> passed = now - rate_time_;
    message.rate = static_cast<double>(images_ - rate_images_) / passed.count();
    message.unit = "images";
    rate_time_ = now;
    rate_images_ = images_;
  }
  progress_.Send(message);
}

void Trainer::Report(double loss, std::int64_t step_of_epoch, std::int64_t steps_of_epoch) {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> passed = now - line_time_;
  const double speed = static_cast<double>(images_ - line_images_) / passed.count();
  console_.Line(ToLine({.epoch = position_.epoch + 1,
                        .epochs = length_.epochs,
                        .batch = step_of_epoch,
                        .batches = steps_of_epoch,
                        .loss = loss,
                        .learning_rate = RateAt(plan_step_ - 1),
                        .images_per_second = speed}));
  line_time_ = now;
  line_images_ = images_;
}

void Trainer::ShowBar() {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - training_start_;
  const auto done = static_cast<double>(summary_.steps);
  const auto left = passed / done * static_cast<double>(length_.steps - plan_step_);
  console_.Bar(ToBar({.step = plan_step_,
                      .steps = length_.steps,
                      .loss = loss_,
                      .accuracy = latest_accuracy_,
                      .images_per_second = static_cast<double>(summary_.images) / passed.count(),
                      .data_wait = (clock_.totals() - set_up_).Share(StepSection::kData),
                      .left = left}));
}

// When the steps are about to begin: where the run goes on from is known.
void Trainer::StartMetrics() {
  if (config_.profile) {
    const std::filesystem::path folder(config_.output_dir);
    profiler_.emplace(
        world_, clock_,
        Profiler::Options{.first_step = config_.profile_first_step,
                          .steps = config_.profile_steps,
                          .file = folder / kTraceFileName,
                          .report = [this](const auto& text) { console_.Line(text); }});
  }
  ShowSectionsInNvtx(world_, clock_);
  Enter(StepSection::kOther);
  set_up_ = clock_.totals();
  if (world_.rank() == 0 && (config_.metrics || config_.tensorboard))
    log_.emplace(config_, clock_, position_.step);
}

void Trainer::ShowProfile() {
  if (!profiler_) return;
  profiler_->Finish();
  const auto ranks = GatherTimes(world_, clock_.totals() - set_up_);
  if (world_.rank() == 0) console_.Line(TimeTable(ranks));
}

double Trainer::EpochsDone() const {
  return static_cast<double>(position_.epoch) +
         static_cast<double>(position_.consumed) / static_cast<double>(data_.train->size());
}

void Trainer::CheckFinite(double loss) const {
  if (std::isfinite(loss)) return;
  Diverged(std::string("the loss is ") + (std::isnan(loss) ? "not a number" : "infinite") +
           " at step " + std::to_string(position_.step + 1) + " (epoch " +
           std::to_string(position_.epoch + 1) + ")");
}

// A loss is computed before its step's update, so no loss shows what the last update did.
void Trainer::CheckParametersFinite() const {
  if (position_.step == 0) return;
  for (const at::Tensor& values : strategy_->State()) {
    if (!at::isfinite(values).all().item<bool>())
      Diverged("parameters are not finite after step " + std::to_string(position_.step));
  }
}

void Trainer::Diverged(const std::string& fact) const {
  throw TrainingError("rank " + std::to_string(world_.rank()) + ": " + fact +
                      "; try a lower --lr than " + ToText(config_, *FindSetting("lr")) +
                      (config_.shared_blocks ? ", a longer --warmup-epochs or ten blocks of their "
                                               "own (without --shared-blocks)"
                                             : " or a longer --warmup-epochs"));
}

void Trainer::CheckRanksAgree() {
  const std::uint32_t own = Checksum(strategy_->State());
  console_.Line("parameters crc32 " + ChecksumText(own));
  if (world_.size() == 1) return;
  const std::vector<std::uint32_t> all = GatherChecksums(world_, own);
  // Ranks that are so many apart hold the same part of the model.
  const auto stages = static_cast<std::size_t>(world_.size() / strategy_->shard().world_size);
  std::string differing;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[rank % stages])
      differing += (differing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (!differing.empty()) {
    throw TrainingError(
        "the parameters of rank " + differing +
        " are not those of rank 0 after training; check these machines' memory and libraries");
  }
  if (world_.rank() != 0) return;
  console_.Line(stages == 1 ? "parameters equal on all ranks: crc32 " + ChecksumText(own)
                            : "parameters equal on all ranks of each stage");
}

void Trainer::WriteResults() {
  Send("checkpoint");
  const std::filesystem::path folder(config_.output_dir);
  SaveStateDict(*model_, folder / kModelFileName);
  WriteDescription(folder / kModelFileName, config_, InputOf(data_));
  summary_.evaluation = evaluation_;
  summary_.loss = loss_;
  summary_.total_seconds = SecondsSince(program_start_);
  summary_.world_size = world_.size();
  summary_.backend = world_.backend_name();
  summary_.device = world_.device().str();
  summary_.cuda_graph = step_->is_graph();
  summary_.deterministic = at::globalContext().deterministicAlgorithms();
  summary_.model_file = folder / kModelFileName;
  const std::string json = ToJson(summary_);
  AtomicFile file(folder / kSummaryFileName);
  file.Write(json.data(), json.size());
  file.Commit();
  console_.Line(ToTable(summary_));
}

}  // namespace ddprun
