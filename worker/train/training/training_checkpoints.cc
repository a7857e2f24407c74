// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/training_checkpoints.h"

#include <filesystem>
#include <utility>

#include "proto/json_text.h"
#include "proto/worker_env.h"
#include "rendezvous/base/signal_name.h"
#include "worker/library/base/first_line.h"
#include "worker/library/checkpoint/resume.h"
#include "worker/library/checkpoint/stop_signal.h"
#include "worker/library/files/tensor_list.h"
#include "worker/train/config/config.h"
#include "worker/train/step/run_ahead_limit.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

// A batch of an evaluation that takes so many times as long as the one before is taken for one that
// hangs.
constexpr int kPatienceBatches = 3;

// Steps of a GPU that are queued before one is waited for: their times say nothing.
constexpr std::int64_t kQueuedSteps = 2 * RunAheadLimit::kStepsAhead;

constexpr char kGoesOn[] = "; training goes on, and the next one is tried";

}  // namespace

bool SavesCheckpoints(const Config& config) {
  return config.checkpoint_every > 0 || config.checkpoint_seconds > 0 ||
         !config.checkpoint_dir.empty() || config.keep_best != KeepBest::kOff;
}

std::string CheckpointFolder(const Config& config) {
  return config.checkpoint_dir.empty()
             ? (std::filesystem::path(config.output_dir) / kCheckpointsFolder).string()
             : config.checkpoint_dir;
}

TrainingCheckpoints::TrainingCheckpoints(const Config& config, const Dataset& data, World& world,
                                         Console& console, TrainingParts& parts,
                                         const TrainingState& state, SavedSoFar& saved,
                                         Observers& observers)
    : config_(config),
      data_(data),
      world_(world),
      console_(console),
      contents_(config, data, world, parts),
      saving_(SavesCheckpoints(config)),
      folder_(CheckpointFolder(config)),
      saved_(saved),
      state_(state),
      observers_(observers),
      notices_(saving_ ? world.env().notify_socket : ""),
      vote_(world),
      evaluation_vote_(world),
      patience_(world.device().is_cuda() ? kQueuedSteps : 0) {}

TrainingPlace TrainingCheckpoints::Resume() {
  // Rank 0's finding, or what is wrong with it, for all.
  Json finding = Json::object();
  ResumePoint point;
  if (world_.rank() == 0) {
    try {
      point = DecideResume({.resume = config_.resume,
                            .restarted = Restarted(world_.env()),
                            .run = world_.env().run_id,
                            .settings = TrainingSettings(config_),
                            .folder = folder_,
                            .saving = saving_},
                           [this](const std::string& text) { console_.Line(text); });
      finding["training"] = point.training;
      if (point.checkpoint) {
        finding["about"] = point.checkpoint->snapshot.about;
        finding["tensors"] = TensorList(point.checkpoint->snapshot.tensors);
        contents_.CheckFits(*point.checkpoint);
        KeepBestIfThere(point, finding["about"]);
      }
    } catch (const UsageError& error) {
      finding["usage"] = error.what();
    } catch (const std::exception& error) {
      finding["error"] = error.what();
    }
  }
  finding = Json::parse(world_.BroadcastText(JsonText(finding)));
  if (finding.contains("usage")) throw UsageError(finding["usage"].get<std::string>());
  if (finding.contains("error")) throw std::runtime_error(finding["error"].get<std::string>());
  saved_.training = finding["training"].get<std::string>();
  MakeWriter(point.checkpoint ? point.checkpoint->path : "");
  step_time_ = Clock::now();
  if (!finding.contains("about")) return {};
  const TrainingPlace place =
      contents_.Load(point.checkpoint ? &point.checkpoint->snapshot : nullptr, finding["about"],
                     finding["tensors"]);
  best_done_ = place.best.step;
  if (world_.rank() == 0) {
    const std::int64_t images = data_.train->size();
    const std::int64_t saved = SavedImages(finding["about"]).value_or(images);
    if (saved != images) {
      console_.Line("the data set has " + std::to_string(images) + " training images, but had " +
                    std::to_string(saved) + " when the checkpoint was saved: epoch " +
                    std::to_string(place.position.epoch + 1) + " starts from its first image");
    }
    if (std::filesystem::path(point.checkpoint->path).parent_path() == folder_)
      saved_.good_step = place.position.step;
    console_.Line("goes on from " + point.checkpoint->path + ": epoch " +
                  std::to_string(place.position.epoch + 1) + " after " +
                  std::to_string(place.position.consumed) + " of " + std::to_string(images) +
                  " images, step " + std::to_string(place.position.step));
  }
  return place;
}

