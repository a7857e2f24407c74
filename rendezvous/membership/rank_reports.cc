// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/membership/rank_reports.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/membership/join_rules.h"
#include "rendezvous/membership/operator_rules.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/divergence.h"
#include "rendezvous/values/rank_ranges.h"
#include "rendezvous/values/worker_outcomes.h"

namespace ddprun {

void RankReports::TakeTime(Member& member, const RankTime& time) {
  if (time.Sum() < member.time.Sum()) return;
  member.time = time;
  member.time_at = now_;
}

void RankReports::TakeHeartbeat(Member& member, const Heartbeat& report) {
  TakeTime(member, report.time);
  if (state_.phase != RunPhase::kSealed || !IsInRound(member)) return;
  if (report.progress_round != state_.round) return;
  if (report.progress.step >= 0) Progressed(state_.restarts, report.progress.step);
  TakeStill(member, report.still);
  TakeSlowRank(member, report.progress);
  if (state_.phase == RunPhase::kSealed) TakeDamages(member, report.progress);
}

void RankReports::Tell() {
  LookForStall();
  TellLate();
}

// All members' places are put together at most once in kStallLook: in a run of thousands each
// node reports a change when all of them stall.
void RankReports::TakeStill(Member& member, const std::vector<RanksInPlace>& still) {
  std::vector<RanksInPlace> own = OwnPlacesFrom(member, still);
  if (own == member.still) return;
  member.still = std::move(own);
  if (!state_.stall_look_due) state_.stall_look_due = now_ + kStallLook;
}

// The time counts from the collective in which most wait: which others are late may change.
void RankReports::LookForStall() {
  const auto is_due = [this](std::optional<TimePoint> time) { return time && *time <= now_; };
  const bool tells = is_due(state_.stall_due);
  if (!tells && !is_due(state_.stall_look_due)) return;
  state_.stall_look_due.reset();
  const std::vector<RanksInPlace> places = StillIn(state_);
  const Collective* const most = MostWaiting(places).in;
  const auto in = most != nullptr ? std::optional(*most) : std::nullopt;
  if (in != state_.stalled_in) {
    state_.stalled_in = in;
    state_.stall_due =
        in ? std::optional(now_ + (kStallTime - kStillTime - kStallLook)) : std::nullopt;
  } else if (tells) {
    state_.stall_due.reset();
    TellRanksWait(absl::StrCat("no progress for ", kStallTime.count(), " s: ", ToSentence(places),
                               "; `ddpctl stacks` prints what each rank does"),
                  /*tells_running=*/false);
  }
}

// To the nodes that are late, and to node 0's console. Not while most nodes still run.
void RankReports::TellLate() {
  if (!state_.late_due || now_ < *state_.late_due) return;
  state_.late_due.reset();
  if (2 * static_cast<std::size_t>(state_.running) > state_.places.size()) return;
  std::vector<RankRange> ranks;
  std::int64_t count = 0;
  for (const auto& entry : state_.places) {
    const Member& member = state_.members.at(entry.second);
    if (!member.join.roles.empty()) return;  // their programs may well end at different times
    if (member.phase != MemberPhase::kRunning) continue;
    count += member.join.local_world_size;
    AddRanks({member.rank_first, member.rank_first + member.join.local_world_size - 1},
             kOutcomeRangesShown, ranks);
  }
  if (ranks.empty()) return;
  TellRanksWait(
      absl::StrCat(RanksText(ranks, count), count == 1 ? " still runs, " : " still run, ",
                   kLateEndTime.count(),
                   " s after the other nodes' ranks have ended with code 0; `ddpctl stacks ",
                   ranks.front().first, "` prints what rank ", ranks.front().first, " does"),
      /*tells_running=*/true);
}

void RankReports::TellRanksWait(const std::string& words, bool tells_running) {
  step_.AddNotice(NoticeKind::kRanksWait).words = words;
  for (const auto& [rank, id] : state_.places) {
    const Member& member = state_.members.at(id);
    if (rank == 0 || (tells_running && member.phase == MemberPhase::kRunning))
      step_.SendTo(member, Waiting{words, {}});
  }
}

void RankReports::TakeSlowRank(Member& member, const Progress& progress) {
  const bool is_own = progress.slow_rank >= member.rank_first &&
                      progress.slow_rank < member.rank_first + member.join.local_world_size;
  const std::int64_t was = std::exchange(member.slow_rank, is_own ? progress.slow_rank : -1);
  if (was == member.slow_rank) return;
  const bool is_slow = member.slow_rank >= 0;
  RunNotice& note =
      step_.AddNotice(is_slow ? NoticeKind::kRankSlow : NoticeKind::kRankNormal, &member);
  note.rank = static_cast<int>(is_slow ? member.slow_rank : was);
  if (!is_slow) {
    note.words =
        absl::StrCat("rank ", was, " on host ", member.join.host, " is as fast as its peers again");
    return;
  }
  const std::string words = SlowRankText(member.slow_rank, member.join.host, progress.slowness);
  if (!member.join.evict_stragglers) {
    note.words = absl::StrCat(words, "; look at that machine");
    return;
  }
  DrainBecause("--evict-stragglers", words, /*only_for_spare=*/true, member, note);
}

// Memory that was damaged twice is not trusted a third time.
void RankReports::TakeDamages(Member& member, const Progress& progress) {
  constexpr std::int64_t kDamagesMax = 2;
  if (progress.damages < 0) return;
  const std::int64_t before = std::exchange(member.damages_reported, progress.damages);
  if (progress.damages <= before) return;
  member.damages += progress.damages - before;
  RunNotice& note = step_.AddNotice(NoticeKind::kRankDamaged, &member);
  note.rank = static_cast<int>(progress.damaged_rank);
  const std::string words =
      DamagedRankText(progress.damaged_rank, member.join.host, member.damages);
  if (member.damages < kDamagesMax) {
    note.words = absl::StrCat(words, "; check the memory of that machine");
    return;
  }
  DrainBecause("--check-replicas", words, /*only_for_spare=*/false, member, note);
}

void RankReports::DrainBecause(const char* flag, const std::string& words, bool only_for_spare,
                               Member& member, RunNotice& note) {
  const absl::StatusOr<DrainPlan> plan =
      PlanDrain(state_, {.by = "", .node = member.join.node_id.value});
  const bool leaves = plan.ok() && (plan->has_spare || !only_for_spare);
  note.words = absl::StrCat(words, "; ",
                            !plan.ok() ? std::string(plan.status().message())
                            : leaves   ? plan->sentence
                                       : "no spare node stands by to take its place");
  if (!leaves) return;
  member.drained_by = absl::StrCat(flag, ": ", words);
  rounds_.Break(DrainFailure(member));
}

}  // namespace ddprun
