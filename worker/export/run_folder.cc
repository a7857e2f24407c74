// SPDX-License-Identifier: Apache-2.0
#include "worker/export/run_folder.h"

#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "worker/export/model_description.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr char kModelEnding[] = ".pth";

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
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
