// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/resume.h"

#include <algorithm>
#include <set>
#include <utility>

#include "proto/json_text.h"
#include "proto/worker_env.h"

namespace ddprun {
namespace {

using Json = nlohmann::json;

std::optional<FoundCheckpoint> OfTraining(const std::string& folder, const std::string& training,
                                          const Notify& notify) {
  if (training.empty()) return std::nullopt;
  return FindNewest(folder, training, notify);
}

bool HasSettings(const Snapshot& snapshot, const Json& settings) {
  const HeaderFields header(snapshot.about);
  if (!header.Has("config")) return settings.empty();
  const HeaderFields config = header.Object("config");
  for (const auto& [key, value] : settings.items()) {
    // Paths that are not UTF-8 are saved as they are shown.
    if (!config.Has(key) || JsonText(Json(config.Text(key))) != JsonText(value)) return false;
  }
  return true;
}

// What this very run has saved before the launcher restarted its workers. Two runs may have the
// same name (a job that is queued again, torchrun's "none"), so the settings count as well.
std::optional<FoundCheckpoint> OwnCheckpoint(const ResumeOptions& options, const Notify& notify) {
  if (!options.restarted || !options.saving) return std::nullopt;
  const FolderOwner owner = CurrentOwner(options.folder);
  if (owner.run != options.run) return std::nullopt;
  auto found = OfTraining(options.folder, owner.training, notify);
  if (!found || !HasSettings(found->snapshot, options.settings)) return std::nullopt;
  return found;
}

void TakeFolder(const ResumeOptions& options, const std::string& training) {
  const FolderOwner owner{.training = training, .run = options.run};
  if (options.saving && owner != CurrentOwner(options.folder))
    SetCurrentOwner(options.folder, owner);
}

ResumePoint Anew(const ResumeOptions& options, const Notify& notify) {
  const auto earlier = ListCheckpoints(options.folder);
  if (options.resume == "auto" && !earlier.empty()) {
    notify("no checkpoint in " + options.folder + " is good, the newest of step " +
           std::to_string(earlier.front().step) + "; training begins anew" +
           (options.saving ? ", and its checkpoints will replace them" : ""));
  } else if (options.saving && !earlier.empty()) {
    notify(options.folder + " holds checkpoints of an earlier training, the newest of step " +
           std::to_string(earlier.front().step) +
           "; they will give way to those of this one; to go on from them resume with `auto`");
  }
  ResumePoint point{.training = NewTrainingName()};
  TakeFolder(options, point.training);
  return point;
}

// If the checkpoint is from another training than the folder's, that training becomes the folder's.
ResumePoint From(const ResumeOptions& options, FoundCheckpoint found) {
  ResumePoint point{.training = TrainingOf(found.snapshot)};
  TakeFolder(options, point.training);
  point.checkpoint = std::move(found);
  return point;
}

ResumePoint FromPath(const ResumeOptions& options, const Notify& notify) {
  FoundCheckpoint found = OpenCheckpoint(options.resume, notify);
  // A name of its own, as what the other training saved later is not of this one.
  ResumePoint point{.training = NewTrainingName()};
  TakeFolder(options, point.training);
  point.checkpoint = std::move(found);
  return point;
}

// Settings that must be alike. `part` is the key in Snapshot::about.
struct Condition {
  const char* part;
  const char* key;
  const char* before;  // of the value in the sentence
  const char* after;
  const char* absent = "";  // the value where a checkpoint of an earlier version has none
};
constexpr Condition kConditions[] = {
    {"config", "model", "--model ", ""},
    {"config", "shared-blocks", "--shared-blocks ", ""},
    {"config", "stem", "--stem ", ""},
    {"config", "dataset", "--dataset ", ""},
    {"config", "val-share", "--val-share ", "", "0"},
    {"data", "classes", "", " classes"},
    {"data", "channels", "", " channels an image"},
    {"data", "height", "images ", " pixels high"},
    {"data", "width", "images ", " pixels wide"},
    {"config", "seed", "--seed ", ""},
    {"config", "optimizer", "--optimizer ", ""},
};

// Empty, or what the condition says, if it is not there.
std::string ValueOf(const Json& about, const Condition& condition) {
  if (!about.is_object() || !about.contains(condition.part)) return condition.absent;
  const Json& part = about.at(condition.part);
  if (!part.is_object() || !part.contains(condition.key)) return condition.absent;
  const Json& value = part.at(condition.key);
  return value.is_string() ? value.get<std::string>() : JsonText(value);
}

// Empty if the classes are the same, or not known, as of checkpoints of data sets without names.
std::string OtherClasses(const Json& checkpoint, const Json& training) {
  using Names = std::vector<std::string>;
  const auto names_in = [](const Json& about) {
    const nlohmann::json::json_pointer names("/data/class_names");
    return about.contains(names) ? about.at(names).get<Names>() : Names();
  };
  const Names theirs = names_in(checkpoint);
  const Names ours = names_in(training);
  const std::optional<std::size_t> label = FirstOtherClass(theirs, ours);
  if (!label) return "";
  return "is of other classes: number " + std::to_string(*label) + " is '" + theirs[*label] +
         "' there and '" + ours[*label] + "' in this training's data";
}

}  // namespace

bool Restarted(const WorkerEnv& env) { return env.restart_count > 0 || env.round > 1; }

ResumePoint DecideResume(const ResumeOptions& options, const Notify& notify) {
  // A damaged file is met again where the folder is searched twice.
  std::set<std::string> seen;
  const Notify notify_once = [&](const std::string& text) {
    if (seen.insert(text).second) notify(text);
  };
  if (options.resume == "never") return Anew(options, notify_once);
  if (options.resume == "auto") {
    auto found = OfTraining(options.folder, CurrentTraining(options.folder), notify_once);
    if (!found) found = FindNewest(options.folder, std::nullopt, notify_once);
    return found ? From(options, *std::move(found)) : Anew(options, notify_once);
  }
  if (auto found = OwnCheckpoint(options, notify_once)) return From(options, *std::move(found));
  return options.resume == "restart" ? Anew(options, notify_once) : FromPath(options, notify_once);
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
  return OtherClasses(checkpoint, training);
}

std::optional<std::size_t> FirstOtherClass(const std::vector<std::string>& theirs,
                                           const std::vector<std::string>& ours) {
  const std::size_t known = std::min(theirs.size(), ours.size());
  for (std::size_t i = 0; i < known; ++i) {
    if (theirs[i] != ours[i]) return i;
  }
  return std::nullopt;
}

}  // namespace ddprun
