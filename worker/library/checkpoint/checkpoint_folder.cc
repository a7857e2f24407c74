// SPDX-License-Identifier: Apache-2.0
#include "worker/library/checkpoint/checkpoint_folder.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string_view>
#include <utility>

#include "proto/input_file.h"
#include "proto/json_text.h"
#include "worker/library/base/text.h"
#include "worker/library/files/atomic_file.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr char kTrainingFile[] = "training.json";
constexpr char kRunKey[] = "run";
constexpr std::size_t kTrainingFileBytesMax = 4096;

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0)
    return std::nullopt;
  return number;
}

std::optional<std::int64_t> StepOf(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  const std::string_view digits = std::string_view(name).substr(
      kPrefix.size(),
      std::max(name.size(), kPrefix.size() + kSuffix.size()) - kPrefix.size() - kSuffix.size());
  return ParseNumber<std::int64_t>(digits);
}

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    names.push_back(entry->path().filename());
  return names;
}

// The PID in "NAME.safetensors.tmp.PID", AtomicFile's name for a file that is being written.
std::optional<pid_t> WriterOf(const std::string& name) {
  constexpr std::string_view kTemporary = ".tmp.";
  const std::size_t at = name.rfind(kTemporary);
  const bool ours = name.starts_with(kPrefix) || name.starts_with(kBestCheckpoint);
  if (at == std::string::npos || !ours) return std::nullopt;
  return ParseNumber<pid_t>(std::string_view(name).substr(at + kTemporary.size()));
}

FoundCheckpoint OpenFile(const std::string& path) {
  try {
    return {path, ReadCheckpoint(path)};
  } catch (const DamagedCheckpoint& error) {
    throw CheckpointError(std::string(error.what()) + kNameAnother);
  }
}

}  // namespace

std::string CheckpointName(std::int64_t step) {
  char name[64];
  std::snprintf(name, sizeof name, "step-%09lld.safetensors", static_cast<long long>(step));
  return name;
}

std::string TrainingOf(const Snapshot& snapshot) {
  const HeaderFields header(snapshot.about);
  return header.Has(kTrainingKey) ? header.Text(kTrainingKey) : "";
}

std::vector<CheckpointEntry> ListCheckpoints(const std::string& folder) {
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : NamesIn(folder)) {
    if (const auto step = StepOf(name)) entries.push_back({*step, fs::path(folder) / name});
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.step, a.path) > std::pair(b.step, b.path);
  });
  return entries;
}

std::optional<FoundCheckpoint> FindNewest(const std::string& folder,
                                          const std::optional<std::string>& training,
                                          const Notify& notify) {
  for (const CheckpointEntry& entry : ListCheckpoints(folder)) {
    try {
      Snapshot snapshot = ReadCheckpoint(entry.path);
      if (!training || TrainingOf(snapshot) == *training)
        return FoundCheckpoint{entry.path, std::move(snapshot)};
    } catch (const CheckpointError& error) {
      notify(std::string(error.what()) + "; it is passed over");
    }
  }
  return std::nullopt;
}

std::optional<FoundCheckpoint> FindBest(const std::string& folder, const std::string& training,
                                        const Notify& notify) {
  const std::string path = fs::path(folder) / kBestCheckpoint;
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    Snapshot snapshot = ReadCheckpoint(path);
    if (TrainingOf(snapshot) == training) return FoundCheckpoint{path, std::move(snapshot)};
  } catch (const CheckpointError& damaged) {
    notify(std::string(damaged.what()) + "; it is passed over");
  }
  return std::nullopt;
}

FoundCheckpoint OpenCheckpoint(const std::string& path_or_folder, const Notify& notify) {
  std::error_code error;
  if (!fs::is_directory(path_or_folder, error)) return OpenFile(path_or_folder);
  const std::string inside = fs::path(path_or_folder) / kCheckpointsFolder;
  if (ListCheckpoints(path_or_folder).empty() && !ListCheckpoints(inside).empty())
    return OpenCheckpoint(inside, notify);
  const std::string training = CurrentTraining(path_or_folder);
  if (!training.empty()) {
    if (auto found = FindNewest(path_or_folder, training, notify)) return *std::move(found);
  }
  if (auto found = FindNewest(path_or_folder, std::nullopt, notify)) return *std::move(found);
  throw CheckpointError("there is no good checkpoint in " + path_or_folder +
                        "; name another folder or a file");
}

FolderOwner CurrentOwner(const std::string& folder) {
  const absl::StatusOr<std::string> file =
      ReadRegularFile(fs::path(folder) / kTrainingFile, kTrainingFileBytesMax);
  if (!file.ok()) return {};
  const Json json = Json::parse(*file, nullptr, /*allow_exceptions=*/false);
  const auto text_of = [&json](const char* key) {
    const bool there = json.is_object() && json.contains(key) && json.at(key).is_string();
    return there ? json.at(key).get<std::string>() : "";
  };
  return {.training = text_of(kTrainingKey), .run = text_of(kRunKey)};
}

std::string CurrentTraining(const std::string& folder) { return CurrentOwner(folder).training; }

void SetCurrentOwner(const std::string& folder, const FolderOwner& owner) {
  const std::string text =
      JsonText(Json{{kTrainingKey, owner.training}, {kRunKey, owner.run}}) + "\n";
  WriteFile(fs::path(folder) / kTrainingFile, text);
}

std::string NewTrainingName() {
  std::random_device random;
  return Hex(random()) + Hex(random());
}

void CheckpointRetention::Apply() {
  std::int64_t kept = 0;
  std::vector<std::string> others;
  for (const CheckpointEntry& entry : ListCheckpoints(folder_)) {
    if (kept < keep_ && Good(entry.path)) {
      ++kept;
    } else {
      others.push_back(entry.path);
    }
  }
  if (kept < keep_) return;
  for (const std::string& path : others) {
    std::error_code error;
    fs::remove(path, error);
    good_.erase(path);
  }
}

bool CheckpointRetention::Good(const std::string& path) {
  const auto known = good_.find(path);
  if (known != good_.end()) return known->second;
  try {
    return good_[path] = TrainingOf(ReadCheckpoint(path)) == training_;
  } catch (const CheckpointError&) {
    return good_[path] = false;
  }
}

void CheckpointRetention::RemoveStaleTemporaries() const {
  for (const std::string& name : NamesIn(folder_)) {
    const auto writer = WriterOf(name);
    if (!writer) continue;
    const bool alive = *writer != getpid() && (kill(*writer, 0) == 0 || errno != ESRCH);
    std::error_code error;
    if (!alive) fs::remove(fs::path(folder_) / name, error);
  }
}

}  // namespace ddprun
