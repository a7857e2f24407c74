// SPDX-License-Identifier: Apache-2.0
// The flags of ddprun by topic. A flag is a row here and a member in options.h; reading, help,
// PET_<NAME>, --config, completion and the manual page follow. Pure.
#pragma once

#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/base/flags.h"
#include "launcher/base/limits.h"
#include "launcher/options/options.h"
#include "rendezvous/base/limits.h"

namespace ddprun {

// ---- Values of a type of their own (options_<topic>.cc)

void ReadInto(Reader& reader, const Flag& flag, const Value& value, StreamSpec& to);
void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::set<int>& to);
void ReadInto(Reader& reader, const Flag& flag, const Value& value, LogRotation& to);
void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::vector<int>& to);
void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::vector<ExitCodeRange>& to);
void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::vector<HostEntry>& to);
void ReadInto(Reader& reader, const Flag& flag, const Value& value, std::vector<WorkerWrap>& to);
void ReadInto(Reader& reader, const Flag& flag, const Value& value, WorkerStdin& to);

using ReadRunFlag = void(Reader& reader, const Flag& flag, const Value& value, Options& options);
ReadRunFlag ReadProcPerNode, ReadRole, ReadPreload, ReadNodes, ReadMasterAddr, ReadJournal,
    ReadRunId, CheckBackend, ReadRdzvConf, ReadGpus, ReadExports, ReadRestartDelay,
    ReadNoticeSignal, ReadPreemptNotice, ReadEndSignals, ReadTermTimeout, ReadFlightRecorder,
    ReadOutFilters, ReadErrFilters, ReadLinePrefix, NoteMonitorInterval, NoteStartMethod,
    ReadEventLogHandler, CheckLogsSpecs, NoteUseEnv;

// ---- What several flags of a topic mean together, after all have been read

void FinishHosts(Reader& reader, const Values& values, Options& options);
void FinishRestarts(Reader& reader, Options& options);
void FinishStopping(Reader& reader, Options& options);

// ---- Rows

using RunFlag = FlagOf<Options>;

template <typename Time>
constexpr std::int64_t InSeconds(Time time) {
  return std::chrono::seconds(time).count();
}
inline constexpr std::int64_t kJoinSecondsMax = 30 * 24 * 3600;
inline constexpr std::int64_t kHangSecondsMax = InSeconds(kHangTimeoutMax);
inline constexpr std::int64_t kTermSecondsMax = InSeconds(kTermTimeoutMax);
inline constexpr std::int64_t kRestartSecondsMax = InSeconds(kRestartTimeMax);
inline constexpr int kRestartsMax = 1'000'000;
inline constexpr int kSparesMax = 64;
inline constexpr int kPortMax = 65535;

inline constexpr const char* kProcPerNodeAliases[] = {"-ppn", "--ppn", "-npernode", "--npernode"};
inline constexpr const char* kTotalAliases[] = {"-np"};
inline constexpr const char* kNoticeFileAliases[] = {"--notice-on-file"};

inline constexpr RunFlag kWorkerFlags[] = {
    {"--nproc-per-node", "N|auto|gpu|cpu|xpu|npu",
     "Number of workers on this node (1), also -ppn and --npernode. gpu, xpu (Intel) and npu "
     "(Ascend): one a device; auto: one a device, without any one a CPU.",
     ReadProcPerNode, FlagTraits{.aliases = kProcPerNodeAliases}},
    {"--ntasks", "N",
     "Number of workers on all nodes together, also -np: with --nnodes, --nproc-per-node or hosts "
     "gives what is missing.",
     Sets<&Options::total_workers>,
     FlagTraits{
         .letter = 'n', .min = 1, .max = kNodesMax * kLocalWorldSizeMax, .aliases = kTotalAliases}},
    {"--role", "NAME[:COUNT]",
     "ROLE_NAME of the workers (default), and their number on this node. Another program of the "
     "run follows as \": --role NAME[:COUNT] PROGRAM ARGUMENTS\".",
     ReadRole},
    {"--ranks-by", "run|role",
     "Count RANK, WORLD_SIZE and LOCAL_RANK over the whole run, or in each role, which then has a "
     "store of its own (role if there are several programs).",
     Sets<&Options::ranks_by_role>},
    {"--module", nullptr, "PROGRAM is a Python module, as in python3 -m.", Sets<&Options::module>,
     Letter('m')},
    {"--no-python", nullptr, "Execute PROGRAM itself, even if it ends in .py.",
     Sets<&Options::no_python>},
    {"--run-path", nullptr,
     "Run the script PROGRAM by Python's runpy.run_path: its folder is not in sys.path.",
     Sets<&Options::run_path>},
    {"--preload", "MODULES",
     "Import these Python modules (torch,numpy) once on this node, and fork the workers from "
     "there.",
     ReadPreload},
    {"--wrap", "RANKS:COMMAND",
     "Run the programs of these ranks (0-3,8 or all) under a command: 0:\"gdb --args\"; %r is the "
     "rank. May be repeated.",
     Sets<&Options::wraps>, FlagTraits{.repeats = true}},
    {"--stdin", "RANK|none|shared",
     "Give stdin to this rank alone, to none, or to all, the first reader getting it (shared).",
     Sets<&Options::worker_stdin>},
};

