// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/session_types.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/values/collectives.h"
#include "rendezvous/values/divergence.h"

namespace ddprun {
namespace {

constexpr int kExitCodeOther = 1;
constexpr int kExitCodeMax = 255;
constexpr int kExitCodeHung = 124;  // timeout(1)'s

std::string WorkerName(const Failure& failure) {
  std::string where;
  if (!failure.role.empty()) where = absl::StrCat("rank ", failure.role_rank, " of ", failure.role);
  if (failure.local_rank >= 0)
    absl::StrAppend(&where, where.empty() ? "" : ", ", "local rank ", failure.local_rank);
  if (!failure.host.empty())
    absl::StrAppend(&where, where.empty() ? "" : " ", "on host ", failure.host);
  if (failure.pid > 0) absl::StrAppend(&where, where.empty() ? "" : ", ", "pid ", failure.pid);
  std::string name = failure.rank >= 0 ? absl::StrCat("rank ", failure.rank) : "a worker";
  if (!where.empty()) absl::StrAppend(&name, " (", where, ")");
  return name;
}

std::string NodeName(const Failure& failure) {
  std::string name = failure.host.empty() ? "a node" : absl::StrCat("node ", failure.host);
  if (failure.node_rank >= 0) absl::StrAppend(&name, " (node rank ", failure.node_rank, ")");
  return name;
}

std::string After(std::chrono::milliseconds age) {
  if (age.count() <= 0) return "";
  return absl::StrFormat(" after %.1f s", static_cast<double>(age.count()) / 1000.0);
}

std::string Gigabytes(std::int64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? absl::StrFormat("%.0f MiB", mib) : absl::StrFormat("%.1f GiB", mib / 1024);
}

std::string Killer(const Failure& failure) {
  if (!failure.oom) return SignalName(failure.signal);
  std::string text =
      absl::StrCat("the kernel's out-of-memory killer (", SignalName(failure.signal), ")");
  if (failure.oom->used_bytes > 0) {
    absl::StrAppend(&text, " at ", Gigabytes(failure.oom->used_bytes));
  }
  if (failure.oom->limit_bytes > 0) {
    absl::StrAppend(&text, failure.oom->used_bytes > 0 ? " of " : " at ",
                    failure.oom->of_cgroup ? "its cgroup's limit of " : "the machine's ",
                    Gigabytes(failure.oom->limit_bytes));
  }
  return text;
}

std::string HangSentence(const Failure& failure) {
  const Hang hang = failure.hang.value_or(Hang{});
  const auto what = [&hang] {
    switch (hang.kind) {
      case HangKind::kNoProgress:
        return " made no progress for ";
      case HangKind::kNoStart:
        return " has reported no progress since its start, for ";
      case HangKind::kNoOutput:
        return " had no output for ";
    }
    return "";
  };
  std::string text =
      absl::StrCat(WorkerName(failure), what(),
                   absl::StrFormat("%.1f s", static_cast<double>(hang.silent.count()) / 1000.0));
  if (hang.step >= 0) absl::StrAppend(&text, ": it is in step ", hang.step);
  if (!hang.section.empty()) {
    absl::StrAppend(&text, hang.step >= 0 ? absl::StrCat(" (", hang.section, ")")
                                          : absl::StrCat(": it is in ", hang.section));
  }
  if (hang.step >= 0 && hang.others_step > hang.step) {
    absl::StrAppend(&text, ", others wait in step ", hang.others_step);
  }
  return text;
}

std::string EndedEarlySentence(const Failure& failure) {
  const std::optional<Divergence> missed = FindDivergence(failure.places);
  return absl::StrCat(WorkerName(failure), " exited with code 0", After(failure.age),
                      ", while others waited for it in ",
                      missed ? NameOf(missed->expected) : "a collective");
}

std::string OnPurpose(const Failure& failure) {
  return failure.asked_by.empty() ? "" : absl::StrCat(" (chaos, asked by ", failure.asked_by, ")");
}

std::string WithMessage(std::string sentence, const std::string& message) {
  if (!message.empty()) absl::StrAppend(&sentence, ": ", message);
  return sentence;
}

}  // namespace

const char* CodeName(FailureKind kind) {
  switch (kind) {
    case FailureKind::kWorkerExited:
      return "worker_exited";
    case FailureKind::kWorkerSignaled:
      return "worker_signaled";
    case FailureKind::kSpawnFailed:
      return "spawn_failed";
    case FailureKind::kNodeLost:
      return "node_lost";
    case FailureKind::kNodeInterrupted:
      return "node_interrupted";
    case FailureKind::kJoinTimeout:
      return "join_timeout";
    case FailureKind::kRunStopped:
      return "run_stopped";
    case FailureKind::kNodeDrained:
      return "node_drained";
    case FailureKind::kNodeJoined:
      return "node_joined";
    case FailureKind::kWorkerHung:
      return "worker_hung";
    case FailureKind::kCollectiveFailed:
      return "collective_failed";
    case FailureKind::kWorkerEndedEarly:
      return "worker_ended_early";
  }
  return "";
}

int ClampExitCode(int code) { return code >= 1 && code <= kExitCodeMax ? code : kExitCodeOther; }

int ToExitCode(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kWorkerExited:
    case FailureKind::kSpawnFailed:
    case FailureKind::kWorkerEndedEarly:
      return ClampExitCode(failure.exit_code);
    case FailureKind::kWorkerSignaled:
    case FailureKind::kNodeInterrupted:
    case FailureKind::kRunStopped:
      if (failure.signal <= 0 || failure.signal > kExitCodeMax - ExitCodeOfSignal(0)) {
        return kExitCodeOther;
      }
      return ExitCodeOfSignal(failure.signal);
    case FailureKind::kWorkerHung:
      return kExitCodeHung;
    case FailureKind::kNodeLost:
    case FailureKind::kJoinTimeout:
    case FailureKind::kNodeDrained:
    case FailureKind::kNodeJoined:
    case FailureKind::kCollectiveFailed:
      return kExitCodeOther;
  }
  return kExitCodeOther;
}

