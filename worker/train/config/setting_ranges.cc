// SPDX-License-Identifier: Apache-2.0
#include "worker/train/config/setting_ranges.h"

#include <charconv>
#include <functional>
#include <iomanip>
#include <limits>
#include <optional>
#include <sstream>
#include <type_traits>
#include <vector>

namespace ddprun {
namespace {

// Steps are only counted and compared.
constexpr double kStepsMax = 1e15;
// A sum is kept of each step since the latest comparison.
constexpr double kCheckReplicasMax = 100'000;

// The allowed values of a number. `words` completes the sentence "--lr must be above 0".
struct Range {
  const char* key;
  const char* words;
  std::function<bool(double)> holds;
  const char* advice = "";
  double most = std::numeric_limits<double>::infinity();
};

const std::vector<Range>& Ranges() {
  const auto at_least = [](double least) { return [least](double x) { return x >= least; }; };
  const auto positive = [](double x) { return x > 0; };
  const auto share = [](double x) { return x >= 0 && x < 1; };
  static constexpr char kAtLeast1[] = "be at least 1";
  static constexpr char kAbove0[] = "be above 0";
  static constexpr char kNotNegative[] = "not be negative";
  static constexpr char kShare[] = "be from 0 up to but not including 1";
  static const std::vector<Range> ranges = {
      {"width", "be from 0.1 to 16", [](double x) { return x >= 0.1 && x <= 16; }},
      {"whiten-epochs", kNotNegative, at_least(0), "", kNumberMax},
      {"pad-channels", "be from 0 to 64", [](double x) { return x >= 0 && x <= 64; }},
      {"crop-padding", "be from 0 to 1024", [](double x) { return x >= 0 && x <= 1024; }},
      {"val-share", kShare, share},
      {"samples", kAtLeast1, at_least(1), "", kNumberMax},
      {"input-size", kAtLeast1, at_least(1), "", kNumberMax},
      {"num-classes", "be at least 2", at_least(2), "", kNumberMax},
      {"loader-threads", "be from 1 to 256", [](double x) { return x >= 1 && x <= 256; }},
      {"batch-size", kAtLeast1, at_least(1), "", kNumberMax},
      {"epochs", kAbove0, positive, "; pass --max-steps 0 to train nothing", kNumberMax},
      {"max-steps", kNotNegative, at_least(0), "", kStepsMax},
      {"lr", kAbove0, positive},
      {"warmup-epochs", kNotNegative, at_least(0), "", kNumberMax},
      {"warmup-steps", kNotNegative, at_least(0), "", kStepsMax},
      {"step-epochs", kAbove0, positive, "", kNumberMax},
      {"step-gamma", "be above 0 and at most 1", [](double x) { return x > 0 && x <= 1; }},
      {"momentum", kShare, share},
      {"weight-decay", kNotNegative, at_least(0)},
      {"beta1", kShare, share},
      {"beta2", kShare, share},
      {"adam-eps", kAbove0, positive},
      {"muon-momentum", kShare, share},
      {"head-lr", kAbove0, positive},
      {"bias-lr", kAbove0, positive},
      {"label-smoothing", kShare, share},
      {"accumulate", kAtLeast1, at_least(1), "", kNumberMax},
      {"clip-norm", kNotNegative, at_least(0)},
      {"ema-decay", kShare, share},
      {"target-accuracy", "be from 0 to 100", [](double x) { return x >= 0 && x <= 100; }},
      {"eval-every", kNotNegative, at_least(0), "", kNumberMax},
      {"patience", kNotNegative, at_least(0), "", kNumberMax},
      {"pipeline", kAtLeast1, at_least(1), "", kNumberMax},
      {"micro-batches", kNotNegative, at_least(0), "", kNumberMax},
      {"checkpoint-every", kNotNegative, at_least(0), "", kStepsMax},
      {"checkpoint-seconds", kNotNegative, at_least(0), "", kNumberMax},
      {"checkpoint-keep", "be at least 2", at_least(2), "", kNumberMax},
      {"eval-batch-size", kAtLeast1, at_least(1), "", kNumberMax},
      {"log-every", kAtLeast1, at_least(1), "", kStepsMax},
      {"profile-first-step", kAtLeast1, at_least(1), "", kStepsMax},
      {"profile-steps", kAtLeast1, at_least(1), "", kStepsMax},
      {"timeout", "be above 0 and below 1e8 seconds", [](double x) { return x > 0 && x < 1e8; }},
      {"collective-timeout", "be from 0 up to but not including 1e8 seconds",
       [](double x) { return x >= 0 && x < 1e8; }},
      {"check-replicas", kNotNegative, at_least(0), "", kCheckReplicasMax},
      {"straggler-factor", "be 0 or above 1",
       [](double x) { return x == 0 || (x > 1 && x < 1e8); }},
      {"world-size", kAtLeast1, at_least(1), "", kNumberMax},
  };
  return ranges;
}

// The value of a number; none of a text, or where the setting is not set.
std::optional<double> NumberOf(const Config& config, const Setting& setting) {
  return std::visit(
      [&](auto member) -> std::optional<double> {
        const auto& value = config.*member;
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_arithmetic_v<Value>) {
          return static_cast<double>(value);
        } else if constexpr (std::is_same_v<Value, std::optional<std::int64_t>>) {
          return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
        } else {
          return std::nullopt;
        }
      },
      setting.member);
}

void Check(const Range& range, const Config& config) {
  const Setting& setting = *FindSetting(range.key);
  const std::optional<double> number = NumberOf(config, setting);
  if (!number) return;
  if (*number > range.most)
    throw UsageError(std::string("--") + range.key + " must be at most " + NumberText(range.most) +
                     ", but is " + ToText(config, setting));
  if (range.holds(*number)) return;
  throw UsageError(std::string("--") + range.key + " must " + range.words + ", but is " +
                   ToText(config, setting) + range.advice);
}

}  // namespace

std::string NumberText(double value) {
  std::string text;
  for (const int digits : {6, 15, std::numeric_limits<double>::max_digits10}) {
    std::ostringstream stream;
    stream << std::setprecision(digits) << value;
    text = stream.str();
    double read = 0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    if (read == value) break;
  }
  return text;
}

void CheckRanges(const Config& config) {
  for (const Range& range : Ranges()) Check(range, config);
}

}  // namespace ddprun
