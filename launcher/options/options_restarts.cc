// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_groups.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

constexpr int kRestartsMax = 1'000'000;
constexpr int kSparesMax = 64;
constexpr int kExitCodeMax = 255;
constexpr int kSignalBase = 128;
constexpr double kTimeSecondsMax = std::chrono::seconds(kRestartTimeMax).count();
constexpr double kDelaySecondsMax = std::chrono::seconds(kRestartDelayMax).count();

// The shell's exit codes for a program that cannot be run or is missing: no restart will find it.
// Others are left to the user: 1 and 2 are what programs end with for any reason.
const std::vector<ExitCodeRange> kNeverDefault = {{126, 127}};

bool ReadCode(absl::string_view text, int& code) {
  if (absl::SimpleAtoi(text, &code)) return code >= 1 && code <= kExitCodeMax;
  const std::optional<int> signal = SignalNumber(std::string(text));
  code = kSignalBase + signal.value_or(0);
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

std::vector<ExitCodeRange> ReadCodes(Reader& reader, const char* flag,
                                     const std::vector<ExitCodeRange>& otherwise) {
  const Value* value = reader.Find(flag);
  if (value == nullptr) return otherwise;
  if (value->text == "none") return {};
  std::vector<ExitCodeRange> codes;
  for (const absl::string_view item : absl::StrSplit(value->text, ',')) {
    if (!ReadRange(absl::StripAsciiWhitespace(item), codes.emplace_back()) ||
        codes.size() > kExitCodeRangesMax) {
      reader.Fail(*value,
                  absl::StrCat("a list of up to ", kExitCodeRangesMax,
                               " exit codes and signals, such as 2,77-80,SIGSEGV, or none"));
      return {};
    }
  }
  return codes;
}

void ReadDelay(Reader& reader, RestartPolicy& policy) {
  const Value* value = reader.Find("--restart-delay");
  if (value == nullptr) return;
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(value->text, absl::MaxSplits(':', 1));
  policy.delay = reader.Seconds({parts.first, value->source}, kDelaySecondsMax);
  if (parts.first.size() == value->text.size()) return;
  policy.delay_max = reader.Seconds({parts.second, value->source}, kDelaySecondsMax);
  if (policy.delay_max < policy.delay) {
    reader.Fail(*value, "SECONDS or SECONDS:MAX, of which MAX is not the smaller");
  }
}

}  // namespace

const std::vector<Flag> kRestartFlags = {
    {"--max-restarts", 0, "N", "Restart all workers after a failure, up to N times (0)."},
    {"--restart-window", 0, "SECONDS", "Count only the restarts of the last SECONDS."},
    {"--restart-reset", 0, "SECONDS",
     "Restore all N restarts once the workers have run this long."},
    {"--no-progress-restarts", 0, "N",
     "Restore all restarts when a round reaches a new step; end the run after N failures "
     "in a row without one."},
    {"--no-restart-exit-codes", 0, "LIST",
     "Do not restart if the first failing worker ended so: 2,77-80,SIGSEGV (126-127)."},
    {"--restart-exit-codes", 0, "LIST", "Restart only if the first failing worker ended so."},
    {"--restart-delay", 0, "SECONDS[:MAX]", "Delay before each restart, doubled up to MAX (0)."},
    {"--node-failures-max", 0, "K", "Leave a node out that was the first to fail K times."},
    {"--on-join", 0, "ACTION",
     "When a node joins a running round that has a place for it: grow (take it in, if the program "
     "can be kept), restart (all workers), standby (grow)."},
    {"--spares", 0, "K",
     "Keep K parked worker processes on this node, to take a dead worker's place at once, if the "
     "program can be kept (0)."},
    {"--node-cooldown", 0, "SECONDS", "Time after which that node may join again (never)."},
};

RestartOptions ReadRestartOptions(Reader& reader) {
  RestartOptions options;
  RestartPolicy& policy = options.policy;
  const auto time = [&reader](const char* flag) {
    return reader.Seconds(flag, kTimeSecondsMax).value_or(std::chrono::milliseconds{0});
  };
  options.max_restarts = reader.Integer("--max-restarts", 0, kRestartsMax).value_or(0);
  if (const Value* value = reader.Find("--on-join"); value != nullptr) {
    if (value->text == "restart") {
      policy.on_join = OnJoin::kRestart;
    } else if (value->text == "standby") {
      policy.on_join = OnJoin::kStandby;
    } else if (value->text != "grow") {
      reader.Fail(*value, "grow, restart or standby");
    }
  }
  options.spares = reader.Integer("--spares", 0, kSparesMax).value_or(0);
  policy.window = time("--restart-window");
  policy.reset = time("--restart-reset");
  policy.no_progress_max = reader.Integer("--no-progress-restarts", 1, kRestartsMax).value_or(0);
  policy.only_codes = ReadCodes(reader, "--restart-exit-codes", {});
  // A list of codes to restart for implies those not to restart for.
  policy.never_codes =
      ReadCodes(reader, "--no-restart-exit-codes",
                policy.only_codes.empty() ? kNeverDefault : std::vector<ExitCodeRange>{});
  policy.node_failures_max = reader.Integer("--node-failures-max", 1, kNodeFailuresMax).value_or(0);
  policy.node_cooldown = time("--node-cooldown");
  ReadDelay(reader, policy);
  if (policy.window.count() > 0 && options.max_restarts > kWindowRestartsMax) {
    reader.FailWith(absl::StrCat("--max-restarts ", options.max_restarts,
                                 " is too many for --restart-window; give at most ",
                                 kWindowRestartsMax));
  }
  if (policy.node_cooldown.count() > 0 && policy.node_failures_max == 0) {
    reader.FailWith("--node-cooldown is for nodes that are left out; give --node-failures-max too");
  }
  return options;
}

}  // namespace ddprun
