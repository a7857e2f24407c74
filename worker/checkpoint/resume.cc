// SPDX-License-Identifier: Apache-2.0
#include "worker/checkpoint/resume.h"

#include <utility>

namespace ddprun {
namespace {

using Json = nlohmann::json;

std::optional<FoundCheckpoint> OfTraining(const std::string& folder, const std::string& training,
                                          const Tell& tell) {
  if (training.empty()) return std::nullopt;
  return FindNewest(folder, training, tell);
}

ResumePoint Anew(const ResumeOptions& options, const Tell& tell) {
  const auto earlier = ListCheckpoints(options.folder);
  if (options.saving && !earlier.empty()) {
    tell(options.folder + " holds checkpoints of an earlier training, the newest of step " +
         std::to_string(earlier.front().step) +
         "; they will give way to those of this one; to go on from them pass --resume auto");
  }
  ResumePoint point{.training = NewTrainingName()};
  if (options.saving) SetCurrentTraining(options.folder, point.training);
  return point;
}

// Of a checkpoint of another training than the folder's the folder becomes that one's.
ResumePoint From(const ResumeOptions& options, FoundCheckpoint found) {
  ResumePoint point{.training = found.snapshot.about.value(kTrainingKey, "")};
  if (options.saving && point.training != CurrentTraining(options.folder))
    SetCurrentTraining(options.folder, point.training);
  point.checkpoint = std::move(found);
  return point;
}

ResumePoint FromPath(const ResumeOptions& options, const Tell& tell) {
  FoundCheckpoint found = OpenCheckpoint(options.resume, tell);
  // A name of its own, as what the other training saved later is not of this one.
  ResumePoint point{.training = NewTrainingName()};
  if (options.saving) SetCurrentTraining(options.folder, point.training);
  point.checkpoint = std::move(found);
  return point;
}

// What must be alike. `part` is the key in Snapshot::about.
struct Condition {
  const char* part;
  const char* key;
  const char* before;  // of the value in the sentence
  const char* after;
};
constexpr Condition kConditions[] = {
    {"config", "model", "--model ", ""},
    {"config", "shared-blocks", "--shared-blocks ", ""},
    {"config", "stem", "--stem ", ""},
    {"config", "dataset", "--dataset ", ""},
    {"data", "classes", "", " classes"},
    {"data", "channels", "", " channels an image"},
    {"data", "height", "images ", " pixels high"},
    {"data", "width", "images ", " pixels wide"},
    {"data", "images", "", " training images"},
    {"config", "seed", "--seed ", ""},
    {"config", "optimizer", "--optimizer ", ""},
};

// Empty if it is not there.
std::string ValueOf(const Json& about, const Condition& condition) {
  if (!about.is_object() || !about.contains(condition.part)) return "";
  const Json& part = about.at(condition.part);
  if (!part.is_object() || !part.contains(condition.key)) return "";
  const Json& value = part.at(condition.key);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

ResumePoint DecideResume(const ResumeOptions& options, const Tell& tell) {
  const bool by_path =
      options.resume != "auto" && options.resume != "restart" && options.resume != "never";
  if (options.resume != "never" && (options.restarted || options.resume == "auto")) {
    if (auto found = OfTraining(options.folder, CurrentTraining(options.folder), tell))
      return From(options, *std::move(found));
  }
  if (options.resume == "auto") {
    if (auto found = FindNewest(options.folder, std::nullopt, tell))
      return From(options, *std::move(found));
  }
  return by_path ? FromPath(options, tell) : Anew(options, tell);
}

std::string Misfit(const Json& checkpoint, const Json& training) {
  for (const Condition& condition : kConditions) {
    const std::string theirs = ValueOf(checkpoint, condition);
    const std::string ours = ValueOf(training, condition);
    if (theirs == ours) continue;
    const auto text = [&](const std::string& value) {
      return value.empty() ? std::string("none such") : condition.before + value + condition.after;
    };
    return "is of " + text(theirs) + ", but this training is of " + text(ours);
  }
  return "";
}

}  // namespace ddprun
