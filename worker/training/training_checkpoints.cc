// SPDX-License-Identifier: Apache-2.0
#include "worker/training/training_checkpoints.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "proto/version.h"
#include "rendezvous/base/signal_name.h"
#include "worker/base/first_line.h"
#include "worker/base/stopped.h"
#include "worker/base/unique_tensors.h"
#include "worker/checkpoint/resume.h"
#include "worker/config/agreement.h"
#include "worker/export/model_description.h"
#include "worker/export/model_file.h"
#include "worker/files/state_dict.h"
#include "worker/training/random_state.h"

namespace ddprun {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr char kRandom[] = "random/";
constexpr char kAverage[] = "ema/";
// A batch of an evaluation that takes so many times as long as the one before is taken for one that
// hangs.
constexpr int kPatienceBatches = 3;

constexpr char kGoesOn[] = "; training goes on, and the next one is tried";

using TensorsByName = std::unordered_map<std::string, at::Tensor>;

TensorsByName ByName(const NamedTensors& tensors) { return {tensors.begin(), tensors.end()}; }

Json ConfigOf(const Config& config) {
  Json json = Json::object();
  for (const Setting& setting : Settings()) json[setting.key] = ToText(config, setting);
  return json;
}

Json DataOf(const Dataset& data) {
  Json json = ToJson(InputOf(data));
  json["images"] = data.train->size();
  return json;
}

// In place. Forward changes buffers while the others are copied. A device makes copies sooner than
// the host fetches them, and the writer's thread does not know when this one's stream has come so
// far; a device that has no memory left is waited for.
void CopyWhatChanges(NamedTensors& tensors, const TensorSet& buffers) {
  for (auto& [name, tensor] : tensors) {
    if (!tensor.is_cuda() && !buffers.contains(tensor.unsafeGetTensorImpl())) continue;
    try {
      tensor = tensor.detach().clone();
    } catch (const c10::OutOfMemoryError&) {
      if (!tensor.is_cuda()) throw;
      tensor = tensor.detach().cpu();
    }
  }
}

}  // namespace

bool SavesCheckpoints(const Config& config) {
  return config.checkpoint_every > 0 || config.checkpoint_seconds > 0 ||
         !config.checkpoint_dir.empty();
}

bool Restarted(const WorkerEnv& env) { return env.restart_count > 0 || env.round > 1; }

std::string CheckpointFolder(const Config& config) {
  return config.checkpoint_dir.empty()
             ? (std::filesystem::path(config.output_dir) / "checkpoints").string()
             : config.checkpoint_dir;
}

std::optional<GradScaler::State> SavedScale(const Json& about) {
  if (about.at("config").value("amp", "") != "fp16") return std::nullopt;
  const Json& scaler = about.at("scaler");
  return GradScaler::State{
      .scale = scaler.at("scale").get<double>(),
      .steps_since_growth = scaler.at("steps_since_growth").get<std::int64_t>()};
}

TrainingCheckpoints::TrainingCheckpoints(const Config& config, const Dataset& data, World& world,
                                         Console& console, TrainingParts& parts)
    : config_(config),
      data_(data),
      world_(world),
      console_(console),
      parts_(parts),
      saving_(SavesCheckpoints(config)),
      folder_(CheckpointFolder(config)),
      vote_(world),
      evaluation_vote_(world) {}

TrainingCheckpoints::~TrainingCheckpoints() = default;

TrainingCheckpoints::Place TrainingCheckpoints::Resume() {
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
      if (point.checkpoint) {
        finding["about"] = point.checkpoint->snapshot.about;
        finding["path"] = point.checkpoint->path;
        CheckFits(point.checkpoint->snapshot);
      }
    } catch (const UsageError& error) {
      finding["usage"] = error.what();
    } catch (const std::exception& error) {
      finding["error"] = error.what();
    }
  }
  finding = Json::parse(world_.BroadcastText(finding.dump()));
  if (finding.contains("usage")) throw UsageError(finding["usage"].get<std::string>());
  if (finding.contains("error")) throw std::runtime_error(finding["error"].get<std::string>());
  if (world_.rank() == 0 && saving_) {
    writer_ = std::make_unique<CheckpointWriter>(
        CheckpointWriter::Options{.folder = folder_,
                                  .training = point.training,
                                  .loaded_from = point.checkpoint ? point.checkpoint->path : "",
                                  .keep = config_.checkpoint_keep});
    training_ = point.training;
  }
  save_time_ = step_time_ = Clock::now();
  if (!finding.contains("about")) return {};
  const std::optional<Snapshot> same = ReadToo(finding);
  const Place place = Load(point.checkpoint ? &point.checkpoint->snapshot
                           : same           ? &*same
                                            : nullptr,
                           finding["about"]);
  if (world_.rank() == 0) {
    if (std::filesystem::path(point.checkpoint->path).parent_path() == folder_)
      good_step_ = place.position.step;
    console_.Line("goes on from " + finding["path"].get<std::string>() + ": epoch " +
                  std::to_string(place.position.epoch + 1) + " after " +
                  std::to_string(place.position.consumed) + " of " +
                  std::to_string(data_.train->size()) + " images, step " +
                  std::to_string(place.position.step));
  }
  return place;
}