void TrainingCheckpoints::KeepBestIfThere(const ResumePoint& point, Json& about) {
  if (!about.contains(kBestKey)) return;
  const auto by_loss = [](const Json& settings) {
    return settings.value("keep-best", "") == NamesOf(KeepBest{}).back();
  };
  const bool by_this_metric =
      by_loss(about.value("config", Json::object())) == (config_.keep_best == KeepBest::kLoss);
  const bool keeps = config_.keep_best != KeepBest::kOff;
  const auto notify = [this](const std::string& text) { console_.Line(text); };
  std::string why;
  if (!by_this_metric)
    why = "it was by another metric";
  else if (TrainingOf(point.checkpoint->snapshot) != point.training)
    why = "it was another training's";
  else if (keeps && !FindBest(folder_, point.training, notify))
    why = "its checkpoint " + std::string(kBestCheckpoint) + " is not in " + folder_;
  if (why.empty()) return;
  about.erase(kBestKey);
  if (keeps || config_.patience > 0)
    console_.Line("the best evaluation so far does not count: " + why +
                  "; the best is looked for from here on");
}

void TrainingCheckpoints::GoOn() {
  step_time_ = Clock::now();
  // A rank that was rank 0 finishes its save here, so that rank 0 does not find it unfinished.
  if (world_.rank() != 0) saved_.writer.reset();
  if (!saved_.writer) MakeWriter("");
}

void TrainingCheckpoints::MakeWriter(const std::string& loaded_from) {
  saved_.time = Clock::now();
  saved_.put_off = false;
  saved_.good_step = -1;
  saved_.best_step = -1;
  if (world_.rank() != 0 || !saving_) return;
  if (config_.keep_best != KeepBest::kOff) {
    const auto best = FindBest(folder_, saved_.training, [](const std::string&) {});
    if (best) saved_.best_step = HeaderFields(best->snapshot.about).Count("step");
  }
  saved_.writer = std::make_unique<CheckpointWriter>(
      CheckpointWriter::Options{.folder = folder_,
                                .training = saved_.training,
                                .loaded_from = loaded_from,
                                .keep = config_.checkpoint_keep});
}

// Whether rank 0 asks for a save: the others do not know of it.
bool TrainingCheckpoints::WishesToSave() const {
  if (world_.rank() != 0) return false;
  const std::chrono::duration<double> passed = Clock::now() - saved_.time;
  return saved_.put_off ||
         (config_.checkpoint_seconds > 0 && passed.count() >= config_.checkpoint_seconds);
}

void TrainingCheckpoints::OnStepBegin(const TrainingState&, const EpochPlan&, const StepBatches&) {
  if (!saving_) return;
  const int notice = notices_.Heard();
  vote_.Begin({.save = WishesToSave(),
               .notice = notice > saved_.notice ? notice : 0,
               .stop = StopSignal::Received()});
}

void TrainingCheckpoints::BeforeUpdate() {
  // Save() has copied what is on a device there.
  if (world_.device().is_cuda()) return;
  if (saved_.writer) saved_.writer->WaitUntilCopied();
}

bool TrainingCheckpoints::EvaluationGoesOn() {
  if (!saving_) return true;
  const Clock::time_point now = Clock::now();
  if (evaluation_time_ == Clock::time_point{}) {
    evaluation_time_ = now;
    StopSignal::Progress(StopSignal::kPatienceMax);  // nothing is known of its batches yet
  } else {
    stop_ = evaluation_vote_.End().stop;  // of the batch before
    StopSignal::Progress(kPatienceBatches * (now - batch_time_) + StopSignal::kPatienceMin);
  }
  batch_time_ = now;
  if (stop_ != 0) return false;
  evaluation_vote_.Begin({.stop = StopSignal::Received()});
  return true;
}

void TrainingCheckpoints::EndEvaluation() {
  if (!saving_ || evaluation_time_ == Clock::time_point{}) return;
  if (stop_ == 0) stop_ = evaluation_vote_.End().stop;
  step_time_ += Clock::now() - evaluation_time_;  // which is no part of the step
  evaluation_time_ = {};
  StopSignal::Progress(patience_.Get());
}

