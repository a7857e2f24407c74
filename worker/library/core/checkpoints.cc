// SPDX-License-Identifier: Apache-2.0
#include "ddprun/checkpoints.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "ddprun/detail/step_vote.h"
#include "ddprun/detail/world_access.h"
#include "proto/json_text.h"
#include "proto/version.h"
#include "proto/worker_env.h"
#include "rendezvous/base/signal_name.h"
#include "worker/library/base/first_line.h"
#include "worker/library/checkpoint/checkpoint_folder.h"
#include "worker/library/checkpoint/checkpoint_writer.h"
#include "worker/library/checkpoint/header_fields.h"
#include "worker/library/checkpoint/notice_socket.h"
#include "worker/library/checkpoint/resume.h"
#include "worker/library/checkpoint/stop_signal.h"
#include "worker/library/core/kept_state.h"
#include "worker/library/core/one_writer.h"
#include "worker/library/core/parameter_check.h"
#include "worker/library/core/step_order.h"
#include "worker/library/core/step_seeds.h"
#include "worker/library/core/tracked.h"
#include "worker/library/ddp/gradient_weight.h"
#include "worker/library/files/tensor_list.h"
#include "worker/library/rounds/process_state.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

// As `train --resume` has them, by ResumeFrom.
constexpr const char* kResumeTexts[] = {"auto", "restart", "never"};

// How long a training waits for a checkpoint to be written.
constexpr std::chrono::seconds kSaveLimit{600};

Json ToJson(const TrainingPosition& position) {
  return {{"step", position.step}, {"epoch", position.epoch}, {"consumed", position.consumed}};
}

}  // namespace

