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
#include "rendezvous/base/limits.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

constexpr char kEndSignalsDefault[] = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";  // torchrun's
constexpr double kNoticeSecondsMax = std::chrono::seconds(kNoticeMax).count();
using std::chrono::milliseconds;
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

bool Has(const std::vector<int>& signals, int number) {
  return std::find(signals.begin(), signals.end(), number) != signals.end();
}

std::vector<int> ReadOptionalSignals(Reader& reader, const char* flag) {
  const Value* value = reader.Find(flag);
  return value != nullptr && !value->text.empty() ? ReadSignals(reader, *value)
                                                  : std::vector<int>();
}

NoticeOptions ReadNoticeOptions(Reader& reader) {
  NoticeOptions options;
  options.signals = ReadOptionalSignals(reader, "--notice-on-signal");
  options.file = reader.Text("--notice-on-file", "a path", "");
  options.grace = reader.Seconds("--notice-grace", kNoticeSecondsMax).value_or(kNoticeGraceDefault);
  const std::vector<int> to_workers = ReadOptionalSignals(reader, "--notice-worker-signal");
  if (to_workers.size() > 1)
    reader.Fail(*reader.Find("--notice-worker-signal"), "the name of one signal");
  if (!to_workers.empty()) options.worker_signal = to_workers.front();
  return options;
}

// A signal has one meaning.
void RejectCommon(Reader& reader, const char* flag, const std::vector<int>& signals,
                  const char* other_flag, const std::vector<int>& others, const char* meaning) {
  for (const int number : signals) {
    if (!Has(others, number)) continue;
    reader.FailWith(absl::StrCat(reader.Find(flag)->source, " has ", SignalName(number), ", which ",
                                 meaning, "; take it out of ", other_flag));
  }
}

}  // namespace

const std::vector<Flag> kStopFlags = {
    {"--signals-to-handle", 0, "NAME,...",
     "Signals that end the run (SIGTERM,SIGINT,SIGHUP,SIGQUIT); a second one kills the workers."},
    {"--signal-scope", 0, "worker|group",
     "Who gets the signal that ends workers: each worker alone (if ddprun runs Python), or its "
     "process group (else)."},
    {"--forward-signals", 0, "NAME,...",
     "Signals to pass on to each worker, such as SIGUSR1,SIGUSR2 (none)."},
    {"--notice-on-signal", 0, "NAME,...",
     "Signals that are a notice of preemption: the workers of all nodes are told (none)."},
    {"--notice-on-file", 0, "PATH",
     "The same when this file appears; a number in it is the time left in seconds (none)."},
    {"--notice-grace", 0, "SECONDS", "Time left after a notice that does not say it (30)."},
    {"--notice-worker-signal", 0, "NAME",
     "Signal to each worker that handles it when there is a notice, on any node (none)."},
    {"--term-timeout", 0, "SECONDS",
     "Time between SIGTERM and SIGKILL when workers are stopped (30)."},
    {"--shutdown-timeout", 0, "SECONDS", "The same at the end of the run (--term-timeout)."},
    {"--restart-timeout", 0, "SECONDS", "The same before a restart (--term-timeout)."},
    {"--leftover-timeout", 0, "SECONDS",
     "Time for processes that workers left behind when all ended with 0, before SIGTERM (5)."},
};

StopOptions ReadStopOptions(Reader& reader) {
  StopOptions options;
  options.notices = ReadNoticeOptions(reader);
  const Value* handled = reader.Find("--signals-to-handle");
  options.end_signals =
      ReadSignals(reader, handled != nullptr ? *handled : Value{kEndSignalsDefault, ""});
  // Kubernetes gives notice by SIGTERM itself: to name it once is enough.
  if (handled == nullptr) {
    std::erase_if(options.end_signals,
                  [&](int number) { return Has(options.notices.signals, number); });
  }
  options.forwarded_signals = ReadOptionalSignals(reader, "--forward-signals");
  RejectCommon(reader, "--forward-signals", options.forwarded_signals, "--signals-to-handle",
               options.end_signals, "ends the run");
  RejectCommon(reader, "--notice-on-signal", options.notices.signals, "--signals-to-handle",
               options.end_signals, "ends the run");
  RejectCommon(reader, "--notice-on-signal", options.notices.signals, "--forward-signals",
               options.forwarded_signals, "is forwarded");
  const auto both = reader.Seconds("--term-timeout", kTermSecondsMax).value_or(kTermTimeoutDefault);
  options.shutdown_timeout = reader.Seconds("--shutdown-timeout", kTermSecondsMax).value_or(both);
  options.restart_timeout = reader.Seconds("--restart-timeout", kTermSecondsMax).value_or(both);
  options.signal_scope = reader.Choice<SignalScope>(
      "--signal-scope", {{"worker", SignalScope::kWorker}, {"group", SignalScope::kGroup}},
      SignalScope::kAuto);
  const Value* leftover = reader.Find("--leftover-timeout");
  options.leftover_timeout = kLeftoverTimeoutDefault;
  if (leftover != nullptr) {
    options.leftover_timeout =
        leftover->text == "0" ? milliseconds(0) : reader.Seconds(*leftover, kTermSecondsMax);
  }
  return options;
}

std::chrono::milliseconds StopTimeout(const StopOptions& options) {
  return std::max(options.shutdown_timeout, options.restart_timeout) + kKillTimeout +
         kLeftoverTermTimeout + 2 * kSweepTimeout;
}

int StopSignal(const StopOptions& options) {
  const bool is_notice = Has(options.notices.signals, SIGTERM) && !options.end_signals.empty();
  return is_notice ? options.end_signals.front() : SIGTERM;
}

}  // namespace ddprun
