// SPDX-License-Identifier: Apache-2.0
// What a person may choose about a training: one struct, and one table from which the YAML file and
// the command line both come. A new setting is a member and a line of the table.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace ddprun {

struct Config {
  std::string model = "netresdeep";
  bool shared_blocks = true;
  std::string dataset = "cifar10";
  std::string data_dir;
  bool augment = true;
  std::int64_t batch_size = 64;  // of one rank
  double epochs = 1;             // may be a fraction: 0.5 is half of the images
  std::optional<std::int64_t> max_steps;
  double lr = 0.01;
  double warmup_epochs = 0.1;
  std::optional<std::int64_t> warmup_steps;  // instead of warmup_epochs
  double momentum = 0.9;
  double weight_decay = 0.0005;
  bool nesterov = false;
  std::uint64_t seed = 0;
  std::string output_dir = ".";
  bool eval = true;
  std::int64_t eval_batch_size = 250;
  std::int64_t log_every = 50;
  std::string backend = "auto";
  double timeout = 600;  // seconds
};

// What the person asked for cannot be done as asked: one sentence. The program ends with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Setting {
  using Member =
      std::variant<std::string Config::*, bool Config::*, double Config::*, std::int64_t Config::*,
                   std::uint64_t Config::*, std::optional<std::int64_t> Config::*>;
  std::string key;  // as in YAML; on the command line with two dashes before it
  Member member;
  std::string group;
  std::string help;
};

const std::vector<Setting>& Settings();

// Null if there is none of that name. `_` and `-` are the same in it.
const Setting* FindSetting(const std::string& key);

// Throws UsageError "SOURCE: must be a number, but is 'abc'": `source` says where `text` stands.
void SetFromText(Config& config, const Setting& setting, const std::string& text,
                 const std::string& source);

// As it would be written on the command line; empty where it is not set.
std::string ToText(const Config& config, const Setting& setting);

// Throws UsageError if a value is out of its range or two do not fit together. Names of models and
// data sets are checked by who knows them.
void Validate(const Config& config);

}  // namespace ddprun