// On rank 0, before the others hear of it: what does not fit is everybody's error.
void TrainingCheckpoints::CheckFits(const Snapshot& snapshot) const {
  const std::string misfit =
      Misfit(snapshot.about, {{"config", ConfigOf(config_)}, {"data", DataOf(data_)}});
  const std::string next = "; pass the same settings, another --checkpoint-dir or --resume never";
  if (!misfit.empty()) throw UsageError("the checkpoint to go on from " + misfit + next);
  const TensorsByName read = ByName(snapshot.tensors);
  for (const auto& [name, tensor] : OwnTensors()) {
    const auto found = read.find(name);
    // An average that is asked for only now begins with the weights.
    if (found == read.end() && name.starts_with(kAverage)) continue;
    if (found == read.end() || found->second.sizes() != tensor.sizes())
      throw UsageError("the checkpoint to go on from has no " + name + " as this training's" +
                       next);
  }
}

std::optional<Snapshot> TrainingCheckpoints::ReadToo(const Json& finding) const {
  if (world_.rank() == 0) return std::nullopt;
  try {
    Snapshot snapshot = ReadCheckpoint(finding.at("path").get<std::string>());
    // Under the same path another machine may have another file. This says of which training, and
    // after which step.
    if (snapshot.about == finding.at("about")) return snapshot;
  } catch (const CheckpointError&) {
  }
  return std::nullopt;
}

// Rank 0 sends the tensors one after the other where not all ranks have read them: ranks that share
// a model need different ones.
void TrainingCheckpoints::CopyIn(const Snapshot* snapshot, bool all_have_read) {
  Json list = Json::array();
  TensorsByName read;
  if (snapshot != nullptr) {
    read = ByName(snapshot->tensors);
    for (const auto& [name, tensor] : snapshot->tensors) {
      if (!name.starts_with(kRandom))
        list.push_back({name, tensor.sizes().vec(), static_cast<int>(tensor.scalar_type())});
    }
  }
  if (!all_have_read) list = Json::parse(world_.BroadcastText(list.dump()));
  const TensorsByName own = ByName(OwnTensors());
  const torch::NoGradGuard no_grad;
  std::unordered_set<std::string> done;
  for (const Json& entry : list) {
    const std::string name = entry.at(0).get<std::string>();
    at::Tensor values = read[name];
    if (!all_have_read) {
      const auto type = static_cast<at::ScalarType>(entry.at(2).get<int>());
      values = values.defined() ? values.to(world_.device())
                                : at::empty(entry.at(1).get<std::vector<std::int64_t>>(),
                                            at::TensorOptions(type).device(world_.device()));
      world_.Broadcast(values, 0);
    }
    const auto mine = own.find(name);
    if (mine != own.end()) mine->second.detach().copy_(values);
    done.insert(name);
  }
  // An average that is asked for only now begins with the weights.
  for (const auto& [name, tensor] : own) {
    if (name.starts_with(kAverage) && !done.contains(name))
      at::Tensor(tensor).copy_(own.at("model/" + name.substr(sizeof kAverage - 1)).detach());
  }
}

TrainingCheckpoints::Place TrainingCheckpoints::Load(const Snapshot* snapshot, const Json& about) {
  const bool all_have_read = world_.OnAllRanks(snapshot != nullptr);
  CopyIn(all_have_read || world_.rank() == 0 ? snapshot : nullptr, all_have_read);
  if (const auto scale = SavedScale(about)) parts_.scaler.Restore(*scale);
  const Place place{.position = {.step = about.at("step").get<std::int64_t>(),
                                 .epoch = about.at("epoch").get<std::int64_t>(),
                                 .consumed = about.at("consumed").get<std::int64_t>()},
                    .reached_target = about.at("reached_target").get<bool>(),
                    .evaluation_due = about.value("evaluation_due", false)};
  if (about.at("world_size").get<int>() != world_.size()) {
    ReseedRandom(world_, config_.seed, place.position.step);
    return place;
  }
  at::Tensor states = GatherRandomStates(world_);  // of the right shape
  if (snapshot != nullptr) {
    for (const auto& [name, tensor] : snapshot->tensors) {
      if (name.starts_with(kRandom))
        states[std::stoll(name.substr(sizeof kRandom - 1))].copy_(tensor);
    }
  }
  if (world_.size() > 1) {
    at::Tensor shared = states.to(world_.device());
    world_.Broadcast(shared, 0);
    states = shared.cpu();
  }
  RestoreRandomState(world_, states);
  return place;
}

NamedTensors TrainingCheckpoints::OwnTensors() const {
  const TensorSet held = SetOf(parts_.strategy->State());
  NamedTensors tensors;
  for (const auto& [name, tensor] : StateDict(*parts_.model)) {
    if (held.contains(tensor.unsafeGetTensorImpl())) tensors.emplace_back("model/" + name, tensor);
  }
  for (const auto& [name, tensor] : parts_.optimizer->State())
    tensors.emplace_back("optimizer/" + name, tensor);
  if (!parts_.average) return tensors;
  for (const auto& [name, tensor] : parts_.average->State())
    tensors.emplace_back(kAverage + name, tensor);
  return tensors;
}

