// SPDX-License-Identifier: Apache-2.0
#include "worker/train/config/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <type_traits>

#include "absl/strings/str_join.h"
#include "worker/train/config/recipe.h"
#include "worker/train/config/setting_names.h"
#include "worker/train/config/setting_ranges.h"

namespace ddprun {
namespace {

constexpr char kRecipe[] = "Recipe";
constexpr char kModel[] = "Model and data";
constexpr char kTrainingGroup[] = "Training";
constexpr char kPipeline[] = "Model parallelism";
constexpr char kCheckpoints[] = "Checkpoints";
constexpr char kRunGroup[] = "Run";

template <typename Number>
bool ParseNumber(const std::string& text, Number& out) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && rest == end;
}

[[noreturn]] void Fail(const std::string& source, const char* expected, const std::string& text) {
  throw UsageError(source + ": must be " + expected + ", but is '" + text + "'");
}

void Set(std::string& value, const std::string& text, const std::string& source) {
  if (text.empty()) Fail(source, "a text", text);
  value = text;
}

void Set(bool& value, const std::string& text, const std::string& source) {
  if (text != "true" && text != "false") Fail(source, "true or false", text);
  value = text == "true";
}

void Set(double& value, const std::string& text, const std::string& source) {
  if (!ParseNumber(text, value) || !std::isfinite(value)) Fail(source, "a number", text);
}

void Set(std::int64_t& value, const std::string& text, const std::string& source) {
  if (!ParseNumber(text, value)) Fail(source, "a whole number", text);
}

void Set(std::uint64_t& value, const std::string& text, const std::string& source) {
  if (!ParseNumber(text, value)) Fail(source, "a whole number from 0", text);
}

template <typename Value>
void Set(std::optional<Value>& value, const std::string& text, const std::string& source) {
  Set(value.emplace(), text, source);
}
template <typename Choice>
requires std::is_enum_v<Choice>
void Set(Choice& value, const std::string& text, const std::string& source) {
  const ChoiceNames names = NamesOf(value);
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    throw UsageError(source + " '" + text + "' is not known; choose one of " +
                     absl::StrJoin(names, ", ") + DidYouMean(text, names, ""));
  value = static_cast<Choice>(found - names.begin());
}

std::vector<Setting> WithChoices(std::vector<Setting> settings) {
  for (Setting& setting : settings) {
    std::visit(
        [&setting]<typename Value>(Value Config::*) {
          if constexpr (std::is_enum_v<Value>) setting.choices = NamesOf(Value{});
        },
        setting.member);
  }
  return settings;
}

void Require(bool holds, const std::string& sentence) {
  if (!holds) throw UsageError(sentence);
}

// A name of a file has 255 bytes, of which endings such as .json and .tmp.PID take some.
constexpr std::size_t kModelNameBytesMax = 200;

void CheckModelName(const std::string& name) {
  const std::string begin = "--model-name '" + name + "' ";
  Require(name.find('/') == std::string::npos && !name.starts_with('.'),
          begin +
              "is no name of a file; give a name without / and without . at its begin, and the "
              "folder as --output-dir");
  Require(name.size() <= kModelNameBytesMax, begin + "has more than " +
                                                 std::to_string(kModelNameBytesMax) +
                                                 " bytes; choose a shorter one");
  Require(!name.ends_with(".pth"), begin + "ends in .pth, which is added; leave the ending out");
}

}  // namespace

