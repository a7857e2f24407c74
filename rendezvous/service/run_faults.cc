// SPDX-License-Identifier: Apache-2.0
// Run: faults that an operator injects on purpose (`ddpctl chaos`).
#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/service/run.h"

namespace ddprun {

void Run::Inject(const FaultRequest& request, FaultAnswer answer) {
  Action action(*this);
  const auto fail = [&](absl::Status status) {
    action.afterwards.fault_answers.push_back(
        [answer = std::move(answer), status = std::move(status)] { answer(status); });
  };
  absl::StatusOr<FaultTarget> target = PlanFault(membership_, request);
  if (!target.ok()) return fail(target.status());
  if (faults_.size() >= kFaultsUnderWayMax) {
    return fail(absl::ResourceExhaustedError(
        absl::StrCat("run '", run_id_, "' has ", faults_.size(),
                     " requests that its nodes have not answered yet; ask for fewer at a time")));
  }
  const auto session = sessions_.find(target->link);
  if (session == sessions_.end()) {
    return fail(absl::FailedPreconditionError(absl::StrCat(
        "the node of rank ", request.rank, " is away; wait until its connection is back")));
  }
  const std::uint64_t id = ++last_fault_;
  faults_[id] = {target->link, request, std::move(answer)};
  // Not held back for the journal: it follows from no record.
  Push(ToSession{session->second,
                 Fault{id, request.kind, target->local_rank, request.duration, request.by}},
       action.afterwards);
}

void Run::ReceiveFaultReport(LinkId link, const FaultReport& report) {
  Action action(*this);
  const auto it = faults_.find(report.id);
  if (it == faults_.end() || it->second.link != link) return;
  FaultUnderWay fault = std::move(it->second);
  faults_.erase(it);
  const auto node = membership_.links.find(link);
  const bool is_fault =
      fault.request.kind != FaultKind::kUndo && fault.request.kind != FaultKind::kStacks;
  if (report.done && node != membership_.links.end() && is_fault) {
    NoteFaultLocked(node->second, fault.request.rank,
                    absl::StrCat(report.words, ", asked by ", fault.request.by), action.afterwards);
  }
  action.afterwards.fault_answers.push_back([answer = std::move(fault.answer), report] {
    if (report.done) return answer(report);
    answer(absl::AbortedError(report.words));
  });
}

// The end of the stream is the report of an agent that has killed itself or left it.
void Run::FailFaultsLocked(LinkId link, Afterwards& afterwards) {
  for (auto it = faults_.begin(); it != faults_.end();) {
    if (it->second.link != link) {
      ++it;
      continue;
    }
    const FaultKind kind = it->second.request.kind;
    absl::StatusOr<FaultReport> result =
        absl::AbortedError("the connection of the node ended before it had answered");
    if (kind == FaultKind::kAgent || kind == FaultKind::kSession) {
      result = FaultReport{.id = it->first,
                           .done = true,
                           .words = kind == FaultKind::kAgent ? "SIGKILL to the agent"
                                                              : "the agent left its connection"};
    }
    afterwards.fault_answers.push_back(
        [answer = std::move(it->second.answer), result = std::move(result)] { answer(result); });
    it = faults_.erase(it);
  }
}

void Run::NoteFault(const std::string& words) {
  Action action(*this);
  NoteFaultLocked({}, -1, words, action.afterwards);
}

void Run::NoteFaultLocked(const NodeId& node_id, int rank, std::string words,
                          Afterwards& afterwards) {
  RunNotice note;
  note.kind = NoticeKind::kFault;
  note.round = membership_.round;
  note.node_id = node_id;
  if (const auto it = membership_.members.find(node_id); it != membership_.members.end()) {
    note.host = it->second.join.host;
    note.node_rank = it->second.node_rank;
  }
  if (rank >= 0) note.rank = rank;
  note.words = absl::StrCat("chaos: ", words);
  if (watcher_ != nullptr) watcher_->OnNotice(run_id_, note);
  HearNoteLocked(note, afterwards);
}

}  // namespace ddprun
