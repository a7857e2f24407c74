// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/spare_pool.h"

#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "launcher/placement/cpu_binding.h"
#include "rendezvous/base/errno_text.h"

namespace ddprun {

SparePool::SparePool(const NodeConfig& config, WorkerTable& table, WorkerRequests& requests,
                     WorkerCgroup& cgroup, const Background& background,
                     std::shared_ptr<ForkServer> fork_server)
    : config_(config),
      table_(table),
      requests_(requests),
      cgroup_(cgroup),
      spawner_(background.Waker(), std::move(fork_server)) {}

void SparePool::Prepare() {
  prepares_ = true;
  keeping_.reset();  // the service asks again after its connection broke
  failures_ = 0;
}

void SparePool::BeginRound() {
  prepares_ = false;
  keeping_.reset();
}

std::optional<int> SparePool::ReadyFor(int local_rank) const {
  if (requests_.NeedsOwnStart(local_rank)) return std::nullopt;
  const int program = config_.place_of(local_rank).program;
  for (int i = table_.size(); i < table_.count(); ++i) {
    if (config_.place_of(table_.StandsFor(i)).program == program && table_[i].can_be_kept &&
        table_.IsLive(i))
      return i;
  }
  return std::nullopt;
}

void SparePool::Take(int local_rank, int spare) {
  table_.Replace(local_rank, spare);
  Bind(local_rank);
}

// Parked workers are bound to nothing, as it is not known whose place they will take.
void SparePool::Bind(int local_rank) {
  const CpuBinding binding(config_.place_of(local_rank).cpus, {});
  if (binding.ApplyTo(*table_.pid(local_rank))) return;
  table_.Print(absl::StrCat(table_.NameOf(local_rank),
                            " runs without its --numa-binding: ", ErrnoText(errno)));
}

bool SparePool::AllAreReady() const {
  int ready = 0;
  for (int i = table_.size(); i < table_.count(); ++i)
    ready += table_[i].can_be_kept && table_.IsLive(i);
  return ready >= table_.size();
}

// A round that is being stopped keeps what it last reported.
std::optional<bool> SparePool::TakeKeeping(Node node) {
  std::optional<bool> now = keeping_;
  if (prepares_) now = AllAreReady();
  if (node == Node::kRunning) now = table_.AllCanBeKept();
  if (!now.has_value() || now == keeping_) return std::nullopt;
  const bool is_news = *now || keeping_.has_value();
  keeping_ = now;
  return is_news ? now : std::nullopt;
}

// In a round once its workers have said that they can be kept, since another program would begin
// as a world of its own.
int SparePool::Wanted(Node node) const {
  if (node == Node::kBusy) return 0;
  const int spares = config_.options.restarts.spares;
  if (prepares_) return table_.size() + spares;
  return node == Node::kRunning && table_.AllCanBeKept() ? spares : 0;
}

void SparePool::OnTurn(Node node) {
  if (starting_.has_value() || failures_ >= kParkedFailuresMax) return;
  const int end = table_.size() + Wanted(node);
  for (int i = table_.size(); i < end; ++i) {
    if (table_.IsLive(i)) continue;
    const absl::Status status = Park(i);
    if (status.ok()) return;  // one at a time
    failures_ = kParkedFailuresMax;
    table_.Print(absl::StrCat("no spare worker is started: ", status.message()));
    return;
  }
}

absl::Status SparePool::Park(int worker) {
  table_.Vacate(worker);
  absl::Status status = table_.logs().StartParked(worker, "[spare] ", ends_);
  if (!status.ok()) return status;
  cgroup_folder_ = cgroup_.Open();
  auto request =
      requests_.ForSpare(worker, absl::StrCat("spare_", ++parked_), ends_, cgroup_folder_.get());
  if (!request.ok()) return request.status();
  starting_ = worker;
  std::vector<SpawnRequest> requests;
  requests.push_back(*std::move(request));
  spawner_.Begin(std::move(requests), table_.file_limit());
  return absl::OkStatus();
}

std::optional<int> SparePool::TakeParked(bool kill) {
  if (!starting_.has_value()) return std::nullopt;
  auto spawned = spawner_.Take();
  if (!spawned.has_value()) return std::nullopt;
  const int worker = *std::exchange(starting_, std::nullopt);
  kill = std::exchange(given_up_, false) || kill;
  if (kill) table_[worker].asked = Asked::kToEnd;
  ends_ = {};
  cgroup_folder_.Reset();
  deadline_.reset();
  table_.Adopt(worker, std::move(spawned->front()));
  if (!table_.IsLive(worker)) OnEnded(worker, kill);
  if (kill) table_.SignalGroup(worker, SIGKILL);
  return worker;
}

void SparePool::OnEnded(int worker, bool asked) {
  table_.progress().Close(worker);
  if (asked || table_[worker].asked != Asked::kNothing) return;
  ++failures_;
  table_.Print(
      absl::StrCat("a spare worker ended with exit code ", ExitCodeOf(*table_.outcome(worker)),
                   failures_ < kParkedFailuresMax ? "; another one is started"
                                                  : "; no other one is started, see its output"));
}

bool SparePool::WaitsForStart(TimePoint now) {
  if (!IsStarting()) return false;
  if (!deadline_.has_value()) deadline_ = now + kSpareStartTimeout;
  if (now < *deadline_) return true;
  table_.Print(absl::StrCat("a spare worker is given up, because it could not be started within ",
                            kSpareStartTimeout.count(), " s: the disk of ",
                            config_.program_of(table_.StandsFor(*starting_)).path,
                            " does not answer; check that disk"));
  GiveUp();
  return false;
}

void SparePool::GiveUp() {
  spawner_.Cancel();
  given_up_ = starting_.has_value();
  deadline_.reset();
}

}  // namespace ddprun