const std::vector<Setting>& Settings() {
  using enum Agreement;
  static const std::vector<Setting> settings = WithChoices({
      {"recipe", &Config::recipe, kRecipe, kOwn,
       "settings that belong together, used as defaults; a --config file and the command line "
       "override them",
       RecipeNames()},
      {"model", &Config::model, kModel, kTraining, "the network to train"},
      {"model-file", &Config::model_file, kModel, kTraining,
       "train the model in this TorchScript file, written by torch.jit.script(model).save(); "
       "TorchScript runs the code in the file, so use only files that you trust"},
      {"shared-blocks", &Config::shared_blocks, kModel, kTraining,
       "netresdeep: use one block ten times, as the original does, instead of ten blocks; its one "
       "set of batch-norm statistics fits none of the ten places, so expect test accuracy tens of "
       "points below training accuracy"},
      {"stem",
       &Config::stem,
       kModel,
       kTraining,
       "ResNets: first layers for images of 32x32 (3x3), or for those of 224x224 (7x7 and a pool)",
       {"cifar", "imagenet"}},
      {"width", &Config::width, kModel, kTraining,
       "airbench: multiplier of the number of channels"},
      {"whiten-epochs", &Config::whiten_epochs, kModel, kTraining,
       "airbench: epochs in which the biases of the whitening layer are trained"},
      {"sync-batch-norm", &Config::sync_batch_norm, kModel, kTraining,
       "compute batch norm's statistics over the batches of all ranks"},
      {"init-from", &Config::init_from, kModel, kTraining,
       "initial weights: a .pth or .safetensors file, or a folder written by transformers"},
      {"dataset", &Config::dataset, kModel, kTraining,
       "the data set; with --model linear the default is random"},
      {"data-dir", &Config::data_dir, kModel, kOwn,
       "folder of the data set's files; each data set has a default"},
      {"val-share", &Config::val_share, kModel, kTraining,
       "imagefolder: share of each class's images to test on, chosen by --seed, where --data-dir "
       "has no val/ or test/; 0 needs one of them"},
      {"skip-damaged", &Config::skip_damaged, kModel, kRun,
       "go on without images that are damaged: another one takes its place in training, and an "
       "evaluation leaves it out"},
      {"augment", &Config::augment, kModel, kTraining,
       "shift and mirror training images at random"},
      {"crop-padding", &Config::crop_padding, kModel, kTraining,
       "augment: largest shift, in pixels, of images of one size"},
      {"padding-mode", &Config::padding_mode, kModel, kTraining,
       "augment: what fills the edges of a shifted image"},
      {"flip", &Config::flip, kModel, kTraining,
       "augment: mirror each image at random in each epoch, or at random in the first epoch and "
       "then in every other one"},
      {"samples", &Config::samples, kModel, kTraining,
       "synthetic and random: number of training samples; a quarter as many for testing"},
      {"input-size", &Config::input_size, kModel, kTraining,
       "side, in pixels, to which images are resized; with --dataset random the width of a row"},
      {"num-classes", &Config::num_classes, kModel, kTraining,
       "synthetic and random: number of classes; default 10 and 2"},
      {"loader-threads", &Config::loader_threads, kModel, kOwn,
       "threads of one rank that prepare batches"},
      {"batch-size", &Config::batch_size, kTrainingGroup, kTraining,
       "images per batch of one rank"},
      {"epochs", &Config::epochs, kTrainingGroup, kTraining,
       "passes over the training images; may be a fraction"},
      {"max-steps", &Config::max_steps, kTrainingGroup, kTraining,
       "stop after this many steps; 0 trains nothing and writes the initial parameters"},
      {"optimizer", &Config::optimizer, kTrainingGroup, kTraining, "optimizer"},
      {"lr", &Config::lr, kTrainingGroup, kTraining, "peak learning rate"},
      {"schedule", &Config::schedule, kTrainingGroup, kTraining,
       "learning-rate schedule after the warm-up"},
      {"warmup-epochs", &Config::warmup_epochs, kTrainingGroup, kTraining,
       "epochs of linear learning-rate warm-up"},
      {"warmup-steps", &Config::warmup_steps, kTrainingGroup, kTraining,
       "the same in steps; overrides warmup-epochs"},
      {"step-epochs", &Config::step_epochs, kTrainingGroup, kTraining,
       "schedule step: epochs between two drops of the learning rate"},
      {"step-gamma", &Config::step_gamma, kTrainingGroup, kTraining,
       "schedule step: factor of each drop"},
      {"momentum", &Config::momentum, kTrainingGroup, kTraining,
       "momentum of SGD, and of Muon for all parameters but filters"},
      {"weight-decay", &Config::weight_decay, kTrainingGroup, kTraining,
       "weight decay; Muon: of head and biases, the share removed by a step at the full rate"},
      {"nesterov", &Config::nesterov, kTrainingGroup, kTraining,
       "SGD: use Nesterov momentum; the default where SGD has momentum"},
      {"beta1", &Config::beta1, kTrainingGroup, kTraining,
       "Adam, AdamW: decay of the mean of the gradients"},
      {"beta2", &Config::beta2, kTrainingGroup, kTraining,
       "Adam, AdamW: decay of the mean of the squared gradients"},
      {"adam-eps", &Config::adam_eps, kTrainingGroup, kTraining,
       "Adam, AdamW: added to the denominator"},
      {"muon-momentum", &Config::muon_momentum, kTrainingGroup, kTraining,
       "Muon: momentum of the filters of convolutions"},
      {"head-lr", &Config::head_lr, kTrainingGroup, kTraining,
       "Muon: peak learning rate of linear layers' weights, for the sum over the images of a step"},
      {"bias-lr", &Config::bias_lr, kTrainingGroup, kTraining,
       "Muon: the same of biases and of batch norms' weights"},
      {"loss", &Config::loss, kTrainingGroup, kTraining, "loss function"},
      {"label-smoothing", &Config::label_smoothing, kTrainingGroup, kTraining,
       "share of each label that is spread over all classes"},
      {"accumulate", &Config::accumulate, kTrainingGroup, kTraining,
       "gradient accumulation: batches per optimizer step"},
      {"clip-norm", &Config::clip_norm, kTrainingGroup, kTraining,
       "clip gradients to this global norm; 0 disables"},
      {"ema-decay", &Config::ema_decay, kTrainingGroup, kTraining,
       "evaluate and write a moving average of the weights with this decay; 0 disables"},
      {"amp",
       &Config::amp,
       kTrainingGroup,
       kTraining,
       "mixed precision; auto is bf16 on a GPU and off on a CPU; fp16-pure is fp16 with a loss "
       "that is summed over the batch, without scaling and without skipped steps",
       {},
       "precision"},
      {"compress", &Config::compress, kTrainingGroup, kTraining,
       "format in which gradients are sent between ranks"},
      {"channels-last", &Config::channels_last, kTrainingGroup, kTraining,
       "use the channels-last (NHWC) memory format"},
      {"deterministic", &Config::deterministic, kTrainingGroup, kRun,
       "use only operations that give the same bits each time; others are errors"},
      {"cuda-graph", &Config::cuda_graph, kTrainingGroup, kRun,
       "on a GPU record the whole step as a CUDA graph and replay it"},
      {"device-data", &Config::device_data, kTrainingGroup, kOwn,
       "on a GPU keep training images of one size in its memory, if they take at most half of it, "
       "and augment them there"},
      {"fused-kernels", &Config::fused_kernels, kTrainingGroup, kRun,
       "on a GPU use this program's own kernels for batches, norms and optimizers, which give the "
       "same numbers but for rounding"},
      {"pad-channels", &Config::pad_channels, kTrainingGroup, kRun,
       "on a GPU add channels of zeros to images in its memory up to this number (8), for which "
       "the "
       "first convolution may have faster kernels; 0 adds none"},
      {"target-accuracy", &Config::target_accuracy, kTrainingGroup, kTraining,
       "stop as soon as an evaluation reaches this test accuracy, in per cent; 0 disables"},
      {"eval-every", &Config::eval_every, kTrainingGroup, kRun,
       "epochs between two evaluations; 0 evaluates at the end only; may be a fraction"},
      {"patience", &Config::patience, kTrainingGroup, kTraining,
       "stop after this many evaluations (--eval-every) in a row that are no better than the best "
       "one before; 0 disables"},
      {"seed", &Config::seed, kTrainingGroup, kTraining,
       "seed of initial parameters, order of the images and augmentation"},
      {"pipeline", &Config::pipeline, kPipeline, kTraining,
       "split the model into this many stages; further ranks are data-parallel"},
      {"micro-batches", &Config::micro_batches, kPipeline, kTraining,
       "micro-batches per batch in a pipeline; 0 is four per stage"},
      {"pipeline-schedule", &Config::pipeline_schedule, kPipeline, kTraining,
       "order of forward and backward of a stage"},
      {"checkpoint-dir", &Config::checkpoint_dir, kCheckpoints, kOwn,
       "folder of the checkpoints; default: checkpoints in --output-dir"},
      {"checkpoint-every", &Config::checkpoint_every, kCheckpoints, kRun,
       "steps between two checkpoints; 0 disables"},
      {"checkpoint-seconds", &Config::checkpoint_seconds, kCheckpoints, kRun,
       "seconds between two checkpoints; 0 disables"},
      {"checkpoint-keep", &Config::checkpoint_keep, kCheckpoints, kRun,
       "number of newest checkpoints to keep, at least 2"},
      {"keep-best", &Config::keep_best, kCheckpoints, kRun,
       "keep the checkpoint whose evaluation (--eval-every) has the best accuracy or loss as "
       "best.safetensors; --patience compares by the same"},
      {"resume", &Config::resume, kCheckpoints, kTraining,
       "go on from the newest good checkpoint (auto), only after the launcher has restarted the "
       "workers (restart), never, or from this file"},
      {"output-dir", &Config::output_dir, kRunGroup, kOwn,
       "folder for the model, NAME.pth, NAME.pth.json (its model and classes, and its images' "
       "channels, mean and std) and all other files; created if missing"},
      {"model-name", &Config::model_name, kRunGroup, kOwn,
       "NAME of the model's files in --output-dir; default: cifar_net, but model with --dataset "
       "idx and imagefolder"},
      {"eval", &Config::eval, kRunGroup, kRun,
       "measure the accuracy on the test images at the end"},
      {"eval-batch-size", &Config::eval_batch_size, kRunGroup, kRun,
       "images per batch of an evaluation"},
      {"tta", &Config::tta, kRunGroup, kRun,
       "test-time augmentation: evaluate each test image also mirrored, and also shifted by a "
       "pixel"},
      {"log-every", &Config::log_every, kRunGroup, kOwn, "steps between two lines of a rank"},
      {"log-samples", &Config::log_samples, kRunGroup, kOwn,
       "write samples-RANK.jsonl into --output-dir: the images of each step"},
      {"metrics", &Config::metrics, kRunGroup, kOwn, "write metrics.jsonl into --output-dir"},
      {"tensorboard", &Config::tensorboard, kRunGroup, kOwn,
       "write TensorBoard's event files into tensorboard in --output-dir"},
      {"profile", &Config::profile, kRunGroup, kRun,
       "write trace.json, which Perfetto opens, into --output-dir, and print where the time went"},
      {"profile-first-step", &Config::profile_first_step, kRunGroup, kRun,
       "first step of the trace"},
      {"profile-steps", &Config::profile_steps, kRunGroup, kRun, "number of steps in the trace"},
      {"device", &Config::device, kRunGroup, kOwn,
       "auto takes a GPU if LibTorch can use one, else the CPU; ranks may share a GPU"},
      {"backend", &Config::backend, kRunGroup, kOwn,
       "auto takes NCCL where each rank has a GPU of its own, else Gloo"},
      {"timeout", &Config::timeout, kRunGroup, kOwn, "seconds to wait for other ranks"},
      {"collective-timeout", &Config::collective_timeout, kRunGroup, kOwn,
       "the same within a training step; 0 is 60 with NCCL, and --timeout with Gloo"},
      {"check-replicas", &Config::check_replicas, kRunGroup, kRun,
       "steps between two comparisons of the ranks' parameters and optimizer state, which find and "
       "heal a rank whose memory is damaged; 0 never compares"},
      {"straggler-factor", &Config::straggler_factor, kRunGroup, kRun,
       "name a rank that needs this many times as long for a step as its peers; 0 names none"},
      {"world-size", &Config::world_size, kRunGroup, kOwn,
       "when started by hand: run this many ranks on this machine; else checked against "
       "WORLD_SIZE"},
      {"env-file", &Config::env_file, kRunGroup, kOwn,
       "file of RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT for those that are not set; none is "
       "read by default"},
  });
  return settings;
}

