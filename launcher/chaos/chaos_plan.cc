// SPDX-License-Identifier: Apache-2.0
#include "launcher/chaos/chaos_plan.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {

std::string TargetName(const PlannedFault& fault) {
  if (fault.rank >= 0) return absl::StrCat("rank ", fault.rank, " on ", fault.host);
  if (!fault.node_id.empty()) return absl::StrCat("node ", fault.host, " (", fault.node_id, ")");
  return "the service";
}

bool ChaosPlan::IsBusy(const std::string& name, TimePoint now) const {
  const auto it = busy_.find(name);
  return it != busy_.end() && now < it->second;
}

std::vector<PlannedFault> ChaosPlan::Targets(FaultKind kind, const RunStatus& status,
                                             TimePoint now) const {
  const FaultInfo& info = InfoOf(kind);
  PlannedFault fault{.kind = kind, .duration = DurationOf(kind, duration_)};
  std::vector<PlannedFault> found;
  if (status.phase != RunPhase::kSealed) return found;
  if (info.target == FaultTargetKind::kService) return {fault};
  for (const NodeStatus& node : status.nodes) {
    if (node.state != NodeState::kRunning || node.ranks == 0) continue;
    fault.node_id = node.node_id.value;
    fault.host = node.host;
    const bool by_rank = info.target == FaultTargetKind::kRank;
    for (int i = 0; i < (by_rank ? node.ranks : 1); ++i) {
      fault.rank = by_rank ? node.rank_first + i : -1;
      if (!IsBusy(TargetName(fault), now)) found.push_back(fault);
    }
  }
  return found;
}

std::optional<PlannedFault> ChaosPlan::Next(const RunStatus& status, TimePoint now) {
  if (deck_.empty()) {
    deck_ = kinds_;
    for (std::size_t left = deck_.size(); left > 1; --left) {
      std::swap(deck_[left - 1], deck_[random_.Below(static_cast<std::uint32_t>(left))]);
    }
  }
  const std::vector<PlannedFault> targets = Targets(deck_.back(), status, now);
  if (targets.empty()) return std::nullopt;
  deck_.pop_back();
  PlannedFault fault = targets[random_.Below(static_cast<std::uint32_t>(targets.size()))];
  busy_[TargetName(fault)] = now + fault.duration;
  std::erase_if(busy_, [now](const auto& entry) { return entry.second < now; });
  return fault;
}

}  // namespace ddprun
