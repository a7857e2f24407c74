// SPDX-License-Identifier: Apache-2.0
// The checkpoints of a training: where it begins (--resume), when one is saved, and how a signal
// ends it. Rank 0 finds and writes the files. All ranks must call the same methods.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "ddprun/detail/step_vote.h"
#include "ddprun/world.h"
#include "worker/library/checkpoint/checkpoint_writer.h"
#include "worker/library/checkpoint/notice_socket.h"
#include "worker/library/checkpoint/resume.h"
#include "worker/library/checkpoint/stop_signal.h"
#include "worker/train/config/config.h"
#include "worker/train/data/dataset.h"
#include "worker/train/metrics/console.h"
#include "worker/train/step/observer.h"
#include "worker/train/step/training_plan.h"
#include "worker/train/training/training_parts.h"
#include "worker/train/training/training_snapshot.h"

namespace ddprun {

// Whether this training saves any.
bool SavesCheckpoints(const Config& config);
// --checkpoint-dir, or checkpoints in --output-dir.
std::string CheckpointFolder(const Config& config);

// What of a training's checkpoints outlives a world of its ranks.
struct SavedSoFar {
  std::string training;                      // see checkpoint_folder.h
  std::unique_ptr<CheckpointWriter> writer;  // rank 0's, as the next
  bool put_off = false;                      // one is due since a step before
  std::int64_t good_step = -1;               // of the latest checkpoint in the folder
  std::int64_t best_step = -1;               // of best.safetensors, if it is of this training
  int notice = 0;                            // the last one that was saved for,
  std::int64_t notice_step = -1;             // and in which step
  std::chrono::steady_clock::time_point time{};
};

class TrainingCheckpoints : public Observer {
 public:
  // How long the end of a training waits for its last checkpoint.
  static constexpr std::chrono::seconds kSaveLimit{600};
  // And the end of one that has failed for its copy of what is on the device.
  static constexpr std::chrono::seconds kCopyLimit{5};
  // How long the save of a best model waits for the save before it; ranks wait in a collective
  // then.
  static constexpr std::chrono::seconds kBestLimit{30};

  // A checkpoint is made of `parts` and `state`, and read into the parts. All must outlive this
  // object. `observers` are told on all ranks before each checkpoint; what one of them throws,
  // saves nothing.
  TrainingCheckpoints(const Config& config, const Dataset& data, World& world, Console& console,
                      TrainingParts& parts, const TrainingState& state, SavedSoFar& saved,
                      Observers& observers);

  // Puts what the checkpoint holds, that --resume says, into the parts of all ranks. Where there is
  // none, the beginning. Throws the same on all ranks: UsageError (it is of another training),
  // std::runtime_error (it cannot be read).
  TrainingPlace Resume();
  // Instead of Resume(), where the ranks have their state from the world before.
  void GoOn();

  void OnStepBegin(const TrainingState&, const EpochPlan&, const StepBatches&) override;
  void BeforeUpdate() override;
  // Saves what is due. Throws Stopped on all ranks if a signal has asked for the end and it is
  // saved: world's Shutdown() is the next that they do together.
  void AfterStep(const TrainingState&) override;
  // During an evaluation, before each of its batches: false on all ranks if a signal has asked one
  // of them for the end. EndEvaluation() follows in any case.
  bool EvaluationGoesOn();
  void EndEvaluation();
  // After an evaluation that does not belong to a step. Throws Stopped as AfterStep() does.
  void StopIfAsked();
  // Saves and throws Stopped, on all ranks.
  [[noreturn]] void Stop(int signal);
  // After the last step: from here on no signal ends this rank before it has saved.
  void EndSteps();
  // At the end of the training: its checkpoint is on the disk when this returns.
  void Finish();
  // Saves if the latest evaluation, after the latest step, was the best and is not saved yet.
  // Its checkpoint is on the disk when this returns. AfterStep() and Finish() save it, too.
  void SaveBest();
  // Where the checkpoint of that evaluation is; empty if it was not saved, and on ranks but 0.
  std::string BestFile(const BestEvaluation& best) const;
  // Until the save that is under way has ended; not if it cannot be copied from the device.
  void AwaitSave();

 private:
  const TrainingPlace& place() const { return state_.place; }
  void MakeWriter(const std::string& loaded_from);
  bool WishesToSave() const;
  void Save();
  void SaveOnRank0(TrainingSnapshot::Gathered gathered, bool best);
  bool BestIsDue() const;
  // Drops the best evaluation of the checkpoint that training resumes from if that evaluation's own
  // checkpoint is not there.
  void KeepBestIfThere(const ResumePoint& point, nlohmann::json& about);
  // `next`: what becomes of a save that has failed, as the end of its sentence.
  void TellReports(const char* next);

  const Config& config_;
  const Dataset& data_;
  World& world_;
  Console& console_;
  TrainingSnapshot contents_;
  const bool saving_;
  const std::string folder_;

  SavedSoFar& saved_;
  const TrainingState& state_;
  Observers& observers_;
  NoticeSocket notices_;
  StepVote vote_;
  StepVote evaluation_vote_;
  std::int64_t best_done_ =
      -1;         // the step whose evaluation was the best and is saved, or was tried
  int stop_ = 0;  // the signal that has ended an evaluation, the same on all ranks
  std::chrono::steady_clock::time_point step_time_{};
  // Start of the evaluation under way, and of its latest batch; 0: none is under way.
  std::chrono::steady_clock::time_point evaluation_time_{};
  std::chrono::steady_clock::time_point batch_time_{};
  StepPatience patience_;
};

}  // namespace ddprun