inline constexpr RunFlag kAffinityFlags[] = {
    {"--numa-binding", "MODE",
     "Bind each worker to CPUs near its GPU: node, socket, exclusive or core-complex.",
     Sets<&Options::affinity, &AffinityOptions::numa_binding>,
     Choices(kNumaBindingNames, NumaBinding::kNode)},
    {"--gpus", "LIST", "Use only these of the visible GPUs: 0,2-3, GPU-..., MIG-...", ReadGpus},
    {"--gpus-per-worker", "N", "Give each worker N GPUs of its own (all workers see all GPUs).",
     Sets<&Options::affinity, &AffinityOptions::gpus_per_worker>, Between(1, kGpusMax)},
    {"--virtual-local-rank", nullptr,
     "Set LOCAL_RANK to 0 for all workers; each sees one GPU of its own.",
     Sets<&Options::affinity, &AffinityOptions::virtual_local_rank>},
};

inline constexpr RunFlag kRendezvousFlags[] = {
    {"--nnodes", "N", "Number of nodes (1), or MIN:MAX to start with the nodes that are there.",
     ReadNodes},
    {"--node-rank", "R", "Number of this node, 0 to N-1; node 0 hosts the rendezvous.",
     Sets<&Options::node_rank>, UpTo(kNodesMax - 1)},
    {"--rank-order", "join|host|topology",
     "Give nodes without --node-rank their ranks in this order: of joining ({}), of their host "
     "names (n2 before n10), of their places in the network.",
     Sets<&Options::rank_order>},
    {"--topology-file", "FILE",
     "Read these places from lines HOSTS PLACE, such as n[1-8] rack1 (DDPRUN_TOPOLOGY, else "
     "SLURM_TOPOLOGY_ADDR).",
     Sets<&Options::topology_file>},
    {"--master-addr", "ADDRESS", "Address of node 0.", ReadMasterAddr},
    {"--master-port", "PORT", "Port of node 0's rendezvous service (29500).",
     Sets<&Options::master_port>, UpTo(kPortMax)},
    {"--standalone", nullptr, "Run on this machine alone, without other nodes.",
     Sets<&Options::standalone>},
    {"--rdzv-id", "ID", "Name of the run, the same on all nodes.", ReadRunId},
    {"--rdzv-endpoint", "HOST[:PORT]",
     "Address of the rendezvous; hosted here if HOST is this machine (port 29400). Several with "
     "commas, of which one leads.",
     Sets<&Options::endpoint>},
    {"--journal", "PLACE",
     "etcd://HOST:PORT[,...][/PREFIX]: each machine of --rdzv-endpoint hosts a service, and "
     "another "
     "one leads when one is gone.",
     ReadJournal},
    {"--journal-tls-ca", "FILE", "Certificate authorities of etcd's members; else plain text.",
     Sets<&Options::journal_tls, &EtcdTlsFiles::ca>},
    {"--journal-tls-cert", "FILE", "Certificate for etcd, if it asks for one; with the next.",
     Sets<&Options::journal_tls, &EtcdTlsFiles::cert>},
    {"--journal-tls-key", "FILE", "Private key of that certificate.",
     Sets<&Options::journal_tls, &EtcdTlsFiles::key>},
    {"--standby-nodes", "K",
     "The first machine of --rdzv-endpoint hosts the service, and K more keep a copy: one of them "
     "takes its place after `ddpctl promote`.",
     Sets<&Options::standby_nodes>, UpTo(kServicesMax - 1)},
    {"--rdzv-backend", "NAME", "static or c10d, as torchrun has them: both mean ddprun's own.",
     CheckBackend},
    // Before the flags that override its keys.
    {"--rdzv-conf", "KEY=VALUE,...",
     "Settings of torchrun: join_timeout, last_call_timeout, keep_alive_interval, is_host.",
     ReadRdzvConf},
    {"--join-timeout", "SECONDS", "Time to wait for the other nodes ({}).",
     Sets<&Options::join_timeout>, UpTo(kJoinSecondsMax)},
    {"--last-call", "SECONDS", "With MIN:MAX: time to wait for more than MIN nodes ({}).",
     Sets<&Options::last_call>, UpTo(InSeconds(kLastCallMax))},
    {"--lease", "SECONDS",
     "Time without a heartbeat after which a node is lost ({}; at most 3600).",
     Sets<&Options::lease>, UpTo(InSeconds(kLeaseMax))},
    {"--local-addr", "ADDRESS",
     "Address at which the other nodes reach this one (found by the route to node 0).",
     Sets<&Options::local_addr>},
    {"--worker-store", "master|agent|rank0",
     "Who serves torch's TCPStore at MASTER_ADDR:MASTER_PORT: the agent of the first node "
     "({}), that of each node, or the program's rank 0.",
     Sets<&Options::worker_store>},
};

