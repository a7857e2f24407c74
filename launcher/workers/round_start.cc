// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/round_start.h"

#include <csignal>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/base/temp_dir.h"
#include "launcher/placement/role_ranks.h"

namespace ddprun {

RoundStart::RoundStart(const NodeConfig& config, WorkerTable& table, WorkerRequests& requests,
                       WorkerCgroup& cgroup, Console& console, const Background& background,
                       std::shared_ptr<ForkServer> fork_server)
    : config_(config),
      table_(table),
      requests_(requests),
      cgroup_(cgroup),
      console_(console),
      background_(background),
      fork_server_(std::move(fork_server)),
      spawner_(background.Waker(), fork_server_) {}

absl::Status RoundStart::Begin(TimePoint now) {
  if (!NeedsTemporaryLogDir(config_.options.logs) || !log_round_.log_dir.empty())
    return OpenLogs(now);
  log_folder_ = background_.Start<absl::StatusOr<std::string>>([] { return MakeLogDir(); });
  step_ = Step::kLogFolder;
  deadline_ = now + kLogOpenTimeout;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<std::vector<RoundStart::Started>>> RoundStart::OnTurn(TimePoint now) {
  if (step_ == Step::kLogFolder) {
    if (const absl::Status status = TakeLogFolder(now); !status.ok()) return status;
  }
  if (step_ == Step::kLogFiles) {
    if (const absl::Status status = TakeLogFiles(now); !status.ok()) return status;
  }
  if (step_ != Step::kProcesses) return std::nullopt;
  auto spawned = batch_.empty() ? std::vector<Spawned>() : spawner_.Take();
  if (!spawned.has_value()) {
    if (deadline_.has_value() && now >= *deadline_) ReportLateStart();
    return std::nullopt;
  }
  std::vector<Started> started;
  for (std::size_t i = 0; i < spawned->size(); ++i)
    started.push_back({batch_[i], std::move((*spawned)[i])});
  GiveUp();
  return started;
}

void RoundStart::GiveUp() {
  step_ = Step::kNone;
  deadline_.reset();
  write_ends_.clear();  // so that a pipe ends with the worker
  batch_cgroup_.Reset();
}

// ---- Logs

absl::Status RoundStart::TakeLogFolder(TimePoint now) {
  auto folder = TakeResult(log_folder_);
  if (!folder.has_value()) {
    if (now < *deadline_) return absl::OkStatus();
    return absl::UnavailableError(
        "the disk of the folder for logs ($TMPDIR or /tmp) does not answer; name another folder "
        "with --log-dir");
  }
  if (!folder->ok()) return folder->status();
  log_round_.log_dir = **folder;
  log_folder_made_ = true;
  return OpenLogs(now);
}

absl::Status RoundStart::OpenLogs(TimePoint now) {
  const Start& start = requests_.start();
  log_round_.run_id = start.run_id;
  log_round_.host = config_.host;
  log_round_.role = config_.options.role;
  log_round_.roles.clear();
  for (int i = 0; i < table_.size() && ShowsRoles(config_.options); ++i)
    log_round_.roles.push_back(requests_.RoleOf(i));
  log_round_.round = ToNumber(start.round);
  log_round_.node_rank = start.node_rank;
  log_round_.node_count = start.node_count;
  log_round_.rank_first = start.rank_first;
  log_round_.local_world_size = config_.local_world_size();
  if (std::exchange(log_folder_made_, false)) {
    table_.Print(absl::StrCat("logs are in ", RunLogFolder(log_round_)));
  } else if (log_round_.log_dir.empty() && !WantsNoFiles(config_.options.logs)) {
    log_round_.log_dir = config_.options.logs.log_dir;
    log_round_.log_dir_is_chosen = true;
  }
  log_plan_ = PlanLogs(config_.options.logs, log_round_);
  if (log_round_.log_dir_is_chosen)
    console_.SetHint(absl::StrCat("all are in ", RunLogFolder(log_round_)));
  step_ = Step::kLogFiles;
  deadline_ = now + kLogOpenTimeout;
  std::vector<bool> kept;
  for (int i = 0; i < table_.size(); ++i) kept.push_back(table_[i].carried);
  return table_.logs().StartRound(log_plan_, kept, write_ends_);
}

absl::Status RoundStart::TakeLogFiles(TimePoint now) {
  std::optional<absl::Status> opened = table_.logs().Opened();
  if (!opened.has_value() && now >= *deadline_) opened = table_.logs().GoOnUnopened();
  if (!opened.has_value()) return absl::OkStatus();
  if (opened->ok()) StartProcesses(now);
  return *opened;
}

std::string RoundStart::RankFile(int local_rank, const char* name) const {
  const WorkerPlan& plan = log_plan_.workers[static_cast<std::size_t>(local_rank)];
  if (plan.out.file.empty() && plan.err.file.empty()) return "";
  return absl::StrCat(RankLogFolder(log_round_, local_rank), "/", name);
}

// ---- Processes

// Workers that are kept hear of the round first, and prepare for it while the others are started.
void RoundStart::StartProcesses(TimePoint now) {
  step_ = Step::kProcesses;
  deadline_ = now + kSpawnNoticeDelay;
  batch_.clear();
  for (int i = 0; i < table_.size(); ++i) {
    if (table_[i].carried) {
      TellRound(i);
    } else {
      batch_.push_back(i);
    }
  }
  const Start& start = requests_.start();
  // With one node it was checked before; with several the first says it for all.
  const std::string missing = MissingRank(config_.options, start.world_size);
  if (start.rank_first == 0 && !missing.empty()) table_.Print(missing);
  // Workers that are kept stay in their cgroup, and new ones come to them.
  if (config_.cgroup != nullptr && cgroup_.path().empty())
    cgroup_.Enter(config_.cgroup->MakeRound(start.round));
  if (batch_.empty()) return;  // OnTurn() finds nothing to wait for
  batch_cgroup_ = cgroup_.Open();
  spawner_.Begin(requests_.ForRanks(batch_, write_ends_, batch_cgroup_.get()), table_.file_limit());
}

void RoundStart::TellRound(int local_rank) {
  if (table_.progress().Send(local_rank, requests_.ForKept(local_rank))) return;
  table_.Print(absl::StrCat(table_.NameOf(local_rank),
                            " is killed because it does not read its socket of rounds"));
  table_.SignalGroup(local_rank, SIGKILL);
}

// Once.
void RoundStart::ReportLateStart() {
  deadline_.reset();
  table_.Print(absl::StrCat(WhatIsLate(), ": the workers are not started yet"));
}

std::string RoundStart::WhatIsLate() const {
  if (fork_server_ != nullptr && fork_server_->IsLoading())
    return "the modules of --preload are still being imported";
  return absl::StrCat(fork_server_ != nullptr ? "the process of --preload or " : "", "the disk of ",
                      config_.programs.front().path, " does not answer");
}

void RoundStart::ReportStuck() {
  if (step_ != Step::kProcesses) return;
  table_.Print(absl::StrCat("the workers could not be started: the disk of ",
                            config_.programs.front().path, " does not answer; check that disk"));
}

}  // namespace ddprun
