// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/worker_requests.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/collectives/collective_watch.h"
#include "launcher/placement/role_ranks.h"
#include "launcher/placement/worker_environ.h"

namespace ddprun {
namespace {

// Not valid: the workers share the stdin of ddprun.
OwnedFd OpenNoStdin(const WorkerStdin& worker_stdin) {
  if (worker_stdin.to == WorkerStdin::To::kShared) return {};
  return OwnedFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

WorkerRequests::WorkerRequests(const NodeConfig& config, WorkerTable& table, const Console& console)
    : config_(config),
      table_(table),
      console_(console),
      no_stdin_(OpenNoStdin(config.options.worker_stdin)),
      roles_(RolesOf(config.options, config.places)) {}

void WorkerRequests::BeginRound(const Start& start, const std::vector<std::string>& network) {
  start_ = start;
  network_ = network;
}

const std::string& WorkerRequests::RoleOf(int local_rank) const {
  return roles_[static_cast<std::size_t>(config_.place_of(local_rank).program)].name;
}

std::string WorkerRequests::CountingRole(int local_rank) const {
  return config_.options.ranks_by_role ? RoleOf(local_rank) : "";
}

WorkerEnv WorkerRequests::EnvironmentOf(int worker) const {
  WorkerEnv env;
  const int local_rank = table_.StandsFor(worker);
  SetRanks(start_, roles_, config_.options.ranks_by_role, local_rank, env);
  env.restart_count = start_.restart_count;
  env.max_restarts = start_.restarts_max;
  env.run_id = start_.run_id;
  env.error_file = table_[worker].error_file;
  env.agent_socket = config_.agent_socket(config_.place_of(local_rank).program);
  env.notify_socket = table_.progress().path(worker);
  env.agent_store = config_.options.worker_store != WorkerStore::kRank0;
  env.round = ToNumber(start_.round);
  env.one_round = HasOneRound(config_.options);
  env.console_is_terminal = console_.IsTerminal();
  return env;
}

// A temporary folder may have been cleaned since the last round.
bool WorkerRequests::WriteWatch() const {
  const bool any_python = std::any_of(config_.programs.begin(), config_.programs.end(),
                                      [](const Program& program) { return program.is_python; });
  return any_python && config_.options.hangs.flight_recorder &&
         WriteCollectiveWatch(WatchFolder()).ok();
}

SpawnRequest WorkerRequests::Base(int worker, const Place& place, std::vector<std::string> environ,
                                  const LogMux::WriteEnds& ends, int cgroup) const {
  const Program& program = config_.program_of(table_.StandsFor(worker));
  const int local_rank = table_.IsParked(worker) ? 0 : EnvironmentOf(worker).local_rank;
  return {.path = program.path,
          .argv = ArgumentsOf(program, local_rank),
          .environ = std::move(environ),
          .in = no_stdin_.get(),
          .out = ends.out.get(),
          .err = ends.err.get(),
          .cpus = place.cpus,
          .memory_nodes = place.memory_nodes,
          .signal_mask = config_.worker_signal_mask,
          .cgroup = cgroup};
}

std::vector<SpawnRequest> WorkerRequests::ForRanks(const std::vector<int>& local_ranks,
                                                   const std::vector<LogMux::WriteEnds>& ends,
                                                   int cgroup) {
  watches_collectives_ = WriteWatch();
  std::vector<SpawnRequest> requests;
  for (const int i : local_ranks)
    requests.push_back(ForRank(i, ends[static_cast<std::size_t>(i)], cgroup));
  return requests;
}

SpawnRequest WorkerRequests::ForRank(int local_rank, const LogMux::WriteEnds& ends, int cgroup) {
  Worker& worker = table_[local_rank];
  worker.started_on_wall = std::chrono::system_clock::now();
  // Not in the log folder, whose disk may hang, and in which an earlier run may have left one.
  worker.error_file = absl::StrCat(config_.temp_dir, "/error_", ToNumber(start_.round), "_",
                                   start_.rank_first + local_rank, ".json");
  // The run continues without these sockets, which few programs need.
  const std::string name = absl::StrCat(ToNumber(start_.round), "_", local_rank);
  if (absl::Status status = table_.progress().Open(config_.temp_dir, name, local_rank);
      !status.ok()) {
    table_.ReportMissingProgress(std::string(status.message()));
  }
  const Place& place = config_.place_of(local_rank);
  const WorkerEnv env = EnvironmentOf(local_rank);
  std::vector<std::string> environment = WorkerEnviron(OwnEnviron(), env, place, network_);
  if (watches_collectives_ && config_.program_of(local_rank).is_python)
    AddCollectiveWatch(WatchFolder(), environment);
  if (config_.options.hangs.flight_recorder) {
    worker.flight = AddFlightRecorder({.dumps = config_.temp_dir, .pipes = config_.shared_dir},
                                      absl::StrCat("flight_", name), env.rank, environment);
  }
  SpawnRequest request = Base(local_rank, place, std::move(environment), ends, cgroup);
  FitToRank(local_rank, request);
  return request;
}

bool WorkerRequests::HasStdin(int rank) const {
  const WorkerStdin& worker_stdin = config_.options.worker_stdin;
  return worker_stdin.to == WorkerStdin::To::kRank && worker_stdin.rank == rank;
}

const WorkerWrap* WorkerRequests::WrapOf(int local_rank) const {
  return FindWrap(config_.options.wraps, start_.rank_first + local_rank);
}

bool WorkerRequests::IsWrapped(int local_rank) const { return WrapOf(local_rank) != nullptr; }

bool WorkerRequests::NeedsOwnStart(int local_rank) const {
  return IsWrapped(local_rank) || HasStdin(start_.rank_first + local_rank);
}

// What this rank has that others have not.
void WorkerRequests::FitToRank(int local_rank, SpawnRequest& request) const {
  const int rank = start_.rank_first + local_rank;
  if (HasStdin(rank)) request.in = config_.worker_stdin;
  const WorkerWrap* wrap = WrapOf(local_rank);
  if (wrap == nullptr) return;
  std::vector<std::string> argv = WrapCommand(*wrap, rank, local_rank);
  argv.push_back(config_.program_of(local_rank).path);
  argv.insert(argv.end(), request.argv.begin() + 1, request.argv.end());
  request.path = argv.front();
  request.argv = std::move(argv);
  request.wrapped = true;
}

RoundBegins WorkerRequests::ForKept(int local_rank) const {
  RoundBegins begins{.round = ToNumber(start_.round),
                     .variables = ToEnviron(EnvironmentOf(local_rank))};
  for (const std::string& variable : network_)
    begins.variables.emplace_back(absl::StrSplit(variable, absl::MaxSplits('=', 1)));
  return begins;
}

absl::StatusOr<SpawnRequest> WorkerRequests::ForSpare(int worker, const std::string& name,
                                                      const LogMux::WriteEnds& ends, int cgroup) {
  if (absl::Status status = table_.progress().Open(config_.temp_dir, name, worker); !status.ok())
    return status;
  table_[worker].error_file = absl::StrCat(config_.temp_dir, "/error_", name, ".json");
  table_[worker].started_on_wall = std::chrono::system_clock::now();
  // Any CPU: which rank's place it takes is not known, only which program it runs.
  const Place& one = config_.place_of(table_.StandsFor(worker));
  Place place;
  place.threads = config_.places.front().threads;
  const bool gpus_are_shared =
      std::all_of(config_.places.begin(), config_.places.end(), [&one](const Place& other) {
        return other.program != one.program || other.visible_devices == one.visible_devices;
      });
  if (gpus_are_shared) place.visible_devices = one.visible_devices;
  std::vector<std::string> environment = ParkedEnviron(OwnEnviron(), EnvironmentOf(worker), place);
  if (WriteWatch() && config_.program_of(table_.StandsFor(worker)).is_python)
    AddCollectiveWatch(WatchFolder(), environment);
  return Base(worker, place, std::move(environment), ends, cgroup);
}

}  // namespace ddprun