inline constexpr RunFlag kHostFlags[] = {
    {"--hosts", "HOST[:N],...",
     "Start a node on each host over ssh, with N workers; node[01-04]:8 names four hosts.",
     Sets<&Options::hosts, &HostOptions::hosts>, Letter('H')},
    {"--hostfile", "FILE", "Read the hosts from a file: one HOST, HOST:N or HOST slots=N a line.",
     Sets<&Options::hosts, &HostOptions::hostfile>},
    {"--srun", nullptr, "Start a node on each host of this Slurm allocation.",
     Sets<&Options::hosts, &HostOptions::srun>},
    {"--rsh", "COMMAND", "Run COMMAND HOST DDPRUN... instead of ssh (\"ssh -p 2222\").",
     Sets<&Options::hosts, &HostOptions::rsh>},
    {"--launch-agent", "COMMAND",
     "Command for ddprun on the hosts (the path of this ddprun, else the one in PATH there).",
     Sets<&Options::hosts, &HostOptions::launch_agent>},
    {"--wdir", "FOLDER", "Working folder on the hosts (this one).",
     Sets<&Options::hosts, &HostOptions::wdir>},
    {"--export", "NAME[=VALUE]",
     "Send this variable to the hosts, too; may be repeated. Variables of this machine are not "
     "sent.",
     ReadExports, FlagTraits{.letter = 'x', .repeats = true}},
};

template <auto member>
inline constexpr auto SetsPolicy = Sets<&Options::restarts, &RestartOptions::policy, member>;

inline constexpr RunFlag kRestartFlags[] = {
    {"--max-restarts", "N", "Restart all workers after a failure, up to N times ({}).",
     Sets<&Options::restarts, &RestartOptions::max_restarts>, UpTo(kRestartsMax)},
    {"--restart-window", "SECONDS", "Count only the restarts of the last SECONDS.",
     SetsPolicy<&RestartPolicy::window>, UpTo(kRestartSecondsMax)},
    {"--restart-reset", "SECONDS", "Restore all N restarts once the workers have run this long.",
     SetsPolicy<&RestartPolicy::reset>, UpTo(kRestartSecondsMax)},
    {"--no-progress-restarts", "N",
     "Restore all restarts when a round reaches a new step; end the run after N failures "
     "in a row without one.",
     SetsPolicy<&RestartPolicy::no_progress_max>, Between(1, kRestartsMax)},
    {"--no-restart-exit-codes", "LIST",
     "Do not restart if the first failing worker ended so: 2,77-80,SIGSEGV (126-127).",
     SetsPolicy<&RestartPolicy::never_codes>},
    {"--restart-exit-codes", "LIST", "Restart only if the first failing worker ended so.",
     SetsPolicy<&RestartPolicy::only_codes>},
    {"--restart-delay", "SECONDS[:MAX]", "Delay before each restart, doubled up to MAX (0).",
     ReadRestartDelay, UpTo(InSeconds(kRestartDelayMax))},
    {"--node-failures-max", "K", "Leave a node out that was the first to fail K times.",
     SetsPolicy<&RestartPolicy::node_failures_max>, Between(1, kNodeFailuresMax)},
    {"--on-join", "ACTION",
     "When a node joins a running round that has a place for it: grow (take it in, if the program "
     "can be kept), restart (all workers), standby ({}).",
     SetsPolicy<&RestartPolicy::on_join>, Choices("grow|restart|standby")},
    {"--spares", "K",
     "Keep K parked worker processes on this node, to take a dead worker's place at once, if the "
     "program can be kept ({}).",
     Sets<&Options::restarts, &RestartOptions::spares>, UpTo(kSparesMax)},
    {"--node-cooldown", "SECONDS", "Time after which that node may join again (never).",
     SetsPolicy<&RestartPolicy::node_cooldown>, UpTo(kRestartSecondsMax)},
    {"--health-check", "COMMAND|builtin[:LIST]",
     "Run this by sh -c before this node joins and before each restart; if it fails, the node "
     "stands aside (none). builtin: ddprun health, of all or of a list of gpu, disk, clock, "
     "network.",
     Sets<&Options::health, &HealthOptions::command>},
    {"--health-check-timeout", "SECONDS", "Time after which that command has failed ({}).",
     Sets<&Options::health, &HealthOptions::timeout>, UpTo(InSeconds(kHealthTimeoutMax))},
};

