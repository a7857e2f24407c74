// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_groups.h"

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

constexpr char kEndSignalsDefault[] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  // torchrun's
constexpr double kTermSecondsMax = std::chrono::seconds(kTermTimeoutMax).count();

// Why ddprun cannot wait for this one; nullptr: it can.
const char* WhyNot(int number) {
  switch (number) {
    case SIGKILL:
    case SIGSTOP:
      return "the kernel lets no process handle it";
    case SIGCHLD:
      return "it is how ddprun hears of its own processes";
    case SIGPIPE:
      return "it tells of a reader that is gone, which ends nothing";
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGTRAP:
    case SIGSYS:
      return "it means a fault in the process itself";
    default:
      return nullptr;
  }
}

std::vector<int> ReadSignals(Reader& reader, const Value& value) {
  std::vector<int> numbers;
  for (const absl::string_view part : absl::StrSplit(value.text, ',')) {
    const std::string name(absl::StripAsciiWhitespace(part));
    const std::optional<int> number = SignalNumber(name);
    if (!number.has_value()) {
      reader.FailWith(absl::StrCat(value.source, " has '", name,
                                   "', which is no signal's name; give a list as in "
                                   "SIGTERM,SIGUSR1 (kill -l shows them)"));
      return {};
    }
    if (const char* why = WhyNot(*number); why != nullptr) {
      reader.FailWith(absl::StrCat(value.source, " has ", SignalName(*number), ", and ", why,
                                   "; leave it out"));
      return {};
    }
    if (std::find(numbers.begin(), numbers.end(), *number) == numbers.end())
      numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

const std::vector<Flag> kStopFlags = {
    {"--signals-to-handle", 0, "NAME,...",
     "Signals that end the run (SIGTERM,SIGINT,SIGHUP,SIGQUIT); a second one kills the workers."},
    {"--forward-signals", 0, "NAME,...",
     "Signals to pass on to each worker, such as SIGUSR1,SIGUSR2 (none)."},
    {"--term-timeout", 0, "SECONDS",
     "Time between SIGTERM and SIGKILL when workers are stopped (30)."},
    {"--shutdown-timeout", 0, "SECONDS", "The same at the end of the run (--term-timeout)."},
    {"--restart-timeout", 0, "SECONDS", "The same before a restart (--term-timeout)."},
};

StopOptions ReadStopOptions(Reader& reader) {
  StopOptions options;
  const Value* handled = reader.Find("--signals-to-handle");
  options.end_signals =
      ReadSignals(reader, handled != nullptr ? *handled : Value{kEndSignalsDefault, ""});
  const Value* forwarded = reader.Find("--forward-signals");
  if (forwarded != nullptr && !forwarded->text.empty())
    options.forwarded_signals = ReadSignals(reader, *forwarded);
  for (const int number : options.forwarded_signals) {
    if (std::count(options.end_signals.begin(), options.end_signals.end(), number) == 0) continue;
    reader.FailWith(absl::StrCat(forwarded->source, " has ", SignalName(number),
                                 ", which ends the run; take it out of --signals-to-handle"));
  }
  const auto both = reader.Seconds("--term-timeout", kTermSecondsMax).value_or(kTermTimeoutDefault);
  options.shutdown_timeout = reader.Seconds("--shutdown-timeout", kTermSecondsMax).value_or(both);
  options.restart_timeout = reader.Seconds("--restart-timeout", kTermSecondsMax).value_or(both);
  return options;
}

std::chrono::milliseconds StopTimeout(const StopOptions& options) {
  return std::max(options.shutdown_timeout, options.restart_timeout) + kKillTimeout +
         2 * kSweepTimeout;
}

}  // namespace ddprun
