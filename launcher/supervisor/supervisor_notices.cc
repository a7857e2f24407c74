// SPDX-License-Identifier: Apache-2.0
// Notices that a machine of the run will be taken away (rendezvous/values/preemption.h). This node
// reports its own to the service, which tells all nodes and plans what follows; what comes from
// there is told to the workers.
#include "absl/strings/str_cat.h"
#include "launcher/supervisor/supervisor_stepper.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

void Stepper::operator()(const Accepted& accepted) {
  s_.joined = true;
  s_.service_takes_notices = accepted.takes_preemption;
  s_.service_plans_notices = accepted.plans_preemption;
  SendNotice();
  SendSaved();  // it may have been lost with the stream before
}

void Stepper::operator()(const NoticeGiven& given) {
  switch (s_.phase) {
    case Phase::kWaiting:
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping: {
      const TimePoint deadline = now_ + given.remaining;
      const bool stands =
          s_.own_notice.has_value() && !s_.own_notice->withdrawn && s_.own_notice->deadline > now_;
      if (stands && deadline >= s_.own_notice->deadline) return;  // the same again
      s_.own_notice = {.deadline = deadline, .reason = given.reason, .exit_code = given.exit_code};
      return SendNotice();
    }
    case Phase::kLeaving:
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

void Stepper::operator()(const NoticeWithdrawn& withdrawn) {
  if (!s_.own_notice.has_value() || s_.own_notice->reason != withdrawn.reason) return;
  s_.own_notice->withdrawn = true;
  s_.own_notice->answered = false;
  effects_.push_back(PrintNote{
      absl::StrCat("this machine stays after all: the notice (", withdrawn.reason, ") is gone")});
  SendNotice();
}

void Stepper::operator()(const WorkersSaved& saved) {
  s_.saved_number = saved.number;
  SendSaved();
}

void Stepper::SendSaved() {
  if (s_.service_plans_notices && s_.saved_number != 0 && s_.saved_number == s_.notice_number)
    effects_.push_back(SendReport{PreemptionReport{.saved = s_.saved_number}});
}

// Before the service has answered, and while it is away, the notice waits for its next Accepted.
// One that it has answered is not reported again: its clock stands still while it is away, so that
// the same deadline would seem to be earlier.
void Stepper::SendNotice() {
  if (!s_.own_notice.has_value() || !s_.service_takes_notices.has_value()) return;
  const SupervisorState::OwnNotice& own = *s_.own_notice;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(own.deadline - now_);
  if (left.count() <= 0 || own.answered) return;
  if (own.withdrawn) {
    if (s_.service_plans_notices)
      effects_.push_back(SendReport{PreemptionReport{.withdrawn = true}});
    return;
  }
  if (!*s_.service_takes_notices) {
    effects_.push_back(PrintNote{
        absl::StrCat("the notice (", own.reason, ") is told to nobody: ", ServiceName(config_),
                     " is of an older version; install the same ddprun on all nodes")});
    return;
  }
  effects_.push_back(SendReport{PreemptionReport{left, own.reason}});
}

void Stepper::operator()(const Preemption& preemption) {
  const bool known = s_.notice_number == preemption.number;
  const bool over = preemption.remaining.count() <= 0;
  // The service answers each report of a notice with the one that stands.
  if (s_.own_notice.has_value() && s_.own_notice->withdrawn == over) s_.own_notice->answered = true;
  if (over) {
    if (known) effects_.push_back(EndNotice{});
    return;
  }
  if (known) return;  // repeated after the connection broke
  s_.notice_number = preemption.number;
  switch (s_.phase) {
    case Phase::kWaiting:
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping:
      effects_.push_back(TellNotice{preemption});
      return;
    case Phase::kLeaving:  // the workers are being stopped already
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

}  // namespace ddprun
