// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/run_flags.h"

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

bool Has(const std::vector<int>& signals, int number) {
  return std::find(signals.begin(), signals.end(), number) != signals.end();
}

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

void ReadSignals(Reader& reader, const Value& value, std::vector<int>& to) {
  to.clear();
  for (const absl::string_view part : absl::StrSplit(value.text, ',')) {
    const std::string name(absl::StripAsciiWhitespace(part));
    const std::optional<int> number = SignalNumber(name);
    if (!number.has_value()) {
      return reader.FailWith(absl::StrCat(value.source, " has '", name,
                                          "', which is no signal's name; give a list as in "
                                          "SIGTERM,SIGUSR1 (kill -l shows them)"));
    }
    if (const char* why = WhyNot(*number); why != nullptr) {
      return reader.FailWith(absl::StrCat(value.source, " has ", SignalName(*number), ", and ", why,
                                          "; leave it out"));
    }
    if (!Has(to, *number)) to.push_back(*number);
  }
}

// A signal has one meaning.
void RejectCommon(Reader& reader, FlagName flag, const std::vector<int>& signals,
                  FlagName other_flag, const std::vector<int>& others, const char* meaning) {
  for (const int number : signals) {
    if (!Has(others, number)) continue;
    reader.FailWith(absl::StrCat(reader.Find(flag)->source, " has ", SignalName(number), ", which ",
                                 meaning, "; take it out of ", other_flag.text));
  }
}

}  // namespace

void ReadEndSignals(Reader& reader, const Flag&, const Value& value, Options& options) {
  ReadSignals(reader, value, options.stopping.end_signals);
}

// Other lists than that one may be empty.
void ReadInto(Reader& reader, const Flag&, const Value& value, std::vector<int>& to) {
  if (!value.text.empty()) ReadSignals(reader, value, to);
}

void ReadNoticeSignal(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  std::vector<int> signals;
  ReadInto(reader, flag, value, signals);
  if (signals.size() > 1) reader.Fail(value, "the name of one signal");
  if (!signals.empty()) options.stopping.notices.worker_signal = signals.front();
}

void ReadPreemptNotice(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  NoticeOptions& notices = options.stopping.notices;
  const std::vector<std::string> clouds = ChoicesOf(flag.value);
  const auto found = std::find(clouds.begin(), clouds.end(), value.text);
  if (found == clouds.end()) {
    notices.source = NoticeSource::kFile;
    return ReadInto(reader, flag, value, notices.file);
  }
  notices.source = static_cast<NoticeSource>(found - clouds.begin() + 1);
}

void ReadTermTimeout(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  ReadInto(reader, flag, value, options.stopping.shutdown_timeout);
  options.stopping.restart_timeout = options.stopping.shutdown_timeout;
}

void FinishStopping(Reader& reader, Options& options) {
  StopOptions& stopping = options.stopping;
  std::vector<int>& notices = stopping.notices.signals;
  const bool in_pod = stopping.notices.source == NoticeSource::kKubernetes;
  if (in_pod && !Has(notices, SIGTERM)) notices.push_back(SIGTERM);
  const FlagName notice_flag = reader.Find("--notice-on-signal"_flag) != nullptr
                                   ? "--notice-on-signal"_flag
                                   : "--preempt-notice"_flag;
  // Kubernetes gives notice by SIGTERM itself: to name it once is enough.
  if (reader.Find("--signals-to-handle"_flag) == nullptr)
    std::erase_if(stopping.end_signals, [&](int number) { return Has(notices, number); });
  RejectCommon(reader, "--forward-signals"_flag, stopping.forwarded_signals,
               "--signals-to-handle"_flag, stopping.end_signals, "ends the run");
  RejectCommon(reader, notice_flag, notices, "--signals-to-handle"_flag, stopping.end_signals,
               "ends the run");
  RejectCommon(reader, notice_flag, notices, "--forward-signals"_flag, stopping.forwarded_signals,
               "is forwarded");
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
