// SPDX-License-Identifier: Apache-2.0
// The values of ddprun's flags: torchrun's flags with torchrun's meanings, and ddprun's own. Read
// by command_line/parse_options.h.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/base/flags.h"
#include "launcher/base/limits.h"
#include "launcher/options/hosts_list.h"
#include "launcher/options/log_specs.h"
#include "launcher/options/worker_wraps.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/etcd/etcd_address.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// ---- CPUs and GPUs of the workers

enum class NumaBinding { kNone, kNode, kSocket, kExclusive, kCoreComplex };
inline constexpr char kNumaBindingNames[] = "node|socket|exclusive|core-complex";
// The value of --numa-binding, as in torchrun; "none" if there is none.
std::string NumaBindingName(NumaBinding mode);

struct AffinityOptions {
  NumaBinding numa_binding = NumaBinding::kNone;
  std::vector<std::string> gpus;  // numbers and ids in the given order; empty: all visible GPUs
  int gpus_per_worker = 0;        // GPUs of its own for each worker; 0: every worker sees all GPUs
  bool virtual_local_rank = false;
};

// ---- `ddprun doctor`, which accepts the flags of a run too

struct DoctorOptions {
  std::chrono::milliseconds timeout = kDoctorTimeoutDefault;  // for the other nodes to join
  bool json = false;
  std::string python;    // empty: none is checked
  int nodes_wanted = 0;  // the number of nodes that -H has started; 0: --nnodes
};

// ---- Hung workers

enum class OnHang { kKill, kReport };

// 0: never.
struct HangOptions {
  // Without progress, of a worker that has reported some.
  std::chrono::milliseconds hang_timeout{0};
  std::chrono::milliseconds init_timeout{0};       // of one that has not, since its start
  std::chrono::milliseconds heartbeat_timeout{0};  // without a byte of output, or progress
  OnHang on_hang = OnHang::kKill;
  bool flight_recorder = true;  // of the workers is read
  bool evict_stragglers = false;
};

// ---- Starting all nodes with one command

struct HostOptions {
  std::vector<HostEntry> hosts;      // of -H
  std::string hostfile;              // empty: none; is read by ReadHostfile()
  bool srun = false;                 // the nodes are those of the Slurm allocation
  std::string rsh;                   // empty: ssh
  std::string launch_agent;          // empty: the same path as here, else ddprun in PATH
  std::string wdir;                  // empty: the same folder as here
  std::vector<std::string> exports;  // "NAME" or "NAME=VALUE"
  bool has_nnodes = false;           // --nnodes was given; else it is the number of hosts
  bool has_nproc = false;            // --nproc-per-node was given; else the slots decide
  // All other flags, from every source, as --flag=value for the nodes.
  std::vector<std::string> forwarded;

  // True if this ddprun is the head: it starts a ddprun on each node and no workers.
  bool asked() const { return !hosts.empty() || !hostfile.empty() || srun; }
};

// ---- The output of the workers

enum class LogFold {
  kAuto,  // only on a terminal: programs that read the output get every rank's line
  kAlways,
  kNever,
};

// Before each line of a worker on the console.
enum class LogTime {
  kOff,
  kLocal,     // date and time of this machine's zone
  kUtc,       // the same in UTC
  kRelative,  // seconds since ddprun began
};

struct LogOptions {
  std::string log_dir;        // empty: none was given
  StreamSpec redirects;       // to files only
  StreamSpec tee;             // to files, and to the console even if redirected
  std::set<int> local_ranks;  // shown on the console; empty: all
  std::vector<std::string>
      out_filters;  // lines that contain one of them are copied to another file
  std::vector<std::string> err_filters;  // the same for stderr
  // A template, or kTorchrunPrefix; absent: [rank], or [host:rank].
  std::optional<std::string> line_prefix;
  LogRotation rotation;
  LogFold fold = LogFold::kAuto;
  LogTime time = LogTime::kOff;
};

// ---- Events and metrics of a run

// The destination of torchrun's console handler.
inline constexpr char kEventLogStderr[] = "/dev/stderr";

