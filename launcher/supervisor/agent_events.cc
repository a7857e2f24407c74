// SPDX-License-Identifier: Apache-2.0
#include "launcher/supervisor/agent_events.h"

#include "absl/strings/str_join.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/signal_name.h"

namespace ddprun {
namespace {

using Maybe = std::optional<RunEvent>;

RunEvent Named(const char* name) {
  RunEvent event;
  event.event = name;
  return event;
}

void Place(const Start& start, int local_rank, RunEvent& event) {
  event.run_id = start.run_id;
  event.round = start.round;
  event.node_rank = start.node_rank;
  event.rank = start.rank_first + local_rank;
  event.fields.emplace_back("local_rank", std::int64_t{local_rank});
}

// The name that torchelastic's events have for it.
const char* TorchName(const WorkerEnded& ended, const SupervisorState& state) {
  if (IsSuccess(ended.outcome)) return "torchelastic.worker.status.SUCCEEDED";
  const bool by_itself = state.phase == Phase::kRunning || state.phase == Phase::kExamining;
  return by_itself ? "torchelastic.worker.status.FAILED" : "torchelastic.worker.status.TERMINATED";
}

RunEvent Ended(const WorkerEnded& ended, const SupervisorState& state) {
  RunEvent event = Named("worker.ended");
  if (state.round) Place(*state.round, ended.local_rank, event);
  event.fields.emplace_back("name", TorchName(ended, state));
  event.fields.emplace_back("pid", ended.pid);
  event.fields.emplace_back("seconds", std::int64_t{ended.age.count() / 1000});
  event.fields.emplace_back("exit_code", std::int64_t{ExitCodeOf(ended.outcome)});
  if (const auto* signaled = std::get_if<Signaled>(&ended.outcome))
    event.fields.emplace_back("signal", SignalName(signaled->signal));
  if (const auto* failed = std::get_if<SpawnFailed>(&ended.outcome))
    event.fields.emplace_back("reason", failed->message);
  return event;
}

RunEvent Hung(const WorkerHung& hung, const SupervisorState& state) {
  RunEvent event = Named("worker.hung");
  if (state.round) Place(*state.round, hung.local_rank, event);
  event.fields.emplace_back("pid", hung.pid);
  event.fields.emplace_back("seconds", std::int64_t{hung.hang.silent.count() / 1000});
  if (hung.hang.step >= 0) event.fields.emplace_back("step", hung.hang.step);
  if (!hung.hang.section.empty()) event.fields.emplace_back("section", hung.hang.section);
  return event;
}

RunEvent Left(const WorkerLeft& left, const SupervisorState& state) {
  RunEvent event = Named("worker.left");
  if (state.round) Place(*state.round, left.local_rank, event);
  event.fields.emplace_back("pid", left.pid);
  event.fields.emplace_back("reason", left.error);
  return event;
}

RunEvent WithReason(const char* name, const std::string& reason) {
  RunEvent event = Named(name);
  event.fields.emplace_back("reason", reason);
  return event;
}

RunEvent Notice(const char* name, std::chrono::milliseconds remaining, const std::string& reason) {
  RunEvent event = WithReason(name, reason);
  event.fields.emplace_back("seconds", std::int64_t{remaining.count() / 1000});
  return event;
}

RunEvent Started(const Start& start) {
  RunEvent event = Named("round.started");
  event.run_id = start.run_id;
  event.round = start.round;
  event.node_rank = start.node_rank;
  event.fields.emplace_back("nodes", std::int64_t{start.node_count});
  event.fields.emplace_back("world_size", std::int64_t{start.world_size});
  event.fields.emplace_back("restarts", std::int64_t{start.restart_count});
  return event;
}

RunEvent Finished(const Verdict& verdict) {
  RunEvent event = Named("run.finished");
  event.round = verdict.round;
  event.fields.emplace_back("success", verdict.success);
  if (verdict.cause) {
    AddFailure(*verdict.cause, event);
  } else {
    event.fields.emplace_back("exit_code", std::int64_t{verdict.exit_code});
  }
  event.fields.emplace_back("restarts", std::int64_t{verdict.restart_count});
  return event;
}

}  // namespace

std::optional<RunEvent> EventOf(const Event& event, const SupervisorState& state) {
  return std::visit(
      Overloaded{
          [](const Connecting& e) -> Maybe { return WithReason("service.unreached", e.reason); },
          [](const Reconnecting& e) -> Maybe { return WithReason("service.lost", e.reason); },
          [](const Reconnected&) -> Maybe { return Named("service.returned"); },
          [](const Accepted&) -> Maybe { return Named("node.joined"); },
          [&](const Waiting& e) -> Maybe {
            return state.workers_live ? WithReason("ranks.wait", e.reason)
                                      : WithReason("node.waiting", e.reason);
          },
          [](const StandBy&) -> Maybe { return Named("node.stands_by"); },
          [&](const Start& start) -> Maybe {
            // Repeated after the connection broke.
            if (state.round && state.round->round == start.round) return std::nullopt;
            return Started(start);
          },
          [](const Stop& stop) -> Maybe {
            RunEvent broken = Named("round.broken");
            broken.round = stop.round;
            AddFailure(stop.cause, broken);
            return broken;
          },
          [](const Finish& finish) -> Maybe { return Finished(finish.verdict); },
          [](const Refused& refused) -> Maybe {
            return WithReason("node.refused", std::string(refused.status.message()));
          },
          [](const SessionEnded& ended) -> Maybe {
            if (ended.status.ok()) return std::nullopt;
            return WithReason("service.ended", std::string(ended.status.message()));
          },
          [&](const WorkerEnded& ended) -> Maybe { return Ended(ended, state); },
          [&](const WorkerHung& hung) -> Maybe { return Hung(hung, state); },
          [&](const WorkerLeft& left) -> Maybe { return Left(left, state); },
          [](const WorkersCanBeKept&) -> Maybe { return std::nullopt; },
          [](const StacksRead&) -> Maybe { return std::nullopt; },
          [&](const LeftBehind& e) -> Maybe {
            RunEvent left = WithReason("workers.left_behind", absl::StrJoin(e.processes, ", "));
            if (state.round) left.round = state.round->round;
            if (e.signal != 0) left.fields.emplace_back("signal", SignalName(e.signal));
            return left;
          },
          [&](const AllGone&) -> Maybe {
            RunEvent gone = Named("workers.gone");
            if (state.round) gone.round = state.round->round;
            return gone;
          },
          [](const SignalReceived& e) -> Maybe {
            RunEvent signal = Named("signal.received");
            signal.fields.emplace_back("signal", SignalName(e.signal));
            return signal;
          },
          [](const HealthChecked& e) -> Maybe {
            if (e.healthy) return std::nullopt;
            RunEvent unhealthy = Named("node.unhealthy");
            unhealthy.fields.emplace_back("reason", e.reason);
            return unhealthy;
          },
          [](const NoticeGiven& e) -> Maybe {
            return Notice("notice.received", e.remaining, e.reason);
          },
          [](const NoticeWithdrawn& e) -> Maybe {
            return WithReason("notice.withdrawn", e.reason);
          },
          [](const WorkersSaved&) -> Maybe { return std::nullopt; },
          [&](const Preemption& e) -> Maybe {
            // Repeated after the connection broke, or over.
            if (state.notice_number == e.number || e.remaining.count() <= 0) return std::nullopt;
            RunEvent notice = Notice("node.notice", e.remaining, ToSentence(e));
            notice.fields.emplace_back("notice_host", e.host);
            return notice;
          },
          [](const WardenLost&) -> Maybe { return Named("warden.lost"); },
          [](const ControlPipeLost&) -> Maybe { return Named("control_pipe.lost"); },
          [](const DeadlinePassed&) -> Maybe { return std::nullopt; },
      },
      event);
}

RunEvent WorkerStarted(const Start& start, int local_rank, std::int64_t pid) {
  RunEvent event = Named("worker.started");
  Place(start, local_rank, event);
  event.fields.emplace_back("pid", pid);
  return event;
}

RunEvent FaultInjected(const Start* start, int local_rank, const std::string& words) {
  RunEvent event = WithReason("fault", words);
  if (start != nullptr && local_rank >= 0) Place(*start, local_rank, event);
  return event;
}

RunEvent AgentEnded(int exit_code) {
  RunEvent event = Named("agent.ended");
  event.fields.emplace_back("exit_code", std::int64_t{exit_code});
  return event;
}

}  // namespace ddprun
