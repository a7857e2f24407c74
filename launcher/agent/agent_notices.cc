// SPDX-License-Identifier: Apache-2.0
// Agent: notices that a machine of the run will be taken away.
#include "absl/strings/str_cat.h"
#include "launcher/agent/agent.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {

void Agent::LookForNotice(TimePoint now) {
  std::optional<std::string> problem;
  std::optional<NoticeGiven> given = notice_file_.OnTurn(now, problem);
  if (problem.has_value()) Print(*problem);
  if (given.has_value()) events_.push_back(*std::move(given));
}

void Agent::TellWorkers(const Preemption& preemption, TimePoint now) {
  const WorkerNotices::Reached workers = workers_.notices().Begin(preemption, now);
  const int signal = config_.options.stopping.notices.worker_signal;
  std::string text = absl::StrCat(ToSentence(preemption), "; ");
  if (workers.running == 0) {
    absl::StrAppend(&text, "no worker runs now, those that start are told");
  } else if (signal != 0) {
    absl::StrAppend(&text, "the workers that handle ", SignalName(signal), " get it");
  } else if (workers.reached == workers.running) {
    absl::StrAppend(&text, "the workers are told");
  } else if (workers.reached > 0) {
    absl::StrAppend(&text, workers.reached, " of ", workers.running, " workers are told");
  } else {
    absl::StrAppend(&text,
                    "no worker listens yet: ddprun.on_notice() in Python and "
                    "--notice-worker-signal let them");
  }
  Print(text);
}

}  // namespace ddprun
