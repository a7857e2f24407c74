// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/options/health_options.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

constexpr int kExitCodeMax = 255;

bool ReadCode(absl::string_view text, int& code) {
  if (absl::SimpleAtoi(text, &code)) return code >= 1 && code <= kExitCodeMax;
  const std::optional<int> signal = SignalNumber(std::string(text));
  code = ExitCodeOfSignal(signal.value_or(0));
  return signal.has_value();
}

bool ReadRange(absl::string_view text, ExitCodeRange& range) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  if (!ReadCode(ends.first, range.first)) return false;
  range.last = range.first;
  if (ends.first.size() == text.size()) return true;
  return ReadCode(ends.second, range.last) && range.first <= range.last;
}

}  // namespace

void ReadInto(Reader& reader, const Flag&, const Value& value, std::vector<ExitCodeRange>& to) {
  to.clear();
  if (value.text == "none") return;
  for (const absl::string_view item : absl::StrSplit(value.text, ',')) {
    if (!ReadRange(absl::StripAsciiWhitespace(item), to.emplace_back()) ||
        to.size() > kExitCodeRangesMax) {
      return reader.Fail(value,
                         absl::StrCat("a list of up to ", kExitCodeRangesMax,
                                      " exit codes and signals, such as 2,77-80,SIGSEGV, or none"));
    }
  }
}

void ReadRestartDelay(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  RestartPolicy& policy = options.restarts.policy;
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(value.text, absl::MaxSplits(':', 1));
  ReadInto(reader, flag, {parts.first, value.source}, policy.delay);
  if (parts.first.size() == value.text.size()) return;
  ReadInto(reader, flag, {parts.second, value.source}, policy.delay_max);
  if (policy.delay_max < policy.delay) {
    reader.Fail(value, "SECONDS or SECONDS:MAX, of which MAX is not the smaller");
  }
}

void FinishRestarts(Reader& reader, Options& options) {
  reader.Check(CheckHealthOptions(options.health));
  RestartPolicy& policy = options.restarts.policy;
  // A list of codes to restart for implies those not to restart for.
  if (!policy.only_codes.empty() && reader.Find("--no-restart-exit-codes"_flag) == nullptr)
    policy.never_codes.clear();
  if (policy.window.count() > 0 && options.restarts.max_restarts > kWindowRestartsMax) {
    reader.FailWith(absl::StrCat("--max-restarts ", options.restarts.max_restarts,
                                 " is too many for --restart-window; give at most ",
                                 kWindowRestartsMax));
  }
  if (policy.node_cooldown.count() > 0 && policy.node_failures_max == 0) {
    reader.FailWith("--node-cooldown is for nodes that are left out; give --node-failures-max too");
  }
}

}  // namespace ddprun
