// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/supervisor_stepper.h"
#include "launcher/supervisor/verdict.h"

#include <algorithm>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/values/collectives.h"

namespace ddprun {

std::string InSeconds(std::chrono::milliseconds time) {
  return absl::StrCat(std::chrono::ceil<std::chrono::seconds>(time).count(), " s");
}

std::string ServiceName(const SupervisorConfig& config) {
  return config.service.empty() ? "the rendezvous service in this process"
                                : absl::StrCat("the rendezvous service at ", config.service);
}

std::string InterruptedText(const std::string& host, int signal,
                            const std::vector<RanksInPlace>& places) {
  return absl::StrCat("ddprun: run ended: ddprun on ", host, " got ", SignalName(signal), "\n",
                      CollectivesText(places), "  exit code: ", ExitCodeOfSignal(signal), "\n");
}

std::string LeftText(const Failure& reason, int exit_code) {
  return absl::StrCat("ddprun: this node has left the run: ", ToSentence(reason), "\n",
                      CollectivesText(reason.places), "  exit code: ", exit_code, "\n");
}

std::string UnreachedText(const SessionEnded& ended) {
  // The service answered, and waiting longer would not help: the sentence is complete.
  if (absl::IsFailedPrecondition(ended.status))
    return absl::StrCat("ddprun: ", ended.status.message(), "\n");
  return absl::StrCat(
      "ddprun: ", ended.status.message(),
      "; check that node 0 is started, that its address and port are the same on every node, and "
      "that no firewall is in between (--join-timeout waits longer)\n");
}

std::string LostServiceText(const SessionEnded& ended, const SupervisorConfig& config,
                            bool workers_succeeded) {
  std::string out = absl::StrCat("ddprun: lost ", ServiceName(config));
  if (!ended.status.ok()) absl::StrAppend(&out, ": ", ended.status.message());
  if (workers_succeeded) absl::StrAppend(&out, ", after all workers of this node had succeeded");
  absl::StrAppend(&out,
                  "; look at the output of ddprun on the node that hosts it\n  exit code: 1\n");
  return out;
}

std::string RoundsOverlapText(const Start& start, RoundId current, const SupervisorConfig& config) {
  return absl::StrCat("ddprun: ", ServiceName(config), " started round ", ToNumber(start.round),
                      " while round ", ToNumber(current),
                      " is not over on this node; do both run the same version of ddprun?\n");
}

std::string RestartText(const Start& start, const std::optional<Failure>& cause) {
  std::string text = absl::StrCat("restart ", start.restart_count - start.restarts_forgiven, " of ",
                                  start.restarts_max, " as round ", ToNumber(start.round));
  if (start.restarts_forgiven > 0) absl::StrAppend(&text, " (", start.restart_count, " in all)");
  if (cause.has_value()) {
    absl::StrAppend(&text, ": ", ToSentence(*cause));
    const std::string where = ToSentence(cause->places);
    if (!where.empty()) absl::StrAppend(&text, "; collectives: ", where);
  }
  if (!start.left_out.empty()) absl::StrAppend(&text, "; ", start.left_out);
  return text;
}

std::string LeftBehindText(const LeftBehind& left) {
  const std::string which = absl::StrCat(
      "processes that the workers left behind: ",
      absl::StrJoin(left.processes.begin(),
                    left.processes.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                 left.processes.size(), kShownProcessesMax)),
                    ", "),
      left.processes.size() > kShownProcessesMax
          ? absl::StrCat(", and ", left.processes.size() - kShownProcessesMax, " more")
          : "");
  switch (left.signal) {
    case SIGTERM:
      return absl::StrCat("sent SIGTERM to ", which,
                          "; --leftover-timeout gives them more time to end by themselves");
    case SIGKILL:
      return absl::StrCat("sent SIGKILL to ", which, ", which had not ended");
    default:
      return absl::StrCat("all workers have ended with 0; waiting up to ",
                          InSeconds(left.remaining), " for ", which);
  }
}

std::string NewRoundText(const Start& start, const Failure& cause) {
  return absl::StrCat("round ", ToNumber(start.round), " begins: ", ToSentence(cause));
}

std::string ConnectionLostText(const Reconnecting& event, const SupervisorConfig& config,
                               bool workers_live) {
  return absl::StrCat("the connection to ", ServiceName(config), " broke: ", event.reason, "; ",
                      workers_live ? "the workers go on, " : "", "trying again for ",
                      InSeconds(event.remaining));
}

}  // namespace ddprun