bool IsSwitch(const Setting& setting) {
  return std::holds_alternative<bool Config::*>(setting.member) ||
         std::holds_alternative<std::optional<bool> Config::*>(setting.member);
}

const Setting* FindSetting(const std::string& key) {
  std::string dashed = key;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const auto& setting : Settings()) {
    if (setting.key == dashed || (!dashed.empty() && setting.other_key == dashed)) return &setting;
  }
  return nullptr;
}

void SetFromText(Config& config, const Setting& setting, const std::string& text,
                 const std::string& source) {
  std::visit([&](auto member) { Set(config.*member, text, source); }, setting.member);
}

std::string ToText(const Config& config, const Setting& setting) {
  return std::visit(
      [&](auto member) -> std::string {
        const auto& value = config.*member;
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return value;
        } else if constexpr (std::is_same_v<Value, bool>) {
          return value ? "true" : "false";
        } else if constexpr (std::is_enum_v<Value>) {
          return NamesOf(value)[static_cast<std::size_t>(value)];
        } else if constexpr (std::is_same_v<Value, std::optional<std::int64_t>>) {
          return value ? std::to_string(*value) : "";
        } else if constexpr (std::is_same_v<Value, std::optional<bool>>) {
          return !value ? "" : *value ? "true" : "false";
        } else if constexpr (std::is_same_v<Value, double>) {
          return NumberText(value);
        } else {
          return std::to_string(value);
        }
      },
      setting.member);
}