void TrainingCheckpoints::AfterStep(const TrainingState&) {
  observers_.OnSection(StepSection::kCheckpoint);
  if (!saving_) return;
  StepVote::Wishes wishes = vote_.End();
  if (world_.size() == 1) wishes.stop = StopSignal::Received();
  if (wishes.stop != 0) stop_ = wishes.stop;
  StopIfAsked();
  if (config_.checkpoint_every > 0 && place().position.step % config_.checkpoint_every == 0)
    wishes.save = true;
  if (wishes.notice > saved_.notice) {
    saved_.notice = wishes.notice;
    saved_.notice_step = place().position.step;
    wishes.save = true;
  }
  if (BestIsDue()) wishes.save = true;
  // A save may hold up rank 0, and with it the others, until the next step ends. So may what an
  // epoch begins with.
  const bool slow = wishes.save || place().position.consumed == 0;
  if (slow) StopSignal::Progress(StopSignal::kPatienceMax);
  if (wishes.save) Save();
  TellReports(kGoesOn);
  const bool on_disk = world_.rank() != 0 || saved_.good_step >= saved_.notice_step;
  if (saved_.notice > 0 && on_disk) notices_.TellSaved(saved_.notice);
  const Clock::time_point now = Clock::now();
  patience_.Add(now - step_time_);
  step_time_ = now;
  if (!slow) StopSignal::Progress(patience_.Get());
}

void TrainingCheckpoints::StopIfAsked() {
  if (stop_ != 0) Stop(stop_);
}

void TrainingCheckpoints::EndSteps() {
  if (saving_) StopSignal::Acknowledge();
}

void TrainingCheckpoints::Save() {
  observers_.Notify(&Observer::BeforeRead, state_);
  TrainingSnapshot::Gathered gathered = contents_.Gather();
  const bool best = BestIsDue();
  if (best) best_done_ = place().position.step;
  if (!saved_.writer || (saved_.good_step == place().position.step && !best)) return;
  SaveOnRank0(std::move(gathered), best);
}

void TrainingCheckpoints::SaveOnRank0(TrainingSnapshot::Gathered gathered, bool best) {
  const std::string begin = "checkpoint of step " + std::to_string(place().position.step);
  // What is put off is saved with later parameters, which nobody has evaluated.
  if (best && !saved_.writer->WaitUntilSaved(kBestLimit)) {
    console_.Line(begin + ", the best so far, is not saved: the save before it takes more than " +
                  std::to_string(kBestLimit.count()) + " s");
    return;
  }
  try {
    saved_.put_off = !saved_.writer->Save(
        place().position.step, contents_.Complete(std::move(gathered), place(), saved_.training),
        best);
  } catch (const std::exception& error) {
    // Most likely memory: what the training itself needs is there already.
    saved_.put_off = false;
    saved_.time = Clock::now();
    console_.Line(begin + " is not saved: " + FirstLine(error));
    return;
  }
  if (!saved_.put_off) saved_.time = Clock::now();
}

bool TrainingCheckpoints::BestIsDue() const {
  const std::int64_t step = place().position.step;
  return config_.keep_best != KeepBest::kOff && place().best.step == step && best_done_ != step;
}

void TrainingCheckpoints::SaveBest() {
  if (!BestIsDue()) return;
  StopSignal::Progress(StopSignal::kPatienceMax);
  Finish();
}

std::string TrainingCheckpoints::BestFile(const BestEvaluation& best) const {
  if (best.step < 0 || saved_.best_step != best.step) return "";
  return std::filesystem::path(folder_) / kBestCheckpoint;
}

void TrainingCheckpoints::TellReports(const char* next) {
  if (!saved_.writer) return;
  for (const CheckpointWriter::Report& report : saved_.writer->TakeReports()) {
    if (report.error.empty()) {
      saved_.good_step = report.step;
      if (report.best) saved_.best_step = report.step;
    } else {
      console_.Line(report.error + next);
    }
  }
}

void TrainingCheckpoints::Finish() {
  if (!saving_) return;
  if (saved_.writer) saved_.writer->WaitUntilSaved(kSaveLimit);
  TellReports("");
  Save();
  if (saved_.writer) saved_.writer->WaitUntilSaved(kSaveLimit);
  TellReports("");
}

void TrainingCheckpoints::AwaitSave() {
  if (saved_.writer && saved_.writer->WaitUntilCopied(kCopyLimit))
    saved_.writer->WaitUntilSaved(kSaveLimit);
}

void TrainingCheckpoints::Stop(int signal) {
  StopSignal::Acknowledge();
  Finish();
  std::string sentence = "rank " + std::to_string(world_.rank()) + ": ended by " +
                         SignalName(signal) + " after step " +
                         std::to_string(place().position.step);
  if (world_.rank() == 0) {
    sentence +=
        saved_.good_step == place().position.step
            ? "; " + (std::filesystem::path(folder_) / CheckpointName(saved_.good_step)).string() +
                  " holds it, pass --resume auto to go on"
            : "; it is not saved";
  }
  throw Stopped(signal, sentence);
}

}  // namespace ddprun
