// SPDX-License-Identifier: Apache-2.0
// The folder of a training's checkpoints:
//   step-000001234.safetensors   the checkpoint after so many steps
//   best.safetensors             the one whose evaluation was the best (--keep-best)
//   training.json                which training they are of, and which run wrote there last:
//                                {"training": "16 hexadecimal digits", "run":
//                                "TORCHELASTIC_RUN_ID"}
// A training that starts anew in a folder takes a new name first, so that after a crash it does not
// go on from what another one left there. Only rank 0 touches the folder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/library/checkpoint/checkpoint_file.h"
#include "worker/library/checkpoint/header_fields.h"

namespace ddprun {

// In a run's folder (--output-dir), unless another is named.
inline constexpr char kCheckpointsFolder[] = "checkpoints";

// In Snapshot::about: the training's name.
inline constexpr char kTrainingKey[] = "training";

// In Snapshot::about: the best evaluation so far.
inline constexpr char kBestKey[] = "best";
inline constexpr char kBestCheckpoint[] = "best.safetensors";

// Says one sentence to a person.
using Notify = std::function<void(const std::string&)>;

// "step-000001234.safetensors".
std::string CheckpointName(std::int64_t step);

// The training's name in a checkpoint that was read; empty if it has none.
std::string TrainingOf(const Snapshot& snapshot);

struct CheckpointEntry {
  std::int64_t step = 0;
  std::string path;
};

// The newest first. Empty if the folder is not there or cannot be read.
std::vector<CheckpointEntry> ListCheckpoints(const std::string& folder);

struct FoundCheckpoint {
  std::string path;
  Snapshot snapshot;
};

// The next move where a file that was named, or found, cannot be gone on from.
inline constexpr char kNameAnother[] = "; name another checkpoint";

// What `read` returns for the fields of the checkpoint's header. Throws CheckpointError that names
// the file if one is missing.
template <typename Read>
auto ReadHeader(const FoundCheckpoint& found, const Read& read) {
  try {
    return read(HeaderFields(found.snapshot.about));
  } catch (const HeaderError& error) {
    throw CheckpointError(DamagedCheckpoint(found.path, error.what()).what() +
                          std::string(kNameAnother));
  }
}

// The newest good one; of this training only, if one is named. One that is damaged is told and
// passed over. Does not throw.
std::optional<FoundCheckpoint> FindNewest(const std::string& folder,
                                          const std::optional<std::string>& training,
                                          const Notify& notify);

// The best one of this training; none if it is not there or damaged, which is told. Does not throw.
std::optional<FoundCheckpoint> FindBest(const std::string& folder, const std::string& training,
                                        const Notify& notify);

// The file itself, or the newest good one of a folder: of the training that it is the folder of, or
// else of any. A run's folder stands for checkpoints in it. Throws CheckpointError.
FoundCheckpoint OpenCheckpoint(const std::string& path_or_folder, const Notify& notify);

// What training.json says.
struct FolderOwner {
  std::string training;
  std::string run;  // the launcher's name for it
  bool operator==(const FolderOwner&) const = default;
};

// Empty if training.json says nothing.
FolderOwner CurrentOwner(const std::string& folder);
std::string CurrentTraining(const std::string& folder);

// Writes training.json. Throws std::runtime_error that names the file and the system's reason.
void SetCurrentOwner(const std::string& folder, const FolderOwner& owner);

// 64 random bits.
std::string NewTrainingName();

// Keeps a folder small. Remembers which files it has found good, as to read them costs time.
class CheckpointRetention {
 public:
  CheckpointRetention(std::string folder, std::string training, std::int64_t keep)
      : folder_(std::move(folder)), training_(std::move(training)), keep_(keep) {}

  // That file is whole, and of this training: it has just been written or read.
  void IsGood(const std::string& path) { good_[path] = true; }

  // Keeps the newest so many good checkpoints of this training and deletes all others; nothing as
  // long as there are fewer. Does not throw: what cannot be deleted stays.
  void Apply();

  // Deletes what writers that are no more left half-written.
  void RemoveStaleTemporaries() const;

 private:
  bool Good(const std::string& path);

  const std::string folder_;
  const std::string training_;
  const std::int64_t keep_;
  std::map<std::string, bool> good_;
};

}  // namespace ddprun
