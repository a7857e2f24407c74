// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/process_set.h"

#include <sys/wait.h>

#include <utility>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

namespace ddprun {

bool ProcessSet::AnyLive() const {
  for (const Spawned& process : processes_) {
    if (!process.outcome.has_value()) return true;
  }
  return false;
}

std::optional<Outcome> ProcessSet::Look(std::size_t index) const {
  const Spawned& process = processes_[index];
  if (process.outcome.has_value()) return process.outcome;
  const auto id = static_cast<id_t>(process.pidfd.get());
  siginfo_t info{};
  if (waitid(static_cast<idtype_t>(P_PIDFD), id, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  if (info.si_code == CLD_EXITED) return Exited{info.si_status};
  return Signaled{info.si_status, info.si_code == CLD_DUMPED};
}

bool ProcessSet::ReapIfEnded(std::size_t index) {
  Spawned& process = processes_[index];
  if (process.outcome.has_value()) return false;
  // Looked at first and reaped after: while it is a zombie its group's number is taken.
  const std::optional<Outcome> outcome = Look(index);
  if (!outcome.has_value()) return false;
  kill(-process.pid, SIGKILL);
  siginfo_t info{};
  waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(process.pidfd.get()), &info,
         WEXITED | WNOHANG);
  process.outcome = outcome;
  process.pidfd.Reset();
  return true;
}

void ProcessSet::SignalGroups(int signal) {
  for (const Spawned& process : processes_) {
    if (!process.outcome.has_value()) kill(-process.pid, signal);
  }
}

void ProcessSet::SignalGroup(std::size_t index, int signal) {
  if (!processes_[index].outcome.has_value()) kill(-processes_[index].pid, signal);
}

void ProcessSet::SignalProcesses(int signal) {
  for (const Spawned& process : processes_) {
    if (!process.outcome.has_value()) kill(process.pid, signal);
  }
}

}  // namespace ddprun
