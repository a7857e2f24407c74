// SPDX-License-Identifier: Apache-2.0
// Notices that a machine of the run will be taken away (rendezvous/values/preemption.h). This node
// reports its own to the service, which tells all nodes; what comes from there is told to the
// workers. Nothing else follows from a notice.
#include "absl/strings/str_cat.h"
#include "launcher/supervisor/supervisor_stepper.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

void Stepper::operator()(const Accepted& accepted) {
  s_.joined = true;
  s_.service_takes_notices = accepted.takes_preemption;
  SendNotice();
}

void Stepper::operator()(const NoticeGiven& given) {
  switch (s_.phase) {
    case Phase::kWaiting:
    case Phase::kRunning:
    case Phase::kExamining:
    case Phase::kSucceeded:
    case Phase::kStopping: {
      const TimePoint deadline = now_ + given.remaining;
      const bool stands = s_.own_notice.has_value() && s_.own_notice->deadline > now_;
      if (stands && deadline >= s_.own_notice->deadline) return;  // the same again
      s_.own_notice = {deadline, given.reason};
      return SendNotice();
    }
    case Phase::kLeaving:
    case Phase::kEnding:
    case Phase::kEnded:
      return;
  }
}

// Before the service has answered, and while it is away, the notice waits for its next Accepted.
// One that it has told is not reported again: its clock stands still while it is away, so that the
// same deadline would seem to be earlier.
void Stepper::SendNotice() {
  if (!s_.own_notice.has_value() || !s_.service_takes_notices.has_value()) return;
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(s_.own_notice->deadline - now_);
  const bool told =
      s_.notice_until > now_ && s_.notice_until <= s_.own_notice->deadline + kSameNoticeTime;
  if (left.count() <= 0 || told) return;
  if (!*s_.service_takes_notices) {
    effects_.push_back(PrintNote{absl::StrCat(
        "the notice (", s_.own_notice->reason, ") is told to nobody: ", ServiceName(config_),
        " is of an older version; install the same ddprun on all nodes")});
    return;
  }
  effects_.push_back(SendReport{PreemptionReport{left, s_.own_notice->reason}});
}

void Stepper::operator()(const Preemption& preemption) {
  const bool known = s_.notice_number == preemption.number;
  if (preemption.remaining.count() <= 0) {
    if (!known) return;
    s_.notice_until = now_;
    effects_.push_back(EndNotice{});
    return SendNotice();  // this node's own counted as the same, and stands
  }
  if (known) return;  // repeated after the connection broke
  s_.notice_number = preemption.number;
  s_.notice_until = now_ + preemption.remaining;
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
