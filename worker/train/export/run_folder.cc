// SPDX-License-Identifier: Apache-2.0
#include "worker/train/export/run_folder.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>

#include "proto/input_file.h"
#include "worker/train/export/model_description.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr char kModelEnding[] = ".pth";
constexpr std::size_t kSummaryBytesMax = 1u << 20;

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// The model's file that summary.json names; empty if it names none that is there.
std::string WrittenModel(const std::string& folder) {
  const auto text = ReadRegularFile(fs::path(folder) / kSummaryFileName, kSummaryBytesMax);
  if (!text.ok()) return "";
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("model_file") || !json["model_file"].is_string())
    return "";
  // Only the name: the folder may have been moved.
  const fs::path name = fs::path(json["model_file"].get<std::string>()).filename();
  const std::string path = fs::path(folder) / name;
  std::error_code error;
  return !name.empty() && fs::is_regular_file(path, error) ? path : "";
}

bool IsNewer(const std::string& path, const std::string& other) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return false;
  return time > fs::last_write_time(other, error) && !error;
}

// A second name where the file system has such, so that the first one is never missing.
void GiveSecondName(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  if (error) fs::rename(from, to, error);
  if (error)
    throw std::runtime_error(from + " of an earlier training cannot be kept as " + to + ": " +
                             error.message() + "; choose another --output-dir");
}

}  // namespace

RunModel FindRunModel(const std::string& folder, const Notify& notify) {
  const std::string model = WrittenModel(folder);
  const std::string checkpoints = fs::path(folder) / kCheckpointsFolder;
  const std::string training = CurrentTraining(checkpoints);
  auto found = FindBest(checkpoints, training, notify);
  if (!found)
    found =
        FindNewest(checkpoints, training.empty() ? std::nullopt : std::optional(training), notify);
  if (!found && model.empty()) found = FindNewest(checkpoints, std::nullopt, notify);
  if (!found) return {.checkpoint = std::nullopt, .file = model};
  // One of another training that saves no checkpoints is told from an older one by its time alone.
  const bool of_another = !model.empty() && TrainingOfModel(model) != TrainingOf(found->snapshot);
  if (of_another && IsNewer(model, found->path)) return {.checkpoint = std::nullopt, .file = model};
  return {.checkpoint = std::move(found), .file = ""};
}

EarlierResults::EarlierResults(const std::string& folder, const std::string& model_file,
                               const std::string& training)
    : folder_(folder), model_file_(model_file) {
  const Names now = NamesOf(0);
  if (!IsThere(now.model) || TrainingOfModel(now.model) == training) return;
  const int number = FirstFree();
  const Names kept = NamesOf(number);
  GiveSecondName(now.model, kept.model);
  number_ = number;
  if (IsThere(now.description)) GiveSecondName(now.description, kept.description);
  if (IsThere(now.summary)) GiveSecondName(now.summary, kept.summary);
}

std::string EarlierResults::Kept() {
  if (number_ == 0) return "";
  const Names kept = NamesOf(number_);
  if (!SameBytes(kept.model, NamesOf(0).model)) return kept.model;
  std::error_code error;
  for (const std::string& path : {kept.model, kept.description, kept.summary})
    fs::remove(path, error);
  return "";
}

EarlierResults::Names EarlierResults::NamesOf(int number) const {
  const std::string more = number == 0 ? "" : "-" + std::to_string(number);
  const std::string name = model_file_.substr(0, model_file_.rfind(kModelEnding));
  const std::string model = fs::path(folder_) / (name + more + kModelEnding);
  const fs::path summary(kSummaryFileName);
  return {.model = model,
          .description = model + kDescriptionSuffix,
          .summary =
              fs::path(folder_) / (summary.stem().string() + more + summary.extension().string())};
}

int EarlierResults::FirstFree() const {
  for (int number = 1; number <= kNumberMax; ++number) {
    const Names names = NamesOf(number);
    if (!IsThere(names.model) && !IsThere(names.description) && !IsThere(names.summary))
      return number;
  }
  throw std::runtime_error(NamesOf(0).model + " of an earlier training cannot be kept: there are " +
                           std::to_string(kNumberMax) +
                           " earlier ones; choose another --output-dir");
}

}  // namespace ddprun