template <auto member>
inline constexpr auto SetsNotice = Sets<&Options::stopping, &StopOptions::notices, member>;

inline constexpr RunFlag kStopFlags[] = {
    {"--signals-to-handle", "NAME,...",
     "Signals that end the run (SIGTERM,SIGINT,SIGHUP,SIGQUIT); a second one kills the workers.",
     ReadEndSignals},
    {"--signal-scope", "worker|group",
     "Who gets the signal that ends workers: each worker alone (if ddprun runs Python), or its "
     "process group (else).",
     Sets<&Options::stopping, &StopOptions::signal_scope>},
    {"--forward-signals", "NAME,...",
     "Signals to pass on to each worker, such as SIGUSR1,SIGUSR2 (none).",
     Sets<&Options::stopping, &StopOptions::forwarded_signals>},
    {"--preempt-notice", "aws|gcp|azure|slurm|kubernetes|FILE",
     "Learn there that this machine will be taken away: all workers are told, and the node is "
     "drained once they have saved. FILE, also --notice-on-file: when it appears; a number in it "
     "is the time left in seconds (none).",
     ReadPreemptNotice, FlagTraits{.aliases = kNoticeFileAliases}},
    {"--notice-on-signal", "NAME,...", "Signals that are such a notice, too (none).",
     SetsNotice<&NoticeOptions::signals>},
    {"--notice-grace", "SECONDS", "Time left after a notice that does not say it ({}).",
     SetsNotice<&NoticeOptions::grace>, UpTo(InSeconds(kNoticeMax))},
    {"--notice-worker-signal", "NAME",
     "Signal to each worker that handles it when there is a notice, on any node (none).",
     ReadNoticeSignal},
    // Before the flags that override it.
    {"--term-timeout", "SECONDS", "Time between SIGTERM and SIGKILL when workers are stopped (30).",
     ReadTermTimeout, UpTo(kTermSecondsMax)},
    {"--shutdown-timeout", "SECONDS", "The same at the end of the run (--term-timeout).",
     Sets<&Options::stopping, &StopOptions::shutdown_timeout>, UpTo(kTermSecondsMax)},
    {"--restart-timeout", "SECONDS", "The same before a restart (--term-timeout).",
     Sets<&Options::stopping, &StopOptions::restart_timeout>, UpTo(kTermSecondsMax)},
    {"--leftover-timeout", "SECONDS",
     "Time for processes that workers left behind when all ended with 0, before SIGTERM ({}).",
     Sets<&Options::stopping, &StopOptions::leftover_timeout>, ZeroOrUpTo(kTermSecondsMax)},
};

