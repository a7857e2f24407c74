// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/service/run_faults.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

absl::StatusOr<Fault> RunFaults::Begin(const FaultTarget& target, const FaultRequest& request,
                                       Answer& answer, const std::string& run_id) {
  if (under_way_.size() >= kFaultsUnderWayMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("run '", run_id, "' has ", under_way_.size(),
                     " requests that its nodes have not answered yet; ask for fewer at a time"));
  }
  const std::uint64_t id = ++last_;
  under_way_[id] = {target.link, request, std::move(answer)};
  return Fault{id, request.kind, target.local_rank, request.duration, request.by};
}

std::optional<RunFaults::UnderWay> RunFaults::Take(LinkId link, std::uint64_t id) {
  const auto it = under_way_.find(id);
  if (it == under_way_.end() || it->second.link != link) return std::nullopt;
  UnderWay fault = std::move(it->second);
  under_way_.erase(it);
  return fault;
}

std::vector<std::function<void()>> RunFaults::Fail(LinkId link) {
  std::vector<std::function<void()>> answers;
  for (auto it = under_way_.begin(); it != under_way_.end();) {
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
    answers.push_back(
        [answer = std::move(it->second.answer), result = std::move(result)] { answer(result); });
    it = under_way_.erase(it);
  }
  return answers;
}

}  // namespace ddprun