bool UsesNesterov(const Config& config) {
  return config.nesterov.value_or(config.optimizer == "sgd" && config.momentum > 0);
}

std::string ModelFileName(const Config& config) {
  const bool of_own_data = config.dataset == "idx" || config.dataset == "imagefolder";
  const std::string standard = of_own_data ? "model" : "cifar_net";
  return (config.model_name.empty() ? standard : config.model_name) + ".pth";
}

void Validate(const Config& config) {
  CheckRanges(config);
  CheckModelName(config.model_name);
  Require(
      static_cast<double>(config.batch_size) * static_cast<double>(config.accumulate) <= kNumberMax,
      "--batch-size " + std::to_string(config.batch_size) + " times --accumulate " +
          std::to_string(config.accumulate) + " must be at most " + NumberText(kNumberMax) +
          " images a step; choose a smaller --accumulate");
  Require(config.model_file.empty() || config.model == "torchscript",
          "--model-file is a model itself; leave out --model " + config.model +
              " or pass --model torchscript");
  Require(!config.sync_batch_norm || config.model != "torchscript",
          "--sync-batch-norm does not reach into a --model-file; leave it out");
  Require(config.check_replicas == 0 || config.pipeline == 1,
          "--check-replicas compares ranks that hold the whole model, which those of --pipeline " +
              std::to_string(config.pipeline) + " do not; leave one of them out");
  Require(config.eval_every > 0 || (config.patience == 0 && config.keep_best == KeepBest::kOff),
          std::string(config.patience > 0 ? "--patience" : "--keep-best") +
              " compares evaluations during the training, and --eval-every 0 makes none; pass "
              "--eval-every 1");
  Require(config.val_share == 0 || config.dataset == "imagefolder",
          "--val-share splits folders of images, and --dataset " + config.dataset +
              " has test images of its own; leave it out or pass --dataset imagefolder");
  Require(!config.nesterov.value_or(false) || config.momentum > 0,
          "--nesterov needs a momentum above 0; set --momentum 0.9");
  Require(!config.nesterov.value_or(false) || config.optimizer == "sgd",
          "--nesterov is SGD's; take --optimizer sgd or leave it out (muon has it always)");
}

std::vector<std::pair<std::string, std::string>> SharedSettings(const Config& config) {
  std::vector<std::pair<std::string, std::string>> shared;
  for (const Setting& setting : Settings()) {
    if (setting.agreement != Agreement::kOwn)
      shared.emplace_back("--" + setting.key, ToText(config, setting));
  }
  return shared;
}

std::map<std::string, std::string> TrainingSettings(const Config& config) {
  std::map<std::string, std::string> settings;
  for (const Setting& setting : Settings()) {
    if (setting.agreement == Agreement::kTraining) settings[setting.key] = ToText(config, setting);
  }
  return settings;
}

}  // namespace ddprun