inline constexpr RunFlag kHangFlags[] = {
    {"--hang-timeout", "SECONDS",
     "Time without progress after which a worker that reports progress hangs ({}; 0: never).",
     Sets<&Options::hangs, &HangOptions::hang_timeout>, ZeroOrUpTo(kHangSecondsMax)},
    {"--init-timeout", "SECONDS",
     "The same for a worker that has reported none since its start (0: no limit).",
     Sets<&Options::hangs, &HangOptions::init_timeout>, ZeroOrUpTo(kHangSecondsMax)},
    {"--heartbeat-timeout", "SECONDS",
     "Time without output and progress after which any worker hangs (0: never).",
     Sets<&Options::hangs, &HangOptions::heartbeat_timeout>, ZeroOrUpTo(kHangSecondsMax)},
    {"--on-hang", "kill|report",
     "After printing its stacks: fail the hung worker, or let it run ({}).",
     Sets<&Options::hangs, &HangOptions::on_hang>},
    {"--flight-recorder", "on|off",
     "Read in which collective of torch.distributed a worker is, from PyTorch's flight recorder "
     "(on).",
     ReadFlightRecorder},
    {"--evict-stragglers", nullptr,
     "Leave the run where a rank of this node is slower than its peers and a spare node stands "
     "by.",
     Sets<&Options::hangs, &HangOptions::evict_stragglers>},
};

inline constexpr RunFlag kLogFlags[] = {
    {"--log-dir", "DIR", "Write each worker's output to DIR/RUN/round_N/rank_R.",
     Sets<&Options::logs, &LogOptions::log_dir>},
    {"--redirects", "0-3|LR:0-3,...",
     "Write to files only: 1 stdout, 2 stderr, 3 both; for all workers or by local rank (0).",
     Sets<&Options::logs, &LogOptions::redirects>, Letter('r')},
    {"--tee", "0-3|LR:0-3,...", "Write to files and to the console; values as --redirects (0).",
     Sets<&Options::logs, &LogOptions::tee>, Letter('t')},
    {"--local-ranks-filter", "LR,...", "Show only these local ranks on the console.",
     Sets<&Options::logs, &LogOptions::local_ranks>},
    {"--duplicate-stdout-filters", "TEXT,...",
     "Copy lines of stdout with one of the texts (a comma is ,,) to filtered_stdout.log.",
     ReadOutFilters},
    {"--duplicate-stderr-filters", "TEXT,...", "The same for stderr.", ReadErrFilters},
    {"--log-line-prefix-template", "TEMPLATE",
     "Prefix of each line: ${role_name} ${local_rank} ${rank} ${hostname} ([rank] or "
     "[host:rank]).",
     ReadLinePrefix},
    {"--log-rotate", "SIZE[:FILES]",
     "Rotate a log file at SIZE (K, M, G); keep FILES of each (all).",
     Sets<&Options::logs, &LogOptions::rotation>},
    {"--log-fold", "auto|always|never",
     "Show equal lines of several ranks once, as \"ranks 0-63: ...\"; auto: on a terminal.",
     Sets<&Options::logs, &LogOptions::fold>},
    {"--log-time", "off|local|utc|relative",
     "Begin each line of a worker on the console with its time, or the seconds since the start "
     "({}).",
     Sets<&Options::logs, &LogOptions::time>},
};

inline constexpr RunFlag kObserveFlags[] = {
    {"--event-log", "FILE", "Write the events of this node to FILE as JSON lines; -: stdout.",
     Sets<&Options::observe, &ObserveOptions::event_log>},
    {"--metrics-port", "PORT", "Serve Prometheus metrics at http://ADDRESS:PORT/metrics.",
     Sets<&Options::observe, &ObserveOptions::metrics_port>, Between(1, kPortMax)},
    {"--metrics-addr", "ADDRESS", "Address of this host for the metrics ({}).",
     Sets<&Options::observe, &ObserveOptions::metrics_addr>},
    {"--detach", nullptr,
     "Run in the background: print the run's name and return once its first round has begun. "
     "ddpctl attach shows it.",
     Sets<&Options::detach>},
    {"--notify", "URL|COMMAND",
     "Send a message when the run starts, a rank fails, and it ends: to a webhook, as JSON or in "
     "the form of Slack, Discord or ntfy, or to a command's stdin, as JSON.",
     Sets<&Options::observe, &ObserveOptions::notify>},
    {"--notify-alive", "SECONDS", "With --notify, also say this often that the run goes on.",
     Sets<&Options::observe, &ObserveOptions::notify_alive>, UpTo(kNotifyAliveSecondsMax)},
    {"--web", "PORT",
     "Show the run as a page at this port of 127.0.0.1, on the node that has its service; 0: one "
     "that is free. The address is printed.",
     Sets<&Options::observe, &ObserveOptions::web_port>, UpTo(kPortMax)},
    {"--web-control", nullptr,
     "With --web, the page may stop the run and drain its nodes; else it only reads.",
     Sets<&Options::observe, &ObserveOptions::web_control>},
    {"--slurm-comment", nullptr,
     "Show how far the run is in the comment of its Slurm job (squeue -O comment), which is "
     "replaced "
     "every 30 s.",
     Sets<&Options::observe, &ObserveOptions::slurm_comment>},
};

