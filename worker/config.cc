// SPDX-License-Identifier: Apache-2.0
#include "worker/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <type_traits>

namespace ddprun {
namespace {

constexpr char kModel[] = "Model and data";
constexpr char kTraining[] = "Training";
constexpr char kRun[] = "Run";

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

void Set(std::optional<std::int64_t>& value, const std::string& text, const std::string& source) {
  std::int64_t number = 0;
  Set(number, text, source);
  value = number;
}

void Require(bool holds, const std::string& sentence) {
  if (!holds) throw UsageError(sentence);
}

std::string Number(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

}  // namespace

const std::vector<Setting>& Settings() {
  static const std::vector<Setting> settings = {
      {"model", &Config::model, kModel, "the network to train"},
      {"shared-blocks", &Config::shared_blocks, kModel,
       "netresdeep: its ten blocks are one block used ten times (as in the original)"},
      {"dataset", &Config::dataset, kModel, "the images"},
      {"data-dir", &Config::data_dir, kModel,
       "folder of the data set's files; each data set has a default"},
      {"augment", &Config::augment, kModel,
       "shift (by up to 4 pixels) and mirror training images at random"},
      {"batch-size", &Config::batch_size, kTraining, "images in a batch of one rank"},
      {"epochs", &Config::epochs, kTraining, "passes over the training images; may be a fraction"},
      {"max-steps", &Config::max_steps, kTraining,
       "end after so many steps; 0 trains nothing and writes the initial parameters"},
      {"lr", &Config::lr, kTraining, "peak learning rate"},
      {"warmup-epochs", &Config::warmup_epochs, kTraining,
       "epochs in which the learning rate rises, before it falls as a cosine"},
      {"warmup-steps", &Config::warmup_steps, kTraining,
       "the same in steps; wins over warmup-epochs"},
      {"momentum", &Config::momentum, kTraining, "of SGD"},
      {"weight-decay", &Config::weight_decay, kTraining, "of SGD"},
      {"nesterov", &Config::nesterov, kTraining, "use Nesterov's momentum"},
      {"seed", &Config::seed, kTraining,
       "of initial parameters, order of the images and augmentation"},
      {"output-dir", &Config::output_dir, kRun,
       "folder for cifar_net.pth; made if it is not there"},
      {"eval", &Config::eval, kRun, "measure the accuracy on the test images at the end"},
      {"eval-batch-size", &Config::eval_batch_size, kRun, "images in a batch of the evaluation"},
      {"log-every", &Config::log_every, kRun, "batches between two lines of a rank"},
      {"backend", &Config::backend, kRun, "auto takes NCCL where each rank has a GPU, else Gloo"},
      {"timeout", &Config::timeout, kRun, "seconds to wait for other ranks before giving up"},
  };
  return settings;
}

const Setting* FindSetting(const std::string& key) {
  std::string dashed = key;
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const auto& setting : Settings()) {
    if (setting.key == dashed) return &setting;
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
        } else if constexpr (std::is_same_v<Value, std::optional<std::int64_t>>) {
          return value ? std::to_string(*value) : "";
        } else if constexpr (std::is_same_v<Value, double>) {
          return Number(value);
        } else {
          return std::to_string(value);
        }
      },
      setting.member);
}

void Validate(const Config& config) {
  Require(config.batch_size > 0,
          "--batch-size must be at least 1, but is " + std::to_string(config.batch_size));
  Require(config.eval_batch_size > 0,
          "--eval-batch-size must be at least 1, but is " + std::to_string(config.eval_batch_size));
  Require(config.log_every > 0,
          "--log-every must be at least 1, but is " + std::to_string(config.log_every));
  Require(config.epochs > 0, "--epochs must be above 0, but is " + Number(config.epochs) +
                                 "; pass --max-steps 0 to train nothing");
  Require(config.max_steps.value_or(0) >= 0, "--max-steps must not be negative, but is " +
                                                 std::to_string(config.max_steps.value_or(0)));
  Require(config.warmup_steps.value_or(0) >= 0,
          "--warmup-steps must not be negative, but is " +
              std::to_string(config.warmup_steps.value_or(0)));
  Require(config.warmup_epochs >= 0,
          "--warmup-epochs must not be negative, but is " + Number(config.warmup_epochs));
  Require(config.lr > 0, "--lr must be above 0, but is " + Number(config.lr));
  Require(config.momentum >= 0 && config.momentum < 1,
          "--momentum must be from 0 up to but not including 1, but is " + Number(config.momentum));
  Require(config.weight_decay >= 0,
          "--weight-decay must not be negative, but is " + Number(config.weight_decay));
  Require(!config.nesterov || config.momentum > 0,
          "--nesterov needs a momentum above 0; set --momentum 0.9");
  Require(config.timeout > 0 && config.timeout < 1e8,
          "--timeout must be above 0 and below 1e8 seconds, but is " + Number(config.timeout));
}

}  // namespace ddprun
