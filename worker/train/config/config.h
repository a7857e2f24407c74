// SPDX-License-Identifier: Apache-2.0
// The settings of a training: one struct, and one table from which both the YAML file and the
// command line are derived. A new setting is a member and a row of the table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ddprun/errors.h"
#include "worker/train/config/choices.h"

namespace ddprun {

struct Config {
  std::string recipe;  // whose settings are the defaults (recipe.h); empty: none's

  // Model and data
  std::string model = "netresdeep";
  std::string model_file;      // TorchScript, of the model "torchscript"
  bool shared_blocks = false;  // of netresdeep
  std::string stem = "cifar";  // of the ResNets
  double width = 1;            // of airbench
  double whiten_epochs = 3;    // of airbench
  bool sync_batch_norm = false;
  std::string init_from;  // file of weights
  std::string dataset = "cifar10";
  std::string data_dir;
  double val_share = 0;       // of a folder without test images; 0: none
  bool skip_damaged = false;  // images
  bool augment = false;
  std::int64_t crop_padding = 4;  // pixels
  Padding padding_mode = Padding::kZero;
  Flip flip = Flip::kRandom;
  std::int64_t samples = 4096;   // synthetic: in the training set; a quarter in the test set
  std::int64_t input_size = 32;  // pixels of a side; for linear the width of a row
  std::optional<std::int64_t> num_classes;  // made up; none: 10 of synthetic, 2 of random
  std::int64_t loader_threads = 1;          // of one rank

  // Training
  std::int64_t batch_size = 64;  // of one rank
  double epochs = 4;             // may be a fraction: 0.5 is half of the images
  std::optional<std::int64_t> max_steps;
  std::string optimizer = "sgd";
  double lr = 0.01;
  ScheduleKind schedule = ScheduleKind::kCosine;
  double warmup_epochs = 0.5;
  std::optional<std::int64_t> warmup_steps;  // instead of warmup_epochs
  double step_epochs = 30;
  double step_gamma = 0.1;
  double momentum = 0.9;
  double weight_decay = 0.0005;
  std::optional<bool> nesterov;  // none: where SGD has momentum (UsesNesterov)
  double beta1 = 0.9;
  double beta2 = 0.999;
  double adam_eps = 1e-8;
  double muon_momentum = 0.6;
  double head_lr = 0.001;
  double bias_lr = 0.001;
  std::string loss = "cross-entropy";
  double label_smoothing = 0;
  std::int64_t accumulate = 1;  // batches a step
  double clip_norm = 0;         // 0: not clipped
  double ema_decay = 0;         // 0: no average
  Amp amp = Amp::kOff;
  GradientFormat compress = GradientFormat::kFull;
  bool channels_last = true;
  bool deterministic = false;
  bool cuda_graph = true;
  bool device_data = true;
  bool fused_kernels = true;
  std::int64_t pad_channels = 0;  // of images in a GPU's memory; 0: not padded
  double target_accuracy = 0;     // per cent; 0: not asked for
  double eval_every = 0;          // epochs; 0: at the end only
  std::int64_t patience = 0;      // evaluations; 0: without end
  std::uint64_t seed = 0;

  // Model parallelism
  std::int64_t pipeline = 1;       // stages
  std::int64_t micro_batches = 0;  // of one batch; 0: four a stage
  PipelineSchedule pipeline_schedule = PipelineSchedule::kOneForwardOneBackward;

  // Checkpoints
  std::string checkpoint_dir;         // empty: checkpoints in output_dir
  std::int64_t checkpoint_every = 0;  // steps; 0: not by steps
  double checkpoint_seconds = 0;      // 0: not by time
  std::int64_t checkpoint_keep = 2;
  KeepBest keep_best = KeepBest::kOff;
  std::string resume = "restart";

  // Run
  std::string output_dir = ".";
  std::string model_name;  // of the file, without .pth; empty: by the data set (ModelFileName)
  bool eval = true;
  std::int64_t eval_batch_size = 250;
  TestTimeAugmentation tta = TestTimeAugmentation::kPlain;
  std::int64_t log_every = 50;
  bool log_samples = false;
  bool metrics = true;
  bool tensorboard = false;
  bool profile = false;
  std::int64_t profile_first_step = 10;
  std::int64_t profile_steps = 10;
  DeviceChoice device = DeviceChoice::kAuto;
  BackendChoice backend = BackendChoice::kAuto;
  double timeout = 600;             // seconds
  double collective_timeout = 0;    // seconds; 0: 60 with NCCL, else timeout
  std::int64_t check_replicas = 0;  // steps; 0: never
  double straggler_factor = 1.5;    // 0: no rank is named
  std::optional<std::int64_t> world_size;
  std::string env_file;
};

bool UsesNesterov(const Config& config);

// Name of the file that the trained model is written to, in --output-dir.
std::string ModelFileName(const Config& config);

// The request cannot be carried out: one sentence. The program ends with 2.
struct UsageError : OwnError {
  using OwnError::OwnError;
};

enum class Agreement {
  kTraining,  // the same on all ranks, and part of what a training is: after a restart, checkpoints
              // with another value are another training's
  kRun,       // the same on all ranks: they would wait for each other in vain, or do different work
  kOwn,       // each rank may have its own: a folder, as hosts have different disks
};

struct Setting {
  using Member =
      std::variant<std::string Config::*, bool Config::*, double Config::*, std::int64_t Config::*,
                   std::uint64_t Config::*, std::optional<std::int64_t> Config::*,
                   std::optional<bool> Config::*, Padding Config::*, Flip Config::*,
                   ScheduleKind Config::*, Amp Config::*, GradientFormat Config::*,
                   PipelineSchedule Config::*, TestTimeAugmentation Config::*, KeepBest Config::*,
                   DeviceChoice Config::*, BackendChoice Config::*>;
  std::string key;  // as in YAML; on the command line with two dashes before it
  Member member;
  std::string group;
  Agreement agreement = Agreement::kRun;
  std::string help;
  ChoiceNames choices = {};    // of a text; empty: any. Those of an enum are added by Settings().
  std::string other_key = {};  // a second name, which files and the command line may use as well
};

const std::vector<Setting>& Settings();

// On the command line --KEY and --no-KEY.
bool IsSwitch(const Setting& setting);

// Null if there is none of that name or second name. `_` and `-` are the same in it.
const Setting* FindSetting(const std::string& key);

// Throws UsageError "SOURCE: must be a number, but is 'abc'" or "SOURCE 'abc' is not known; choose
// one of ...": `source` says where `text` stands.
void SetFromText(Config& config, const Setting& setting, const std::string& text,
                 const std::string& source);

// As it would be written on the command line; empty where it is not set.
std::string ToText(const Config& config, const Setting& setting);

// Throws UsageError if a value is out of its range or two do not fit together. Names of models and
// data sets are checked by their registries.
void Validate(const Config& config);

// What all ranks must share, by name and value: ("--lr", "0.01").
std::vector<std::pair<std::string, std::string>> SharedSettings(const Config& config);

// Settings of kTraining by their keys, as text.
std::map<std::string, std::string> TrainingSettings(const Config& config);

}  // namespace ddprun