class Checkpoints::State {
 public:
  State(World& world, Options options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void Add(TrackedThing thing) { tracked_.Add(std::move(thing)); }
  World& world() { return world_; }
  TrainingPosition Resume();
  // Unless that was called.
  TrainingPosition ResumeOnce() { return order_.resumed() ? order_.position() : Resume(); }
  void BeginStep(const TrainingPosition& after, double weight);
  // The signal that has ended the training; 0: none has.
  int EndStep(const TrainingPosition& position);
  void Finish(const TrainingPosition& position);

 private:
  bool saving() const { return !options_.folder.empty(); }
  bool IsDue(const TrainingPosition& position) const {
    return options_.every_steps > 0 && position.step % options_.every_steps == 0;
  }
  const std::shared_ptr<ProcessState>& process() const { return WorldAccess::Process(world_); }
  // Whether a rank of this world may go on in another one.
  bool is_kept() const {
    return process() != nullptr && world_.interrupt() != nullptr && !tracked_.divided();
  }
  // Throws what the ranks do not have alike.
  void CheckAlike();
  // The rank whose memory all go on from; none: none has any.
  std::optional<int> FindSource();
  TrainingPosition GoOn(int source);
  TrainingPosition FromDisk();
  // The tensors of `root`, null on the others, become those of all ranks' tracked things.
  void Send(const NamedTensors* tensors, int root, const std::string& source);
  void MakeWriter(const std::string& loaded_from);
  void Mark(const TrainingPosition& position);
  void BeginVote();
  void SeedNextStep(const TrainingPosition& position) const;
  void Keep();
  void Save(const TrainingPosition& position);
  // Time limit for the whole end of the training: other ranks wait for rank 0.
  std::chrono::milliseconds save_limit() const;
  // Saves `position` and waits until it is saved. Of rank 0: why it is not on the disk; empty: it
  // is, or nothing is saved.
  std::string SaveLast(const TrainingPosition& position);
  // What a program that leaves without Finish() would lose.
  void SaveUnfinished();
  void TellReports();
  // Errors of the saves that have ended since the last call.
  std::vector<std::string> TakeErrors();
  void Stop(const TrainingPosition& position, int signal);

  const OneOfProcess only_one_;
  World& world_;
  Options options_;
  Tracked tracked_;
  std::unique_ptr<FolderLock> lock_;  // rank 0's, as the next
  std::unique_ptr<CheckpointWriter> writer_;
  std::optional<StopSignal> signals_;
  NoticeSocket notices_;
  int notice_ = 0;                 // the last one that was saved for,
  std::int64_t notice_step_ = -1;  // and in which step
  StepVote vote_;
  StepPatience patience_;
  Clock::time_point step_time_{};
  std::string training_;
  StepOrder order_;
  std::optional<GradientWeight> weight_;            // of the step under way
  bool checked_ = false;                            // the first step since Resume()
  std::optional<std::int64_t> optimizer_versions_;  // at Resume()
  std::int64_t saved_step_ = -1;
  std::optional<TrainingPosition> marked_;
  const int exceptions_ = std::uncaught_exceptions();
};

Checkpoints::State::State(World& world, Options options)
    : world_(world),
      options_(std::move(options)),
      notices_(saving() && options_.stop_on_signals ? world.env().notify_socket : ""),
      vote_(world) {
  if (options_.every_steps < 0 || options_.keep < 1)
    throw std::invalid_argument("Checkpoints cannot save every " +
                                std::to_string(options_.every_steps) + " steps and keep " +
                                std::to_string(options_.keep) +
                                "; give 0 or more steps, and keep at least 1");
  if (!options_.notify)
    options_.notify = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  if (saving() && world_.rank() == 0) lock_ = TakeFolder(options_.folder, world_, options_.notify);
  if (options_.stop_on_signals) signals_.emplace();
}

Checkpoints::State::~State() {
  Keep();
  if (std::uncaught_exceptions() == exceptions_) SaveUnfinished();
  // A disk that hangs has it for good: whoever waits for the thread would hang, too.
  if (writer_ && !writer_->WaitUntilSaved(save_limit())) writer_.release();
}

void Checkpoints::State::CheckAlike() {
  const std::string own =
      "tracks " + (tracked_.Names().empty() ? "nothing" : tracked_.Names()) + " and saves " +
      (saving() ? "every " + std::to_string(options_.every_steps) + " steps" : "nothing") +
      (options_.stop_on_signals ? "" : ", whatever signals come");
  const std::string expected = world_.BroadcastText(own);
  const bool alike = world_.OnAllRanks(own == expected);
  if (alike) return;
  throw std::invalid_argument(
      "rank " + std::to_string(world_.rank()) + " " + own +
      (own == expected ? ", but another rank has other Checkpoints" : ", but rank 0 " + expected) +
      "; make the same on all ranks");
}

std::chrono::milliseconds Checkpoints::State::save_limit() const {
  return std::min<std::chrono::milliseconds>(kSaveLimit, world_.timeout() * 3 / 4);
}

std::optional<int> Checkpoints::State::FindSource() {
  const KeptState* kept = is_kept() ? process()->kept.get() : nullptr;
  const at::Tensor steps =
      world_.AllGather(at::full({1}, kept == nullptr ? -1 : kept->position.step, at::kLong));
  const auto source = static_cast<int>(steps.argmax(0).item<std::int64_t>());
  if (steps[source].item<std::int64_t>() < 0) return std::nullopt;
  return source;
}

TrainingPosition Checkpoints::State::Resume() {
  CheckAlike();
  const std::optional<int> source = FindSource();
  const TrainingPosition position = source ? GoOn(*source) : FromDisk();
  if (process() != nullptr) process()->kept.reset();
  Mark(position);
  order_.Resume(position);
  checked_ = false;
  optimizer_versions_ = tracked_.OptimizerVersions();
  StepSeeds::OfProcess().Begin();
  SeedNextStep(position);
  step_time_ = Clock::now();
  BeginVote();
  return position;
}

TrainingPosition Checkpoints::State::GoOn(int source) {
  const KeptState* kept = world_.rank() == source ? process()->kept.get() : nullptr;
  Json words;
  if (kept != nullptr) words = {{"position", ToJson(kept->position)}, {"training", kept->training}};
  words = Json::parse(world_.BroadcastText(JsonText(words), source));
  const TrainingPosition position = PositionIn(HeaderFields(words.at("position")));
  training_ = words.at("training").get<std::string>();
  Send(kept == nullptr ? nullptr : &kept->tensors, source,
       "the state of rank " + std::to_string(source));
  MakeWriter("");
  if (world_.rank() == 0)
    options_.notify("goes on after step " + std::to_string(position.step) + " with " +
                    std::to_string(world_.size()) + (world_.size() == 1 ? " rank" : " ranks") +
                    "; the state is rank " + std::to_string(source) + "'s");
  return position;
}

TrainingPosition Checkpoints::State::FromDisk() {
  ResumePoint point;
  Json finding = {{"training", ""}};
  if (world_.rank() == 0 && saving()) {
    const WorkerEnv& env = world_.env();
    try {
      point = DecideResume(
          {.resume = options_.resume_path.empty() ? kResumeTexts[static_cast<int>(options_.resume)]
                                                  : options_.resume_path,
           .restarted = Restarted(env),
           .run = env.run_id,
           .settings = Json::object(),
           .folder = options_.folder,
           .saving = true},
          options_.notify);
      finding["training"] = point.training;
      if (point.checkpoint) {
        finding["path"] = point.checkpoint->path;
        finding["position"] = ToJson(ReadHeader(*point.checkpoint, PositionIn));
      }
    } catch (const std::exception& error) {
      finding["error"] = FirstLine(error);
    }
  }
  finding = Json::parse(world_.BroadcastText(JsonText(finding)));
  if (finding.contains("error")) throw CheckpointError(finding.at("error").get<std::string>());
  training_ = finding.at("training").get<std::string>();
  if (!finding.contains("path")) {
    MakeWriter("");
    return {};
  }
  // Rank 0's own is of the bytes that the file has.
  const std::string path =
      point.checkpoint ? point.checkpoint->path : finding.at("path").get<std::string>();
  const TrainingPosition position = PositionIn(HeaderFields(finding.at("position")));
  Send(point.checkpoint ? &point.checkpoint->snapshot.tensors : nullptr, /*root=*/0, path);
  MakeWriter(path);
  if (world_.rank() == 0) {
    if (std::filesystem::path(path).parent_path() == options_.folder) saved_step_ = position.step;
    options_.notify("goes on from " + path + ": step " + std::to_string(position.step));
  }
  return position;
}

void Checkpoints::State::Send(const NamedTensors* tensors, int root, const std::string& source) {
  const Json list = Json::parse(
      world_.BroadcastText(tensors == nullptr ? "" : JsonText(TensorList(*tensors)), root));
  NamedTensors received;
  for (std::size_t i = 0; i < list.size(); ++i) {
    at::Tensor value = tensors == nullptr ? EmptyOf(list[i], world_.device())
                                          : (*tensors)[i].second.to(world_.device()).contiguous();
    if (world_.size() > 1) world_.Broadcast(value, root);
    received.emplace_back(list[i].at(0).get<std::string>(), value);
  }
  tracked_.Write(received, source);
}

void Checkpoints::State::MakeWriter(const std::string& loaded_from) {
  if (world_.rank() != 0 || !saving()) return;
  if (training_.empty()) training_ = NewTrainingName();
  writer_ = std::make_unique<CheckpointWriter>(CheckpointWriter::Options{.folder = options_.folder,
                                                                         .training = training_,
                                                                         .loaded_from = loaded_from,
                                                                         .keep = options_.keep});
}

void Checkpoints::State::Mark(const TrainingPosition& position) {
  if (!is_kept()) return;
  tracked_.Mark();
  marked_ = position;
}

void Checkpoints::State::Keep() {
  if (!marked_) return;
  try {
    NamedTensors tensors = tracked_.Marked();
    if (tensors.empty()) return;
    process()->kept = std::make_shared<KeptState>(
        KeptState{.position = *marked_, .training = training_, .tensors = std::move(tensors)});
  } catch (const std::exception&) {
    // This rank goes on without a state of its own.
  }
}

void Checkpoints::State::BeginStep(const TrainingPosition& after, double weight) {
  order_.BeginStep(after);
  if (weight != 1) weight_.emplace(tracked_.Parameters(), weight);
}

int Checkpoints::State::EndStep(const TrainingPosition& position) {
  weight_.reset();
  order_.EndStep(position);
  Mark(position);
  world_.CheckRound();  // a rank alone has no collective that would tell
  const StepVote::Wishes wishes = signals_ ? vote_.End() : StepVote::Wishes{};
  int stop = wishes.stop;
  if (world_.size() == 1 && signals_) stop = StopSignal::Received();
  if (stop != 0) {
    Stop(position, stop);
    return stop;
  }
  if (!std::exchange(checked_, true) && options_.check_parameters) {
    CheckStepMade(tracked_, optimizer_versions_);
    CheckParameters(world_, tracked_, position.step);
  }
  const bool noticed = wishes.notice > notice_;
  if (noticed) {
    notice_ = wishes.notice;
    notice_step_ = position.step;
  }
  const bool due = IsDue(position) || noticed;
  // A save may hold up rank 0, and with it the others, until the next step ends.
  if (due && signals_) StopSignal::Progress(StopSignal::kPatienceMax);
  if (due) Save(position);
  TellReports();
  if (notice_ > 0 && (world_.rank() != 0 || saved_step_ >= notice_step_))
    notices_.TellSaved(notice_);
  const Clock::time_point begun = std::exchange(step_time_, Clock::now());
  patience_.Add(step_time_ - begun);
  if (signals_ && !due) StopSignal::Progress(patience_.Get());
  BeginVote();
  SeedNextStep(position);
  return 0;
}

void Checkpoints::State::BeginVote() {
  if (!signals_) return;
  const int notice = notices_.Heard();
  vote_.Begin({.notice = notice > notice_ ? notice : 0, .stop = StopSignal::Received()});
}

void Checkpoints::State::SeedNextStep(const TrainingPosition& position) const {
  if (options_.seed_steps) StepSeeds::OfProcess().Set(world_.device(), position.step + 1);
}

void Checkpoints::State::Save(const TrainingPosition& position) {
  if (!saving()) return;
  if (writer_) {
    // On its way as long as the disk is slower than every_steps.
    writer_->WaitUntilSaved(save_limit());
    TellReports();
  } else if (!tracked_.divided()) {
    return;
  }
  NamedTensors tensors = tracked_.Read();
  if (!writer_ || saved_step_ == position.step) return;
  Json about = ToJson(position);
  about[kTrainingKey] = training_;
  about["version"] = kSoftwareVersion;
  about["world_size"] = world_.size();
  world_.Synchronize();
  if (!writer_->Save(position.step, {std::move(tensors), std::move(about)})) {
    options_.notify("the checkpoint of step " + std::to_string(position.step) +
                    " is not saved: the one before is still being written");
    return;
  }
  writer_->WaitUntilCopied();
}

std::string Checkpoints::State::SaveLast(const TrainingPosition& position) {
  if (signals_) StopSignal::Acknowledge();
  Save(position);
  if (!writer_) return "";
  const bool in_time = writer_->WaitUntilSaved(save_limit());
  const std::vector<std::string> errors = TakeErrors();
  if (saved_step_ == position.step) return "";
  if (!errors.empty()) return errors.back();
  return "checkpoint of step " + std::to_string(position.step) + " is not saved" +
         (in_time ? "" : ": the disk of " + options_.folder + " does not take it; look at it");
}

void Checkpoints::State::TellReports() {
  for (const std::string& error : TakeErrors())
    options_.notify(error + "; training goes on, and the next one is tried");
}

std::vector<std::string> Checkpoints::State::TakeErrors() {
  std::vector<std::string> errors;
  if (!writer_) return errors;
  for (const CheckpointWriter::Report& report : writer_->TakeReports()) {
    if (report.error.empty())
      saved_step_ = report.step;
    else
      errors.push_back(report.error);
  }
  return errors;
}

void Checkpoints::State::Finish(const TrainingPosition& position) {
  order_.Finish(position);
  const std::string error = world_.BroadcastText(SaveLast(position));
  if (!error.empty()) throw CheckpointError(error);
  if (options_.check_parameters) CheckParameters(world_, tracked_, position.step);
}

// Without a collective: other ranks may not come to it. All ranks find out that all are needed.
void Checkpoints::State::SaveUnfinished() {
  const std::optional<TrainingPosition> position = order_.Unfinished();
  if (!position || !saving()) return;
  std::string error;
  if (tracked_.divided()) {
    if (IsDue(*position)) return;
    error = "step " + std::to_string(position->step) +
            " is not saved: the training has ended without Checkpoints::Finish(), which collects "
            "the parts of the optimizer's state; call it on all ranks";
  } else if (saved_step_ != position->step) {
    try {
      error = SaveLast(*position);
    } catch (const std::exception& failed) {
      error = FirstLine(failed);
    }
  }
  if (error.empty()) return;
  if (process() != nullptr)
    process()->unsaved = error;
  else
    options_.notify(error);
}

void Checkpoints::State::Stop(const TrainingPosition& position, int signal) {
  order_.Stop();
  const std::string error = SaveLast(position);
  if (!error.empty()) options_.notify(error);
  if (process() != nullptr) process()->stopped_by = signal;
  if (world_.rank() != 0) return;
  std::string sentence =
      "ended by " + SignalName(signal) + " after step " + std::to_string(position.step);
  if (saving()) {
    const std::string path =
        (std::filesystem::path(options_.folder) / CheckpointName(position.step)).string();
    sentence += saved_step_ == position.step ? "; " + path + " holds it" : "; it is not saved";
  }
  options_.notify(sentence);
}

Checkpoints::Checkpoints(World& world, Options options)
    : state_(std::make_unique<State>(world, std::move(options))) {}
Checkpoints::~Checkpoints() = default;

void Checkpoints::Track(const std::string& name, torch::nn::Module& module) {
  state_->Add(ThingOf(name, module));
}
void Checkpoints::Track(const std::string& name, torch::optim::Optimizer& optimizer) {
  state_->Add(ThingOf(name, optimizer));
}
void Checkpoints::Track(const std::string& name, torch::optim::LRScheduler& schedule) {
  state_->Add(ThingOf(name, schedule));
}
void Checkpoints::Track(const std::string& name, ShardedOptimizer& optimizer) {
  state_->Add(ThingOf(name, optimizer));
}
void Checkpoints::Track(const std::string& name, std::int64_t& number) {
  state_->Add(ThingOf(name, number));
}
void Checkpoints::Track(const std::string& name, double& number) {
  state_->Add(ThingOf(name, number));
}

void Checkpoints::Track(const std::string& name, std::function<Tensors()> read,
                        std::function<void(const Tensors&)> write) {
  state_->Add({.name = name, .read = std::move(read), .write = std::move(write)});
}

TrainingPosition Checkpoints::Resume() { return state_->Resume(); }
bool Checkpoints::EndStep(const TrainingPosition& position) {
  return state_->EndStep(position) != 0;
}
void Checkpoints::Finish(const TrainingPosition& position) { state_->Finish(position); }

World& Checkpoints::world() { return state_->world(); }
TrainingPosition Checkpoints::Begin() { return state_->ResumeOnce(); }
void Checkpoints::BeginStep(const TrainingPosition& after, double weight) {
  state_->BeginStep(after, weight);
}
void Checkpoints::EndStepOrThrow(const TrainingPosition& position) {
  if (const int signal = state_->EndStep(position); signal != 0)
    throw Stopped(
        signal, "ended by " + SignalName(signal) + " after step " + std::to_string(position.step));
  world().Progress(position.step, position.epoch);
}

}  // namespace ddprun