Json TrainingCheckpoints::About(const Place& place) const {
  const GradScaler::State scaler = parts_.scaler.state();
  return {{"version", kSoftwareVersion},
          {kTrainingKey, training_},
          {"step", place.position.step},
          {"epoch", place.position.epoch},
          {"consumed", place.position.consumed},
          {"reached_target", place.reached_target},
          {"evaluation_due", place.evaluation_due},
          {"world_size", world_.size()},
          {"batch_size", config_.batch_size},
          {"scaler", {{"scale", scaler.scale}, {"steps_since_growth", scaler.steps_since_growth}}},
          {"config", ConfigOf(config_)},
          {"data", DataOf(data_)}};
}

// Whether the step after `position` ends with a save.
bool TrainingCheckpoints::Due(const TrainingPosition& position) const {
  if (put_off_) return true;
  if (config_.checkpoint_every > 0 && (position.step + 1) % config_.checkpoint_every == 0)
    return true;
  const std::chrono::duration<double> passed = Clock::now() - save_time_;
  return config_.checkpoint_seconds > 0 && passed.count() >= config_.checkpoint_seconds;
}

void TrainingCheckpoints::BeginStep(const TrainingPosition& position) {
  if (!saving_) return;
  vote_.Begin({.save = world_.rank() == 0 && Due(position), .stop = StopSignal::Received()});
}

void TrainingCheckpoints::BeforeUpdate() {
  // Save() has copied what is on a device there.
  if (world_.device().is_cuda()) return;
  if (writer_) writer_->WaitUntilCopied();
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

void TrainingCheckpoints::EndStep(const Place& place) {
  if (!saving_) return;
  StepVote::Wishes wishes = vote_.End();
  if (world_.size() == 1) wishes.stop = StopSignal::Received();
  if (wishes.stop != 0) stop_ = wishes.stop;
  StopIfAsked(place);
  // A save may hold up rank 0, and with it the others, until the next step ends. So may what an
  // epoch begins with.
  const bool slow = wishes.save || place.position.consumed == 0;
  if (slow) StopSignal::Progress(StopSignal::kPatienceMax);
  if (wishes.save) Save(place);
  TellReports(kGoesOn);
  const Clock::time_point now = Clock::now();
  patience_.Add(now - step_time_);
  step_time_ = now;
  if (!slow) StopSignal::Progress(patience_.Get());
}

void TrainingCheckpoints::StopIfAsked(const Place& place) {
  if (stop_ != 0) Stop(place, stop_);
}

void TrainingCheckpoints::EndSteps() {
  if (saving_) StopSignal::Acknowledge();
}

void TrainingCheckpoints::Save(const Place& place) {
  const at::Tensor random = GatherRandomStates(world_);
  NamedTensors all = parts_.strategy->Gather(OwnTensors());
  if (!writer_ || good_step_ == place.position.step) return;
  try {
    Snapshot snapshot{std::move(all), About(place)};
    CopyWhatChanges(snapshot.tensors, SetOf(parts_.model->buffers()));
    world_.Synchronize();
    for (std::int64_t rank = 0; rank < random.size(0); ++rank)
      snapshot.tensors.emplace_back(kRandom + std::to_string(rank), random[rank].clone());
    put_off_ = !writer_->Save(place.position.step, std::move(snapshot));
  } catch (const std::exception& error) {
    // Most likely memory: what the training itself needs is there already.
    put_off_ = false;
    save_time_ = Clock::now();
    console_.Line("checkpoint of step " + std::to_string(place.position.step) +
                  " is not saved: " + FirstLine(error));
    return;
  }
  if (!put_off_) save_time_ = Clock::now();
}

void TrainingCheckpoints::TellReports(const char* next) {
  if (!writer_) return;
  for (const CheckpointWriter::Report& report : writer_->TakeReports()) {
    if (report.error.empty()) {
      good_step_ = report.step;
    } else {
      console_.Line(report.error + next);
    }
  }
}

void TrainingCheckpoints::Finish(const Place& place) {
  if (!saving_) return;
  if (writer_) writer_->WaitUntilSaved(kSaveLimit);
  TellReports("");
  Save(place);
  if (writer_) writer_->WaitUntilSaved(kSaveLimit);
  TellReports("");
}

void TrainingCheckpoints::Stop(const Place& place, int signal) {
  StopSignal::Acknowledge();
  Finish(place);
  std::string sentence = "rank " + std::to_string(world_.rank()) + ": ended by " +
                         SignalName(signal) + " after step " + std::to_string(place.position.step);
  if (world_.rank() == 0) {
    sentence += good_step_ == place.position.step
                    ? "; " +
                          (std::filesystem::path(folder_) / CheckpointName(good_step_)).string() +
                          " holds it, pass --resume auto to go on"
                    : "; it is not saved";
  }
  // No rank leaves while another is still waiting for it.
  world_.Shutdown();
  throw Stopped(signal, sentence);
}

}  // namespace ddprun
