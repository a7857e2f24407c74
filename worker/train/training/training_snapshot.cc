// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/training_snapshot.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "proto/version.h"
#include "worker/library/base/first_line.h"
#include "worker/library/base/unique_tensors.h"
#include "worker/library/checkpoint/header_fields.h"
#include "worker/library/checkpoint/resume.h"
#include "worker/library/files/tensor_list.h"
#include "worker/train/export/model_description.h"
#include "worker/train/export/model_file.h"
#include "worker/train/training/state_view.h"

namespace ddprun {
namespace {

using Json = nlohmann::json;

constexpr char kBucketsKey[] = "buckets";

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

// The same tensors, those copied that change before they are saved: on a GPU all, else what forward
// changes. A GPU's copies stay there if `on_device`.
NamedTensors Copied(const NamedTensors& tensors, const TensorSet& buffers, bool on_device) {
  NamedTensors copied;
  for (const auto& [name, tensor] : tensors) {
    const bool changes = tensor.is_cuda() || buffers.contains(tensor.unsafeGetTensorImpl());
    if (!changes)
      copied.emplace_back(name, tensor);
    else if (tensor.is_cuda() && !on_device)
      copied.emplace_back(name, tensor.detach().cpu());
    else
      copied.emplace_back(name, tensor.detach().clone());
  }
  return copied;
}

// A GPU copies sooner than the host fetches, and the writer's thread does not know when this one's
// stream has come so far. One that has no memory for all copies keeps none of them: training needs
// what is left.
NamedTensors CopyWhatChanges(const NamedTensors& tensors, const TensorSet& buffers) {
  try {
    return Copied(tensors, buffers, /*on_device=*/true);
  } catch (const c10::OutOfMemoryError&) {
    return Copied(tensors, buffers, /*on_device=*/false);
  }
}

}  // namespace

std::optional<GradScaler::State> SavedScale(const Json& about) {
  const HeaderFields header(about);
  const HeaderFields config = header.Object("config");
  if (!config.Has("amp") || config.Text("amp") != "fp16") return std::nullopt;
  const HeaderFields scaler = header.Object("scaler");
  const double scale = scaler.Number("scale");
  if (scale < 1) return std::nullopt;
  return GradScaler::State{.scale = scale,
                           .steps_since_growth = scaler.Count("steps_since_growth")};
}

BestEvaluation SavedBest(const Json& about) {
  const HeaderFields header(about);
  if (!header.Has(kBestKey)) return {};
  const HeaderFields best = header.Object(kBestKey);
  return {.step = best.Count("step"),
          .epoch = best.Has("epoch") ? best.Number("epoch") : 0,
          .accuracy = best.Number("accuracy"),
          .loss = best.Real("loss"),
          .since = best.Count("since")};
}

TrainingPlace SavedPlace(const Json& about) {
  const HeaderFields header(about);
  return {.position = PositionIn(header),
          .reached_target = header.Flag("reached_target"),
          .evaluation_due = header.Has("evaluation_due") && header.Flag("evaluation_due"),
          .best = SavedBest(about)};
}

std::optional<std::int64_t> SavedImages(const Json& about) {
  const HeaderFields header(about);
  if (!header.Has("data") || !header.Object("data").Has("images")) return std::nullopt;
  return header.Object("data").Count("images");
}

TrainingPlace SavedPlaceAmong(std::int64_t images, const Json& about) {
  TrainingPlace place = SavedPlace(about);
  if (SavedImages(about).value_or(images) != images) place.position.consumed = 0;
  return place;
}

BucketLayout SavedLayout(const Json& about) {
  const auto saved = about.find(kBucketsKey);
  if (saved == about.end() || !saved->is_array()) return {};
  BucketLayout layout;
  for (const Json& bucket : *saved) {
    if (!bucket.is_array()) return {};
    layout.emplace_back();
    for (const Json& parameter : bucket) {
      if (!parameter.is_number_unsigned()) return {};
      layout.back().push_back(parameter.get<std::size_t>());
    }
  }
  return layout;
}

void TrainingSnapshot::CheckFits(const FoundCheckpoint& checkpoint) const {
  const Snapshot& snapshot = checkpoint.snapshot;
  const std::string misfit =
      Misfit(snapshot.about, {{"config", ConfigOf(config_)}, {"data", DataOf(data_)}});
  const std::string next = "; pass the same settings, another --checkpoint-dir or --resume never";
  if (!misfit.empty()) throw UsageError("the checkpoint to go on from " + misfit + next);
  // All ranks read these from what rank 0 sends them; only here is the file known.
  ReadHeader(checkpoint, [&](const HeaderFields&) {
    SavedPlaceAmong(data_.train->size(), snapshot.about);
    SavedScale(snapshot.about);
  });
  const TensorsByName read = ByName(snapshot.tensors);
  for (const auto& [name, tensor] : StateView(parts_).Saved()) {
    const auto found = read.find(name);
    // An average that is asked for only now begins with the weights.
    if (found == read.end() && name.starts_with(kAveragePrefix)) continue;
    if (found == read.end() || found->second.sizes() != tensor.sizes())
      throw UsageError("the checkpoint to go on from has no " + name + " as this training's" +
                       next);
  }
}

void TrainingSnapshot::CopyIn(const Snapshot* snapshot, const Json& tensors) {
  TensorsByName read;
  if (snapshot != nullptr) read = ByName(snapshot->tensors);
  TensorsByName own = ByName(StateView(parts_).Saved());
  const torch::NoGradGuard no_grad;
  std::unordered_set<std::string> done;
  for (const Json& entry : tensors) {
    const auto name = entry.at(0).get<std::string>();
    at::Tensor values =
        snapshot != nullptr ? read.at(name).to(world_.device()) : EmptyOf(entry, world_.device());
    if (world_.size() > 1) world_.Broadcast(values, 0);
    const auto mine = own.find(name);
    if (mine != own.end()) mine->second.detach().copy_(values);
    done.insert(name);
  }
  // An average that is requested only now begins with the weights.
  for (const auto& [name, tensor] : own) {
    if (name.starts_with(kAveragePrefix) && !done.contains(name))
      at::Tensor(tensor).copy_(own.at("model/" + name.substr(kAveragePrefix.size())).detach());
  }
}

TrainingPlace TrainingSnapshot::Load(const Snapshot* snapshot, const Json& about,
                                     const Json& tensors) {
  CopyIn(snapshot, tensors);
  if (const auto scale = SavedScale(about)) parts_.scaler.Restore(*scale);
  parts_.strategy->UseLayout(SavedLayout(about));
  return SavedPlaceAmong(data_.train->size(), about);
}

Json TrainingSnapshot::About(const TrainingPlace& place, const std::string& training) const {
  const GradScaler::State scaler = parts_.scaler.state();
  Json about = {
      {"version", kSoftwareVersion},
      {kTrainingKey, training},
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
  if (place.best.step >= 0)
    about[kBestKey] = {{"step", place.best.step},
                       {"epoch", place.best.epoch},
                       {"accuracy", place.best.accuracy},
                       {"loss", place.best.loss},
                       {"since", place.best.since}};
  const BucketLayout layout = parts_.strategy->Layout();
  if (!layout.empty()) about[kBucketsKey] = layout;
  return about;
}

TrainingSnapshot::Gathered TrainingSnapshot::Gather() {
  Gathered gathered;
  try {
    gathered.tensors = parts_.strategy->Gather(StateView(parts_).Saved());
  } catch (const c10::OutOfMemoryError& error) {
    gathered.error = FirstLine(error);
  }
  return gathered;
}

Snapshot TrainingSnapshot::Complete(Gathered gathered, const TrainingPlace& place,
                                    const std::string& training) const {
  if (!gathered.error.empty()) throw std::runtime_error(gathered.error);
  Snapshot snapshot{CopyWhatChanges(gathered.tensors, SetOf(parts_.model->buffers())),
                    About(place, training)};
  world_.Synchronize();
  return snapshot;
}

}  // namespace ddprun