struct ObserveOptions {
  std::string event_log;  // a file or "-"; empty: none
  std::optional<int> metrics_port;
  std::string metrics_addr = "127.0.0.1";
  bool slurm_comment = false;  // progress in the comment of the Slurm job
  std::string notify;          // a URL or a command (notify/notification.h); empty: none
  std::chrono::milliseconds notify_alive{0};  // 0: never
  std::optional<int> web_port;                // of a page of the run; 0: one that is free
  bool web_control = false;                   // the page may stop the run and drain its nodes
};

// ---- Restarts

struct RestartOptions {
  int max_restarts = 0;
  // The shell's exit codes for a program that cannot be run or is missing: no restart will find it.
  // Others are left to the user: 1 and 2 are what programs end with for any reason.
  RestartPolicy policy{.never_codes = {{126, 127}}};
  int spares = 0;  // parked workers of this node
};

// ---- Is this node fit for a round?

struct HealthOptions {
  std::string command;  // for sh -c, or "builtin[:LIST]" (health_options.h); empty: none
  std::chrono::milliseconds timeout = kHealthTimeoutDefault;
};

// ---- Stopping workers

// Where --preempt-notice looks.
enum class NoticeSource { kNone, kAws, kGcp, kAzure, kSlurm, kKubernetes, kFile };

// Notices of preemption: this machine will be taken away.
struct NoticeOptions {
  NoticeSource source = NoticeSource::kNone;
  std::string file;                                       // of kFile: whose appearance is one
  std::vector<int> signals;                               // that are one
  std::chrono::milliseconds grace = kNoticeGraceDefault;  // the time that is left then
  int worker_signal = 0;                                  // to each worker on a notice; 0: none
};

// Who gets the signal that ends a worker: its process alone, or its process group. kAuto: the
// process alone where ddprun itself runs Python, whose data loaders would die of the signal before
// the program can save; else the group, because a shell acts on a signal only when its child has
// ended.
enum class SignalScope { kWorker, kGroup, kAuto };

struct StopOptions {
  // That end the run: torchrun's.
  std::vector<int> end_signals = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
  std::vector<int> forwarded_signals;  // only forwarded to the workers
  NoticeOptions notices;
  // All that do not end the run.
  std::vector<int> passed_signals() const {
    std::vector<int> passed = forwarded_signals;
    passed.insert(passed.end(), notices.signals.begin(), notices.signals.end());
    return passed;
  }
  // Between SIGTERM and SIGKILL at the run's end, and before another round.
  std::chrono::milliseconds shutdown_timeout = kTermTimeoutDefault;
  std::chrono::milliseconds restart_timeout = kTermTimeoutDefault;
  SignalScope signal_scope = SignalScope::kAuto;
  // For what workers that ended with 0 left behind, to end by itself before SIGTERM.
  std::chrono::milliseconds leftover_timeout = kLeftoverTimeoutDefault;
};

// The longest time between the order to stop and the end of a node's last process.
std::chrono::milliseconds StopTimeout(const StopOptions& options);
// That the head of a run orders a node to stop with: SIGTERM, unless it is a notice there.
int StopSignal(const StopOptions& options);

// ---- The final report of a run

enum class VerdictForm { kText, kJson };

struct VerdictOptions {
  VerdictForm form = VerdictForm::kText;  // on stderr
  std::string file;                       // as JSON; empty: none
  // Kubernetes' termination message; empty: none.
  std::string termination_log;
  bool in_pod = false;  // termination_log is Kubernetes' default, and may be missing
  // TORCHELASTIC_ERROR_FILE: the failure record for the launcher that started this ddprun; empty:
  // none.
  std::string record_file;
};

// ---- All of them

// Who serves torch's TCPStore to the workers.
enum class WorkerStore {
  kMaster,  // the agent of rank 0's node, to the workers of all nodes
  kAgent,   // each agent to the workers of its own node
  kRank0,   // rank 0 itself
};

// kGpu: NVIDIA's or AMD's, as torch.cuda has both; kXpu: Intel's; kNpu: Ascend's.
enum class ProcPerNode { kNumber, kAuto, kGpu, kCpu, kXpu, kNpu };