inline constexpr RunFlag kVerdictFlags[] = {
    {"--verdict", "text|json", "Format of a failed run's verdict ({}); json: one line.",
     Sets<&Options::verdict, &VerdictOptions::form>},
    {"--verdict-file", "FILE", "Also write the verdict to FILE as JSON, on success too.",
     Sets<&Options::verdict, &VerdictOptions::file>},
    {"--termination-log", "FILE",
     "Also write a failed run's verdict to this existing file (in a pod /dev/termination-log).",
     Sets<&Options::verdict, &VerdictOptions::termination_log>},
};

inline constexpr RunFlag kTorchrunFlags[] = {
    {"--monitor-interval", "SECONDS", "No effect: the kernel reports a worker's end at once.",
     NoteMonitorInterval, UpTo(24 * 3600)},
    {"--start-method", "spawn|fork|forkserver", "No effect: it concerns Python functions.",
     NoteStartMethod},
    {"--event-log-handler", "null|console", "console: the same as --event-log /dev/stderr (null).",
     ReadEventLogHandler, Choices("null|console|dynamic_rendezvous")},
    {"--logs-specs", "NAME", "default; another one names a Python class, and is refused.",
     CheckLogsSpecs},
    {"--use-env", nullptr,
     "No effect: workers always have LOCAL_RANK. For a program that wants it as an argument, write "
     "'--local-rank=${local_rank}' after its name.",
     NoteUseEnv},
};

inline constexpr RunFlag kSettingsFlags[] = {
    {"--config", "FILE",
     "Read flags from YAML: KEY: VALUE, program: [...], env: {...}; the command line "
     "wins.",
     nullptr},
    {"--env-file", "FILE", "Read variables, KEY=VALUE lines; those of the environment win.",
     nullptr},
    {"--dry-run", nullptr, "Print what would run where, with which environment; start nothing.",
     Sets<&Options::dry_run>},
    {"--print-completion", "bash|zsh|fish|tcsh", "Print a completion script for that shell.",
     nullptr},
    {"--print-man", nullptr, "Print the manual page.", nullptr},
};

// ---- Topics

struct FlagTopic {
  const char* name;   // one word, for --help
  const char* title;  // a heading
  absl::Span<const RunFlag> flags;
};

// To add a topic, add a row here.
inline constexpr FlagTopic kFlagTopics[] = {
    {"workers", "Workers", kWorkerFlags},
    {"affinity", "CPUs and GPUs of the workers", kAffinityFlags},
    {"rendezvous", "Rendezvous of the nodes", kRendezvousFlags},
    {"hosts", "Starting all nodes with one command", kHostFlags},
    {"restarts", "Restarts", kRestartFlags},
    {"stopping", "Signals and stopping", kStopFlags},
    {"hangs", "Detecting hung workers", kHangFlags},
    {"logs", "Output and logs", kLogFlags},
    {"observe", "Detached runs, events and metrics", kObserveFlags},
    {"verdict", "Final report of a run", kVerdictFlags},
    {"security", "Authentication and encryption", kSecurityFlags<Options>},
    {"torchrun", "Compatibility with torchrun", kTorchrunFlags},
    {"settings", "Configuration files, dry run, completion, manual page", kSettingsFlags},
};

// The name of a flag of ddprun. One that no row has does not compile.
consteval FlagName operator""_flag(const char* name, std::size_t size) {
  for (const FlagTopic& topic : kFlagTopics) {
    for (const RunFlag& flag : topic.flags) {
      if (std::string_view(flag.name) == std::string_view(name, size)) return FlagName(flag.name);
    }
  }
  throw "no flag of ddprun has this name";
}

// ---- `ddprun doctor`, which accepts the flags of a run too

inline constexpr FlagOf<DoctorOptions> kDoctorFlags[] = {
    {"--timeout", "SECONDS", "Time to wait for the other nodes ({}).",
     Sets<&DoctorOptions::timeout>, UpTo(3600)},
    {"--json", nullptr, "Print JSON.", Sets<&DoctorOptions::json>},
    {"--python", "PROGRAM", "Also check the versions of torch and NCCL in this Python.",
     Sets<&DoctorOptions::python>},
};

}  // namespace ddprun
