// SPDX-License-Identifier: Apache-2.0
#include "launcher/chaos/fault_injector.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "launcher/base/limits.h"
#include "launcher/chaos/fault_table.h"
#include "launcher/chaos/worker_connections.h"
#include "rendezvous/base/errno_text.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

constexpr std::uint64_t kUnlimitedRate = ~std::uint64_t{0};

bool Signal(int pidfd, int number) {
  return syscall(SYS_pidfd_send_signal, pidfd, number, nullptr, 0) == 0;
}

// 0: the kind is no signal.
int SignalOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKill:
      return SIGKILL;
    case FaultKind::kSegv:
      return SIGSEGV;
    case FaultKind::kTerm:
      return SIGTERM;
    default:
      return 0;
  }
}

__rlimit_resource ResourceOf(FaultKind kind) {
  return kind == FaultKind::kDisk ? RLIMIT_FSIZE : RLIMIT_NOFILE;
}

// SO_MAX_PACING_RATE: the kernel paces TCP by itself, without a queueing discipline.
bool SetRate(const std::vector<OwnedFd>& connections, std::uint64_t bytes_per_second) {
  bool all = true;
  for (const OwnedFd& fd : connections) {
    all = setsockopt(fd.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second,
                     sizeof bytes_per_second) == 0 &&
          all;
  }
  return all;
}

absl::Status NotPossible(const char* call) {
  const int error = errno;
  return absl::PermissionDeniedError(
      absl::StrCat("not possible here: ", call, ": ", ErrnoText(error)));
}

}  // namespace

absl::StatusOr<std::string> FaultInjector::Inject(const Fault& fault, const FaultyWorker& worker,
                                                  TimePoint now) {
  const std::string whom = absl::StrCat("rank ", worker.rank, " (pid ", worker.pid, ")");
  if (const int number = SignalOf(fault.kind); number != 0) {
    if (kill(worker.pid, number) != 0) return NotPossible("kill");  // the agent has not reaped it
    return absl::StrCat(SignalName(number), " to ", whom);
  }
  if (worker.pidfd < 0) {
    return absl::PermissionDeniedError(
        "not possible here: this kernel (before Linux 5.3) or this container refuses pidfd_open; "
        "use the faults kill, segv and term");
  }
  if (fault.kind == FaultKind::kCut) {
    const auto connections = ConnectionsOf(worker.pid, worker.pidfd);
    if (!connections.ok()) return connections.status();
    for (const OwnedFd& fd : *connections) shutdown(fd.get(), SHUT_RDWR);
    return absl::StrCat("cut ", connections->size(), " TCP connections of ", whom);
  }
  const bool busy = std::any_of(lasting_.begin(), lasting_.end(),
                                [&](const Lasting& one) { return one.pid == worker.pid; });
  if (busy) {
    return absl::FailedPreconditionError(
        absl::StrCat(whom, " has a fault that still lasts; wait for its end"));
  }
  if (lasting_.size() >= kChaosLastingMax) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the node has ", lasting_.size(), " lasting faults already; wait for the end of some"));
  }
  const FaultInfo& info = InfoOf(fault.kind);
  const auto duration = DurationOf(fault.kind, fault.duration);
  Lasting lasting{.kind = fault.kind,
                  .pid = worker.pid,
                  .pidfd = OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, worker.pid, 0))),
                  .until = now + duration};
  if (!lasting.pidfd.valid()) return NotPossible("pidfd_open");
  if (absl::Status status = Begin(lasting, now); !status.ok()) return status;
  lasting_.push_back(std::move(lasting));
  return absl::StrFormat("%s to %s for %.1f s", info.name, whom,
                         std::chrono::duration<double>(duration).count());
}

absl::Status FaultInjector::Begin(Lasting& lasting, TimePoint now) {
  switch (lasting.kind) {
    case FaultKind::kStop:
    case FaultKind::kSlow:
      if (!Signal(lasting.pidfd.get(), SIGSTOP)) return NotPossible("pidfd_send_signal");
      lasting.stopped = true;
      lasting.next = lasting.kind == FaultKind::kStop ? lasting.until : now + kChaosSlice;
      return absl::OkStatus();
    case FaultKind::kDisk:
    case FaultKind::kFiles: {
      if (prlimit(lasting.pid, ResourceOf(lasting.kind), nullptr, &lasting.limit) != 0) {
        return NotPossible("prlimit");
      }
      rlimit limit = lasting.limit;
      limit.rlim_cur = 0;
      if (prlimit(lasting.pid, ResourceOf(lasting.kind), &limit, nullptr) != 0) {
        return NotPossible("prlimit");
      }
      lasting.next = lasting.until;
      return absl::OkStatus();
    }
    case FaultKind::kSlowNet: {
      auto connections = ConnectionsOf(lasting.pid, lasting.pidfd.get());
      if (!connections.ok()) return connections.status();
      lasting.connections = *std::move(connections);
      if (!SetRate(lasting.connections, kChaosBytesPerSecond)) {
        const absl::Status status = NotPossible("SO_MAX_PACING_RATE");
        SetRate(lasting.connections, kUnlimitedRate);
        return status;
      }
      lasting.next = lasting.until;
      return absl::OkStatus();
    }
    default:
      return absl::FailedPreconditionError(
          "this ddprun does not know the kind of fault; install the same version on all nodes");
  }
}

void FaultInjector::Undo(const Lasting& lasting) {
  switch (lasting.kind) {
    case FaultKind::kStop:
    case FaultKind::kSlow:
      Signal(lasting.pidfd.get(), SIGCONT);
      return;
    case FaultKind::kDisk:
    case FaultKind::kFiles:
      // prlimit() has only a pid, which may be another process's once the worker was reaped.
      if (Signal(lasting.pidfd.get(), 0)) {
        prlimit(lasting.pid, ResourceOf(lasting.kind), &lasting.limit, nullptr);
      }
      return;
    case FaultKind::kSlowNet:
      SetRate(lasting.connections, kUnlimitedRate);
      return;
    default:
      return;
  }
}

void FaultInjector::OnTurn(TimePoint now) {
  std::erase_if(lasting_, [now](const Lasting& lasting) {
    if (now < lasting.until) return false;
    Undo(lasting);
    return true;
  });
  for (Lasting& lasting : lasting_) {
    if (lasting.kind != FaultKind::kSlow || now < lasting.next) continue;
    lasting.stopped = !lasting.stopped;
    Signal(lasting.pidfd.get(), lasting.stopped ? SIGSTOP : SIGCONT);
    lasting.next = std::min(lasting.until, now + kChaosSlice);
  }
}

std::optional<TimePoint> FaultInjector::NextDeadline() const {
  std::optional<TimePoint> next;
  for (const Lasting& lasting : lasting_) next = Earliest({next, lasting.next});
  return next;
}

void FaultInjector::UndoAll() {
  for (const Lasting& lasting : lasting_) Undo(lasting);
  lasting_.clear();
}

}  // namespace ddprun
