// SPDX-License-Identifier: Apache-2.0
#include "worker/train/training/results.h"

#include <ATen/Context.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "worker/library/files/atomic_file.h"
#include "worker/library/files/state_dict.h"
#include "worker/train/export/model_description.h"
#include "worker/train/export/model_file.h"
#include "worker/train/export/run_folder.h"

namespace ddprun {
namespace {

// A file is the only proof: access() knows nothing of full disks, quotas and servers' rights.
// Returns 0 or an errno.
int TryToWriteIn(const std::filesystem::path& folder) {
  const std::string probe = folder / (".ddprun-probe." + std::to_string(getpid()));
  const int fd = open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int error = write(fd, "\n", 1) == 1 ? 0 : errno;
  if (close(fd) != 0 && error == 0) error = errno;
  unlink(probe.c_str());
  return error;
}

}  // namespace

void PrepareFolder(const std::string& option, const std::string& path) {
  if (const std::error_code error = MakeFolder(path))
    throw UsageError(option + " " + path + " cannot be made: " + error.message() +
                     "; choose another folder");
  if (const int reason = TryToWriteIn(path); reason != 0) {
    throw UsageError(option + " " + path + " cannot be written to: " + std::strerror(reason) +
                     "; change its permissions, make room or choose another folder");
  }
}

void PrepareResults(const std::string& output_dir, const std::string& model_file) {
  for (const std::string& name :
       {model_file, model_file + kDescriptionSuffix, std::string(kSummaryFileName)}) {
    const std::filesystem::path path = std::filesystem::path(output_dir) / name;
    std::error_code error;
    // A link is replaced; a FIFO would take the result only if something reads it at the end, and
    // what was written there could not be read again for its checksum.
    const bool is_folder = std::filesystem::is_directory(path, error);
    if (!is_folder && !std::filesystem::is_other(std::filesystem::symlink_status(path, error)))
      continue;
    throw UsageError("--output-dir: " + path.string() + ", which the results are written to, is " +
                     (is_folder ? "a folder" : "not a regular file") +
                     "; remove it or choose another --output-dir");
  }
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void WriteResults(const Config& config, const Dataset& data, World& world, Console& console,
                  KeptTraining& kept) {
  TrainingParts& parts = *kept.parts;
  Summary& summary = kept.summary;
  summary.loss = kept.counter.loss();
  summary.rank_time = kept.clock.rank_time();
  if (parts.average) parts.average->Swap();
  parts.strategy->GatherModel();
  if (world.rank() == 0) {
    const std::filesystem::path folder = config.output_dir;
    summary.gradients = parts.strategy->traffic();
    summary.world_size = world.size();
    summary.backend = world.backend_name();
    summary.device = world.device().str();
    summary.deterministic = at::globalContext().deterministicAlgorithms();
    summary.model_file = folder / ModelFileName(config);
    for (const Setting& setting : Settings())
      summary.settings[setting.key] = ToText(config, setting);
    EarlierResults earlier(folder, ModelFileName(config), kept.saved.training);
    SaveStateDict(*parts.model, summary.model_file);
    WriteDescription(summary.model_file, config, InputOf(data), kept.saved.training);
    if (const std::string path = earlier.Kept(); !path.empty())
      console.Line("the former model is kept as " + path);
    summary.SetTotal(SecondsSince(kept.start));
    const std::string json = ToJson(summary);
    WriteFile(folder / kSummaryFileName, json);
    console.Line(ToTable(summary));
    if (const std::string table = ToClassTable(summary); !table.empty()) console.Line(table);
  }
  if (parts.average) parts.average->Swap();
}

}  // namespace ddprun