std::string ToSentence(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kWorkerExited:
      return absl::StrCat(WorkerName(failure), " exited with code ", failure.exit_code,
                          After(failure.age), OnPurpose(failure));
    case FailureKind::kWorkerSignaled:
      return absl::StrCat(WorkerName(failure), " was killed by ", Killer(failure),
                          After(failure.age), OnPurpose(failure));
    case FailureKind::kSpawnFailed:
      return WithMessage(absl::StrCat(WorkerName(failure), " could not be started"),
                         failure.message);
    case FailureKind::kNodeLost:
      return WithMessage(absl::StrCat(NodeName(failure), " was lost"), failure.message);
    case FailureKind::kNodeInterrupted:
      if (failure.signal <= 0) {
        return WithMessage(absl::StrCat(NodeName(failure), " left the run"), failure.message);
      }
      return absl::StrCat(NodeName(failure), " was interrupted by ", SignalName(failure.signal));
    case FailureKind::kJoinTimeout:
      return failure.message.empty() ? "not all nodes joined in time" : failure.message;
    case FailureKind::kRunStopped:
      return failure.message.empty() ? "the run was stopped" : failure.message;
    case FailureKind::kNodeDrained:
      return absl::StrCat(NodeName(failure), " was ",
                          failure.message.empty() ? "drained" : failure.message);
    case FailureKind::kNodeJoined:
      return absl::StrCat("node ", failure.host, " has joined");
    case FailureKind::kWorkerHung:
      return HangSentence(failure);
    case FailureKind::kCollectiveFailed:
      return WithMessage(absl::StrCat(WorkerName(failure), " left the round"), failure.message);
    case FailureKind::kWorkerEndedEarly:
      return EndedEarlySentence(failure);
  }
  return "unknown failure";
}

std::optional<RoundId> RoundOf(const Report& report) {
  return std::visit(
      [](const auto& kind) -> std::optional<RoundId> {
        if constexpr (requires { kind.round; }) return kind.round;
        return std::nullopt;
      },
      report);
}

const char* RankOrderName(RankOrder order) {
  switch (order) {
    case RankOrder::kJoin:
      return "join";
    case RankOrder::kHost:
      return "host";
    case RankOrder::kTopology:
      return "topology";
  }
  return "";
}

std::string SlowRankText(std::int64_t rank, const std::string& host, double slowness) {
  return absl::StrFormat("rank %d on host %s needs %.1f times as long for a step as its peers",
                         rank, host, slowness);
}

std::string DamagedRankText(std::int64_t rank, const std::string& host, std::int64_t times) {
  return absl::StrCat("the memory of rank ", rank, " on host ", host, " was found to be damaged",
                      times == 1 ? "" : absl::StrCat(" ", times, " times"));
}

}  // namespace ddprun