// Who has the stdin of ddprun.
struct WorkerStdin {
  enum class To {
    kShared,
    kNone,
    kRank
  } to = To::kShared;  // kShared: all, the first reader gets it
  int rank = 0;        // with kRank
};

// A program and its workers. Those of several programs follow each other on each node, in the order
// of the command line.
struct ProgramSection {
  std::string role = "default";
  std::optional<int> workers;  // on each node; absent: --nproc-per-node
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::vector<std::string> program;  // with its arguments
};

// The first program is the options' own.
struct Options : ProgramSection {
  int nodes = 1;      // the maximum: N of --nnodes N
  int nodes_min = 1;  // the minimum; the same unless --nnodes MIN:MAX
  ProcPerNode proc_per_node = ProcPerNode::kNumber;
  int proc_per_node_number = 1;
  std::optional<int> total_workers;  // of the run: -n
  std::optional<int> node_rank;
  // False: node_rank only says who hosts the rendezvous. The head of the run or Slurm has given it,
  // and --rank-order orders the nodes.
  bool asks_for_rank = true;
  RankOrder rank_order = RankOrder::kJoin;
  std::string topology_file;  // of lines HOST PLACE; empty: none
  std::optional<std::string> master_addr;
  std::optional<int> master_port;
  bool standalone = false;
  std::optional<bool> is_host;  // absent: the node that has the endpoint's address
  std::string run_id;           // empty: none was given
  std::optional<Endpoint> endpoint;
  // In etcd: each machine of the endpoint has a service, of which one leads. Empty: none.
  std::string journal;
  EtcdTlsFiles journal_tls;
  int standby_nodes = 0;  // so many services of the endpoint copy the journal of the one that leads
  std::string local_addr;  // empty: found by the route to the service
  std::vector<ProgramSection> more_programs;
  // RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE are counted in a role, and each role has a
  // store of its own.
  bool ranks_by_role = false;
  WorkerStore worker_store = WorkerStore::kMaster;
  std::chrono::milliseconds join_timeout = kJoinTimeoutDefault;
  std::chrono::milliseconds last_call = kLastCallDefault;
  std::chrono::milliseconds lease = kLeaseDefault;
  AffinityOptions affinity;
  RestartOptions restarts;
  HealthOptions health;
  StopOptions stopping;
  HangOptions hangs{.hang_timeout = kHangTimeoutDefault};
  LogOptions logs;
  ObserveOptions observe;
  VerdictOptions verdict;
  SecurityOptions security;
  HostOptions hosts;
  std::optional<DoctorOptions> doctor;  // `ddprun doctor`: nothing is started
  bool logs_events_to_console = false;  // events go to stderr, as torchrun's do
  std::vector<WorkerWrap> wraps;        // of different ranks
  WorkerStdin worker_stdin;
  std::vector<std::string> preload;  // Python modules that a fork server imports
  std::vector<std::pair<std::string, std::string>> variables;  // of files, to be set
  std::string token_env_file;  // the .env file that has the run's secret; empty: none
  bool dry_run = false;
  bool detach = false;  // the run goes on in the background
  // Of a run of one node that is detached or has a page, whose service nobody else can reach: the
  // path of a socket at which commands of this user ask it. Empty: none.
  std::string service_socket;
  // Printed before the run starts, and printed only on request
  // (LOGLEVEL=INFO, --dry-run): flags that have no effect.
  std::vector<std::string> warnings;
  std::vector<std::string> notes;
};

inline std::vector<const ProgramSection*> SectionsOf(const Options& options) {
  std::vector<const ProgramSection*> sections = {&options};
  for (const ProgramSection& section : options.more_programs) sections.push_back(&section);
  return sections;
}

// True if the nodes communicate over TCP: a single node needs no secret.
inline bool UsesNetwork(const Options& options) {
  return options.nodes > 1 || (options.endpoint.has_value() && !options.standalone);
}

// True if no restart is allowed and no node may join or leave: no other round follows the first.
inline bool HasOneRound(const Options& options) {
  return options.restarts.max_restarts == 0 && options.nodes == options.nodes_min;
}

}  // namespace ddprun
