// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/stop_signals.h"

#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "launcher/base/limits.h"
#include "launcher/processes/process_stat.h"
#include "proto/round_message.h"
#include "rendezvous/base/bounded_call.h"
#include "rendezvous/values/first_cause.h"

namespace ddprun {

void StopSignals::Send(int signal, bool keep) {
  const std::vector<bool> recorded = WorkersWithRecord();
  sent_.insert(signal);
  for (int i = 0; i < table_.count(); ++i) {
    Worker& worker = table_[i];
    const bool is_signaled = worker.asked > Asked::kToLeave;
    if (!table_.IsLive(i) || (is_signaled && signal != SIGKILL)) continue;
    if (keep && (table_.IsParked(i) || worker.left)) continue;
    if (worker.asked == Asked::kNothing)
      worker.asked = StateOf(i, recorded[static_cast<std::size_t>(i)]);
    if (keep && worker.can_be_kept && worker.asked == Asked::kToLeave &&
        table_.progress().Send(i, RoundBroken{ToNumber(requests_.start().round)})) {
      continue;
    }
    if (worker.asked == Asked::kToLeave) worker.asked = Asked::kToEnd;
    if (SignalsGroup(i, signal)) {
      table_.SignalGroup(i, signal);
    } else {
      table_.SignalProcess(i, signal);
    }
    table_.SignalGroup(i, SIGCONT);  // a stopped process could not act on the signal
  }
}

Asked StopSignals::StateOf(int worker, bool has_record) const {
  if (table_.IsParked(worker)) return Asked::kToLeave;
  if (has_record || EndsInTraceback(table_.logs().feed().LastLinesOf(worker)))
    return Asked::kWhileFailing;
  return IsEnding(*table_.pid(worker)) ? Asked::kWhileEnding : Asked::kToLeave;
}

void StopSignals::Kill(int local_rank) {
  Worker& worker = table_[local_rank];
  if (worker.asked < Asked::kToEnd) worker.asked = Asked::kToEnd;
  sent_.insert(SIGKILL);
  table_.SignalGroup(local_rank, SIGKILL);
}

bool StopSignals::SignalsGroup(int worker, int signal) const {
  const SignalScope scope = config_.options.stopping.signal_scope;
  if (signal == SIGKILL || scope == SignalScope::kGroup) return true;
  if (scope == SignalScope::kWorker) return false;
  return (!table_.IsParked(worker) && requests_.IsWrapped(worker)) ||
         !config_.program_of(table_.StandsFor(worker)).is_python;
}

bool StopSignals::Caused(int worker, const Outcome& outcome) const {
  switch (table_[worker].asked) {
    case Asked::kNothing:
    case Asked::kWhileFailing:
      return false;
    case Asked::kToLeave:
    case Asked::kToEnd:
      return true;
    case Asked::kWhileEnding: {
      // A process of which only the first thread had ended is ended by the signal.
      const auto* signaled = std::get_if<Signaled>(&outcome);
      return signaled != nullptr && sent_.contains(signaled->signal);
    }
  }
  return false;
}

// By number. With a deadline, since even a local disk may hang.
std::vector<bool> StopSignals::WorkersWithRecord() const {
  std::vector<std::string> files;
  for (int i = 0; i < table_.count(); ++i) {
    const bool looks =
        table_.IsLive(i) && !table_.IsParked(i) && table_[i].asked == Asked::kNothing;
    files.push_back(looks ? table_[i].error_file : "");
  }
  std::vector<bool> none(files.size(), false);
  const auto is_there = [files = std::move(files)] {
    std::vector<bool> there;
    for (const std::string& file : files)
      there.push_back(!file.empty() && access(file.c_str(), F_OK) == 0);
    return there;
  };
  return CallWithDeadline<std::vector<bool>>(kRecordLookTimeout, is_there).value_or(none);
}

}  // namespace ddprun
