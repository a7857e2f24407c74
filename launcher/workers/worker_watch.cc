// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/worker_watch.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "launcher/base/background.h"
#include "launcher/base/limits.h"
#include "launcher/processes/process_stat.h"
#include "launcher/supervisor/stack_summary.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/rank_ranges.h"

namespace ddprun {
namespace {

constexpr TimePoint kAtOnce{};

Duration ReportInterval(int node_count) {
  return kProgressInterval * std::max(1, node_count / kNodesPerProgressInterval);
}

}  // namespace

void WorkerWatch::Begin(const Start& start, TimePoint now) {
  End();
  places_.clear();
  start_ = start;
  watch_.Start(workers_.table().size(), now);
  ledger_.Begin(start.round, workers_.table().size(), now);
  // The programs of different roles may well end at different times.
  if (!workers_.HasRoles()) late_.Start(workers_.table().size());
}

void WorkerWatch::End() {
  watch_.End();
  late_.End();
  found_.reset();
  late_first_.reset();
  reader_.reset();
  stacks_.clear();
  dumps_ = {};
  changed_ = false;
  sent_ = {};
  memory_.clear();
  next_memory_ = {};
  still_due_.reset();
  asked_ = false;
}

void WorkerWatch::OnEvent(const Event& event, TimePoint now) {
  if (const auto* stop = std::get_if<Stop>(&event)) {
    if (stop->round != start_.round) return;
    ledger_.OnBroken(now);
    late_.End();
    KeepPlaces();
  } else if (const auto* ended = std::get_if<WorkerEnded>(&event)) {
    ledger_.OnExit(ended->local_rank, IsSuccess(ended->outcome), now);
    late_.OnExit(ended->local_rank, now);
  } else if (std::holds_alternative<AllGone>(event)) {
    ledger_.End(now);
    KeepPlaces();
    End();
  }
}

void WorkerWatch::KeepPlaces() {
  if (places_.empty()) places_ = watch_.PlacesBesideOthers(start_.rank_first);
}

void WorkerWatch::OnProgress(int worker, const ProgressMessage& message, TimePoint now) {
  watch_.OnProgress(worker, message, now);
  ledger_.OnProgress(worker, message, now);
  if (message.goes_on) late_.OnSign(now);
  changed_ = true;
}

void WorkerWatch::OnOutput(int worker, TimePoint now) {
  watch_.OnOutput(worker, now);
  late_.OnSign(now);
}

void WorkerWatch::Examine(std::chrono::milliseconds silent, TimePoint now,
                          std::vector<Event>& events) {
  asked_ = true;
  if (found_.has_value()) return;  // they are being read already
  // All wait for one. Which one is known only when every node has examined its own.
  found_ = watch_.FindSilent(silent / 2, now);
  if (std::exchange(late_first_, std::nullopt).has_value()) reader_.reset();
  if (found_.has_value()) ReadStacks(now);
  ReadDumps(now);
  if (found_.has_value() || IsReading()) return;
  asked_ = false;
  events.push_back(StacksRead{});
}

std::optional<TimePoint> WorkerWatch::NextDeadline(bool round_runs) const {
  std::optional<TimePoint> reading;
  if (IsReading()) {
    reading = Earliest({reader_ != nullptr ? reader_->deadline() : std::nullopt,
                        dumps_.valid() ? std::optional(dumps_deadline_) : std::nullopt});
  } else if (found_.has_value()) {
    reading = kAtOnce;
  }
  return Earliest({round_runs ? watch_.NextLook() : std::nullopt,
                   round_runs ? late_.due() : std::nullopt, reading,
                   changed_ ? std::optional(next_report_) : std::nullopt, still_due_,
                   asked_stacks_ != nullptr ? asked_stacks_->reader.deadline() : std::nullopt});
}

void WorkerWatch::OnTurn(TimePoint now, bool round_runs, std::vector<Event>& events) {
  if (still_due_.has_value() && now >= *still_due_) changed_ = true;
  still_due_ = watch_.NextStill(now);
  if (found_.has_value() || asked_) {
    TakeWhatIsRead(now);
    if (IsReading()) return;
    if (found_.has_value()) Finish(std::exchange(stacks_, {}), now, events);
    // The round was broken elsewhere, and some workers could not say where they were.
    if (asked_ && watch_.HasDumps()) places_ = watch_.PlacesBesideOthers(start_.rank_first);
    if (std::exchange(asked_, false)) events.push_back(StacksRead{});
  }
  if (!round_runs) return;
  LookForLate(now);
  if (late_first_.has_value()) return;  // a reader reads once
  found_ = watch_.Look(now);
  if (!found_.has_value()) return;
  changed_ = true;
  Report(
      absl::StrCat(ToSentence(Describe(*found_)), "; reading the stacks of this node's workers"));
  ReadStacks(now);
  ReadDumps(now);
}

void WorkerWatch::LookForLate(TimePoint now) {
  if (late_first_.has_value()) {
    TakeWhatIsRead(now);
    if (reader_ == nullptr)
      Show(std::exchange(stacks_, {}), *std::exchange(late_first_, std::nullopt));
    return;
  }
  const std::vector<int> late = late_.Take(now);
  if (late.empty()) return;
  std::vector<RankRange> ranks;
  for (const int i : late) {
    const int rank = start_.rank_first + i;
    AddRanks({rank, rank}, late.size(), ranks);
  }
  const auto count = static_cast<std::int64_t>(late.size());
  Report(absl::StrCat(
      RanksText(ranks, count),
      count == 1 ? " still runs and writes nothing, " : " still run and write nothing, ",
      kLateEndTime.count(),
      " s after the others of this node have ended with code 0; "
      "reading the stacks"));
  late_first_ = late.front();
  ReadStacks(now);
}

void WorkerWatch::TakeWhatIsRead(TimePoint now) {
  if (reader_ != nullptr) {
    if (std::optional<Stacks> stacks = reader_->Take(now)) {
      stacks_ = *std::move(stacks);
      reader_.reset();
    }
  }
  if (!dumps_.valid()) return;
  const std::optional<DumpedPlaces> places = TakeResult(dumps_);
  if (!places.has_value() && now < dumps_deadline_) return;
  dumps_ = {};
  if (!places.has_value()) return;
  for (const auto& [local_rank, place] : *places) watch_.SetDumped(local_rank, place);
}

// At the same time as the stacks: a dump is written by the worker's own threads.
void WorkerWatch::ReadDumps(TimePoint now) {
  dumps_ = workers_.ReadDumps(watch_.WithoutPlace(), kDumpTimeout);
  dumps_deadline_ = now + kDumpTimeout + kDiskAnswerTimeout;
}

void WorkerWatch::ReadStacks(TimePoint now) {
  std::vector<StackReader::Target> targets;
  for (int i = 0; i < workers_.table().size(); ++i) {
    if (workers_.table().IsLive(i))
      targets.push_back({*workers_.table().pid(i), workers_.StacksFile(i)});
  }
  reader_ = std::make_unique<StackReader>();
  if (const absl::Status status = reader_->Begin(targets, now); !status.ok()) {
    Report(std::string(status.message()));
    reader_.reset();
    return;
  }
  // One that cannot be watched is read at its deadline.
  [[maybe_unused]] const bool watched = poller_.Add(reader_->fd(), {Source::kStacks});
}

void WorkerWatch::Finish(Stacks stacks, TimePoint now, std::vector<Event>& events) {
  HungWorker found = watch_.Blame(*std::exchange(found_, std::nullopt), now);
  std::vector<RanksInPlace> places = watch_.Places(start_.rank_first);
  if (places.empty() && start_.node_count > 1)  // workers of other nodes may wait for these
    places = watch_.PlacesBesideOthers(start_.rank_first);
  if (const std::string where = ToSentence(places); !where.empty()) Report(where);
  Show(stacks, found.local_rank);
  if (!watch_.StillHangs(found)) {
    if (workers_.table().IsLive(found.local_rank)) {
      Report(absl::StrCat("rank ", start_.rank_first + found.local_rank,
                          " goes on: nothing is done to it"));
    }
    return;
  }
  if (options_.on_hang == OnHang::kReport && !asked_) return;
  WorkerHung hung;
  hung.local_rank = found.local_rank;
  hung.pid = workers_.table().pid(found.local_rank).value_or(0);
  hung.age = workers_.AgeAt(now);
  hung.last_lines = workers_.logs().feed().LastLinesOf(found.local_rank);
  hung.hang = std::move(found.hang);
  hung.hang.stack = std::move(stacks[static_cast<pid_t>(hung.pid)]);
  hung.places = std::move(places);
  if (hung.hang.stack.size() > kStackLinesMax) hung.hang.stack.resize(kStackLinesMax);
  events.push_back(std::move(hung));
}

// One screen: that of the rank in question first, and of the others what their first threads do.
// The files have all.
void WorkerWatch::Show(const Stacks& stacks, int first) {
  std::vector<int> order = {first};
  for (int i = 0; i < workers_.table().size(); ++i) {
    if (i != first) order.push_back(i);
  }
  std::size_t found = 0;
  bool loses = false;
  for (const int i : order) {
    const auto pid = workers_.table().pid(i);
    const auto it = pid.has_value() ? stacks.find(*pid) : stacks.end();
    if (it == stacks.end()) continue;
    const std::string file = workers_.StacksFile(i);
    if (++found > kStackRanksShown) {
      loses = loses || file.empty();
      continue;
    }
    Report(absl::StrCat("stacks of rank ", start_.rank_first + i, " (pid ", *pid, ")",
                        file.empty() ? ":" : absl::StrCat(", all of them in ", file, ":")));
    const StackSummary summary =
        SummaryOf(it->second, i == first ? kStackLinesShown : kStackLinesShownOfOthers);
    for (const std::string& line : summary.lines) console_.WriteLine(OutputStream::kErr, line);
    if (summary.left_out == 0) continue;
    console_.WriteLine(OutputStream::kErr, absl::StrCat("    ... ", summary.left_out, " lines"));
    loses = loses || file.empty();
  }
  if (found > kStackRanksShown)
    Report(absl::StrCat("and the stacks of ", found - kStackRanksShown, " more ranks"));
  if (loses) Report("with --log-dir all stacks are kept, in rank_R/stacks.txt");
}

absl::Status WorkerWatch::BeginStacks(std::uint64_t id, int local_rank, TimePoint now) {
  if (asked_stacks_ != nullptr)
    return absl::FailedPreconditionError(
        "the stacks of another worker of that node are being read; ask again");
  if (local_rank < 0 || local_rank >= workers_.table().size() ||
      !workers_.table().IsLive(local_rank))
    return absl::FailedPreconditionError(
        "the worker does not run now; it has ended or is starting");
  auto asked = std::make_unique<AskedStacks>();
  asked->pid = *workers_.table().pid(local_rank);
  asked->report = {.id = id,
                   .done = true,
                   .words = absl::StrCat("rank ", start_.rank_first + local_rank, " (local rank ",
                                         local_rank, ", pid ", asked->pid, ")")};
  const absl::Status begun =
      asked->reader.Begin({{asked->pid, workers_.StacksFile(local_rank)}}, now);
  if (!begun.ok()) return begun;
  // One that cannot be watched is read at its deadline.
  [[maybe_unused]] const bool watched = poller_.Add(asked->reader.fd(), {Source::kStacks});
  asked_stacks_ = std::move(asked);
  return absl::OkStatus();
}

std::optional<FaultReport> WorkerWatch::TakeStacks(TimePoint now) {
  if (asked_stacks_ == nullptr) return std::nullopt;
  std::optional<Stacks> stacks = asked_stacks_->reader.Take(now);
  if (!stacks.has_value()) return std::nullopt;
  FaultReport report = std::move(asked_stacks_->report);
  report.stack = std::move((*stacks)[asked_stacks_->pid]);
  asked_stacks_.reset();
  if (report.stack.size() > kStackLinesMax) report.stack.resize(kStackLinesMax);
  return report;
}

void WorkerWatch::Report(const std::string& sentence) {
  console_.WriteLine(OutputStream::kErr, absl::StrCat("ddprun: ", sentence));
}

Failure WorkerWatch::Describe(const HungWorker& hung) const {
  Failure failure;
  failure.kind = FailureKind::kWorkerHung;
  failure.rank = start_.rank_first + hung.local_rank;
  failure.local_rank = hung.local_rank;
  failure.pid = workers_.table().pid(hung.local_rank).value_or(0);
  failure.hang = hung.hang;
  return failure;
}

void WorkerWatch::ReportOften(TimePoint now) {
  often_until_ = now + kChaosReportTime;
  next_report_ = kAtOnce;
}

std::optional<Heartbeat> WorkerWatch::TakeHeartbeat(TimePoint now) {
  if (!changed_ || now < next_report_) return std::nullopt;
  changed_ = false;
  Sent found{watch_.Summarize(), watch_.StillPlaces(start_.rank_first, now), watch_.Ranks()};
  if (found == sent_) return std::nullopt;
  sent_ = std::move(found);
  ReadMemory(now);
  next_report_ =
      now + (now < often_until_ ? kChaosReportInterval : ReportInterval(start_.node_count));
  return LastHeartbeat();
}

void WorkerWatch::ReadMemory(TimePoint now) {
  if (now < next_memory_) return;
  next_memory_ = now + kProgressInterval;
  memory_.assign(sent_.ranks.size(), 0);
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const int worker = static_cast<int>(i);
    if (workers_.table().IsLive(worker))
      memory_[i] = ResidentBytesOf(*workers_.table().pid(worker));
  }
}

Heartbeat WorkerWatch::LastHeartbeat() const {
  Heartbeat heartbeat;
  heartbeat.progress_round = start_.round;
  heartbeat.progress = sent_.progress.value_or(Progress{});
  heartbeat.still = sent_.still;
  heartbeat.ranks = sent_.ranks;
  for (std::size_t i = 0; i < std::min(memory_.size(), heartbeat.ranks.size()); ++i)
    heartbeat.ranks[i].memory = memory_[i];
  for (std::int64_t* rank : {&heartbeat.progress.slow_rank, &heartbeat.progress.damaged_rank}) {
    if (*rank >= 0) *rank += start_.rank_first;
  }
  return heartbeat;
}

}  // namespace ddprun
