// SPDX-License-Identifier: Apache-2.0
// Every limit and waiting time of the launcher room, in one place, with the reason for its size.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace ddprun {

// A longer line is shown in pieces: a worker that never ends its line must not fill the agent's
// memory.
inline constexpr std::size_t kLineBytesMax = 1u << 20;
// What waits for a slow console, of each stream, in memory: a file would make heartbeats wait for
// its disk. Beyond it lines are left out and counted; the workers are never held up.
inline constexpr std::size_t kConsoleBacklogBytesMax = 64u << 20;
// Beyond it, for the agent's own words.
inline constexpr std::size_t kConsoleReserveBytes = 1u << 20;
// Written to the console at once where so much comes in one turn of the loop; a piece of the
// backlog.
inline constexpr std::size_t kConsoleBatchBytes = 64u << 10;
// The end of a run waits for the console's reader as long as it takes something at least this
// often,
inline constexpr std::chrono::seconds kConsoleStallTimeout{3};
// but not for ever. A signal ends it, too.
inline constexpr std::chrono::minutes kConsoleFlushTimeout{10};

// What waits for a disk that is slow or full, of all log files of a node together.
inline constexpr std::size_t kLogQueueBytesMax = 64u << 20;
inline constexpr std::chrono::seconds kLogRetryInterval{1};
// A disk that does not answer in this time is not waited for when a round starts: below the lease.
inline constexpr std::chrono::seconds kLogOpenTimeout{2};
// The end of a run waits for a disk that writes nothing for this long,
inline constexpr std::chrono::seconds kLogStallTimeout{3};
// and for one that is slow.
inline constexpr std::chrono::minutes kLogFlushTimeout{2};
inline constexpr std::uint64_t kLogRotateBytesMin = 1u << 10;
inline constexpr std::uint64_t kLogRotateBytesMax = std::uint64_t{1} << 50;
inline constexpr int kLogRotateFilesMax = 1'000'000;
inline constexpr std::size_t kLinePrefixBytesMax = 256;

// For `ddpctl logs`. The newest lines of each worker that fit are kept, with or without a
// subscriber (a tenth of what the pipes of that worker may hold); a longer line is cut.
inline constexpr std::size_t kLogTailBytesMax = 64u << 10;
inline constexpr std::size_t kLogLineBytesMax = 16u << 10;
// The backlog of a slow subscriber, beyond what is under way to it (kLogWindowBytes); further lines
// are left out and counted.
inline constexpr std::size_t kLogPendingBytesMax = 256u << 10;

// The rank of --stdin: what is read from a terminal at once (a terminal holds 4096 bytes), and how
// often a ddprun in the background looks whether it is in the foreground.
inline constexpr std::size_t kStdinReadBytes = 4096;
inline constexpr std::size_t kHeadStdinReadBytes = 32u << 10;  // at once, for a node
inline constexpr std::chrono::milliseconds kStdinRetryInterval{500};

// Text without a line end (a progress bar, a prompt): after that a terminal shows it, as the end of
// most lines comes within it;
inline constexpr std::chrono::milliseconds kUnfinishedDelay{50};
// and so often, at most, it is a line elsewhere: often enough to see progress in a log, seldom
// enough to read the rest of it.
inline constexpr std::chrono::seconds kUnfinishedInterval{15};

// How long a line waits for equal lines of other workers: longer than the workers' skew after a
// collective, too short to be noticed.
inline constexpr std::chrono::milliseconds kFoldWindow{200};
inline constexpr std::size_t kFoldBytesMax = 4u << 20;
inline constexpr std::size_t kFoldLinesMax = 4096;

// ---- Disks that do not answer, where ddprun can continue without them

// A worker's failure record and core file: its end is reported without them then.
inline constexpr std::chrono::milliseconds kDiskAnswerTimeout{1000};
// Whether workers have left failure records, before they are signalled; the loop waits for the
// answer. The files are in the run's own folder.
inline constexpr std::chrono::milliseconds kRecordLookTimeout{200};
// A note is printed if the workers are not started by then because the disk of their program hangs.
inline constexpr std::chrono::seconds kSpawnNoticeDelay{10};
// The verdict as a file, when the run is over.
inline constexpr std::chrono::seconds kVerdictFileTimeout{3};
// The verdict in Kubernetes' termination message, of which the kubelet reads so many bytes.
inline constexpr std::size_t kTerminationMessageBytesMax = 4096;
// The last sentences of all, where stderr is a file.
inline constexpr std::chrono::milliseconds kConsoleNoticeTimeout{500};
// A worker's failure record; the rest of a longer one is not kept beside the log files.
inline constexpr std::size_t kRecordBytesMax = 1u << 20;

// ---- Workers

// The capacity of a worker's output pipe. With more, the pipes of a large node would use up what
// its user may have in all (/proc/sys/fs/pipe-user-pages-soft).
inline constexpr std::size_t kPipeBytes = 256u << 10;
// Read from one pipe at a time, so that one talkative worker does not starve the loop.
inline constexpr std::size_t kPipeReadBytes = 64u << 10;
// Read from a dead worker's pipe: more than any pipe holds, and an end where a grandchild still
// writes.
inline constexpr std::size_t kPipeDrainBytesMax = 2u << 20;

// As torchrun's default, so that a program has the same time to write a checkpoint.
inline constexpr std::chrono::seconds kTermTimeoutDefault{30};
inline constexpr std::chrono::hours kTermTimeoutMax{24};
// A process that SIGKILL does not end in this time hangs in the kernel.
inline constexpr std::chrono::seconds kKillTimeout{10};
// Frames that are shown of a process that hangs in the kernel; deeper ones are the same for all.
inline constexpr int kKernelStackLinesMax = 12;
// After this time a message says what ddprun waits for; a quick start prints nothing.
inline constexpr std::chrono::seconds kNoticeDelay{1};
// --health-check: how long it may take, and the time between two of a node that waits to join.
inline constexpr std::chrono::seconds kHealthTimeoutDefault{60};
inline constexpr std::chrono::minutes kHealthTimeoutMax{10};
inline constexpr std::chrono::seconds kHealthInterval{5};
// Of the output of such a command only the end is kept: its last line is named.
inline constexpr std::size_t kSideOutputBytes = 4096;
// --slurm-comment: each one is a call of Slurm's controller, which serves the whole cluster.
// Before the workers run there is nothing to say, and it is looked for again.
inline constexpr std::chrono::seconds kSlurmCommentInterval{30};
inline constexpr std::chrono::seconds kSlurmCommentLook{1};
inline constexpr std::chrono::seconds kSlurmCommentTimeout{20};
inline constexpr std::size_t kSlurmCommentBytesMax = 200;
// --notify: the time between two messages, for one to be taken, before the last one is tried again,
// and for that at the end of the run; the events that one message names, and its text; events that
// wait for the agent's loop.
inline constexpr std::chrono::seconds kNotifyInterval{30};
inline constexpr std::chrono::seconds kNotifyTimeout{10};
inline constexpr std::chrono::seconds kNotifyRetryInterval{1};
inline constexpr std::chrono::seconds kNotifyLastTimeout{3};
inline constexpr std::int64_t kNotifyAliveSecondsMax = 30 * 24 * 3600;
inline constexpr std::size_t kNotifyTextsMax = 20;
inline constexpr std::size_t kNotifyTextBytesMax = 1900;  // Discord takes 2000 characters
inline constexpr std::size_t kNotifyEventsMax = 256;
// Traces: the time between two requests, for one to be answered, and for the last ones at the end
// of the run; the spans that wait, those of one request, and a text of one.
inline constexpr std::chrono::seconds kTraceInterval{5};
inline constexpr std::chrono::seconds kTraceTimeout{10};
inline constexpr std::chrono::seconds kTraceLastTimeout{1};
inline constexpr std::size_t kTraceSpansMax = 2048;
inline constexpr std::size_t kTraceBatchMax = 512;
inline constexpr std::size_t kTraceTextBytesMax = 1024;
// Nodes that were refused are shown on node 0's console a line at a time, this often at most; as
// many as this wait for the event log.
inline constexpr std::chrono::seconds kRefusalInterval{5};
inline constexpr std::size_t kRefusalsMax = 64;
// Between two looks for the file of --preempt-notice: short beside the 30 s that clouds give, and a
// thread's start each.
inline constexpr std::chrono::seconds kNoticeFileInterval{1};
// A look that takes longer is reported; the next one waits for it.
inline constexpr std::chrono::seconds kNoticeFileTimeout{5};
// A number of seconds.
inline constexpr std::size_t kNoticeFileBytesMax = 64;
// Metadata servers of clouds (--preempt-notice): asked as often as AWS recommends; GCP's answers
// late by itself.
inline constexpr std::chrono::seconds kMetadataInterval{5};
inline constexpr std::chrono::seconds kGcpInterval{1};
// They are on the machine itself.
inline constexpr std::chrono::seconds kMetadataTimeout{2};
// Azure begins to collect events when it is first asked for them, which takes up to two minutes.
inline constexpr std::chrono::seconds kAzureFirstTimeout{130};
// A token, its question, one that has run out, and both again.
inline constexpr int kMetadataRequestsMax = 4;
inline constexpr std::size_t kMetadataTokenBytesMax = 4096;
inline constexpr std::size_t kMetadataTextBytesMax = 256;
inline constexpr int kHttpPort = 80;
// What GCP gives a spot machine, and at least before maintenance.
inline constexpr std::chrono::seconds kGcpPreemptionTime{30};
inline constexpr std::chrono::seconds kGcpMaintenanceTime{60};
// The machine's clock, by which Slurm's end is, may be set.
inline constexpr std::chrono::minutes kSlurmLookMax{1};
// As Kubernetes, GCP and Azure give it.
inline constexpr std::chrono::seconds kNoticeGraceDefault{30};
// Between two looks whether a worker has installed its handler for --notice-worker-signal.
inline constexpr std::chrono::milliseconds kNoticeHandlerInterval{500};
// Between the report that this node leaves and the service's verdict.
inline constexpr std::chrono::seconds kLeaveTimeout{2};
// `timeout` and job schedulers send one signal twice, to the process and to its group: an echo is
// not impatience.
inline constexpr std::chrono::milliseconds kSignalEchoTime{500};
// Between two attempts to resolve the master's name.
inline constexpr std::chrono::milliseconds kResolveRetryInterval{500};
// How long a warden whose agent was killed tries to tell the service, before it ends.
inline constexpr std::chrono::seconds kLossReportTimeout{3};
// A record of the kernel's log (the kernel's own limit), and how many are looked at when a worker
// was killed: a log that is flooded must not hold the agent up.
inline constexpr std::size_t kKernelLogRecordBytes = 8192;
inline constexpr int kKernelLogRecordsMax = 10'000;
// Lines of a traceback or message that are printed; the JSON verdict has all of them.
inline constexpr std::size_t kShownLinesMax = 24;
// A hung worker's stacks on a node: threads, frames of each thread, bytes in all, and the time to
// collect them (reading the symbols of a LibTorch takes a second or two).
inline constexpr std::size_t kStackThreadsMax = 64;
inline constexpr std::size_t kStackFramesMax = 64;
inline constexpr std::size_t kStacksBytesMax = 4u << 20;
inline constexpr std::chrono::seconds kStacksTimeout{15};
// Those stacks on the console, so that a hang fits on one screen: lines of the rank that hangs and
// of each other rank, ranks, frames of a thread, bytes of a line. Files have all of it.
inline constexpr std::size_t kStackLinesShown = 12;
inline constexpr std::size_t kStackLinesShownOfOthers = 4;
inline constexpr std::size_t kStackRanksShown = 4;
inline constexpr std::size_t kStackFramesShown = 5;
inline constexpr std::size_t kStackLineShown = 120;
// A dump of PyTorch's flight recorder (2 000 entries with their frames have a few MB), how long a
// worker that hangs has to write it (it looks once a second whether it is asked), and how often its
// file is looked at.
inline constexpr std::size_t kFlightDumpBytesMax = 32u << 20;
inline constexpr std::chrono::seconds kDumpTimeout{4};
inline constexpr std::chrono::milliseconds kDumpLookInterval{20};
// Python's frames, which are read from a process that may change or damage them meanwhile: its
// threads, including those that are shown; characters of a name; bytes of a table of lines; and
// attempts at a thread whose frames change while they are read.
inline constexpr std::size_t kPythonThreadsMax = 4096;
inline constexpr std::uint64_t kPythonNameCharsMax = 1024;
inline constexpr std::uint64_t kPythonLineTableBytesMax = 1u << 20;
inline constexpr int kPythonReadsMax = 5;
// A round's Stop that waits for the stacks is acted on after this long, whatever becomes of them.
inline constexpr std::chrono::seconds kStopHeldMax{20};
// For workers that report progress: above PyTorch's own 10 minutes for a collective, so that its
// message comes first, and long enough for a checkpoint or an evaluation without reports.
inline constexpr std::chrono::minutes kHangTimeoutDefault{30};
inline constexpr std::chrono::hours kHangTimeoutMax{24 * 7};
// Between two looks at the clock while workers are watched. An agent that finds itself late by
// kHangLateMax was stopped, or its machine was, and the workers with it: that time does not count.
inline constexpr std::chrono::seconds kHangLookInterval{1};
inline constexpr std::chrono::seconds kHangLateMax{2};
// The time of a worker whose last report is older counts as that report has it.
inline constexpr std::chrono::seconds kRankQuietTime{1};
// A rank that failed in a collective is reported only when its peers have failed too, which takes
// one after the other with it, and each says in which collective: so long after the last of them,
// and never later than the second time.
inline constexpr std::chrono::milliseconds kPeersSpeakTimeout{500};
inline constexpr std::chrono::seconds kPeersSpeakMax{2};
// Messages that are read of a worker in one turn of the loop.
inline constexpr int kProgressMessagesMax = 64;
// A spare worker that has not been started so long after the other workers of its round have ended
// is given up: the disk of its program hangs.
inline constexpr std::chrono::seconds kSpareStartTimeout{5};
// Parked workers that end one after another without being of use, before no other is started.
inline constexpr int kParkedFailuresMax = 3;
// For the modules of --preload, from a slow file server too; workers that import them themselves
// need as long.
inline constexpr std::chrono::seconds kPreloadTimeout{120};
inline constexpr std::size_t kPreloadModulesMax = 64;
// What the modules print while they are imported; of more only the end is kept.
inline constexpr std::size_t kPreloadOutputBytesMax = 64u << 10;
// For the fork server to fork a worker, which takes milliseconds; then another process is started.
inline constexpr std::chrono::seconds kForkTimeout{10};
// A reply is a process number or a sentence.
inline constexpr std::size_t kForkReplyBytesMax = 1024;
// Between the end of a connection to the fork server and the news of its own end.
inline constexpr std::chrono::seconds kForkServerEndTimeout{1};
// Fork servers that fail one after another without having forked a worker, before no other is
// started.
inline constexpr int kForkServerFailuresMax = 3;
// How long an agent whose warden or keeper was killed has to end by itself, which it does at once.
inline constexpr std::chrono::milliseconds kGuardTimeout{400};
// By how much the times that a file server gives its files may be behind this machine's clock.
inline constexpr std::chrono::seconds kFileClockErrorMax{5};
// For killing and reaping what workers left behind.
inline constexpr std::chrono::seconds kSweepTimeout{5};
// Between two looks for what is left while the agent does other things.
inline constexpr std::chrono::milliseconds kSweepInterval{50};
// The same by the guards of an agent that has ended by itself, and has named what it could not end.
inline constexpr std::chrono::seconds kLastSweepTimeout{1};

// For what workers that ended with 0 left behind: the end of a checkpoint's upload. What does not
// end by itself (a server in the background) delays the end of the run by as much.
inline constexpr std::chrono::seconds kLeftoverTimeoutDefault{5};
// Between SIGTERM and SIGKILL to what has not ended by then.
inline constexpr std::chrono::seconds kLeftoverTermTimeout{3};
// Processes that one sentence names, and the bytes of a command line that it shows.
inline constexpr std::size_t kShownProcessesMax = 8;
inline constexpr std::size_t kShownCommandBytesMax = 80;

// A machine has far fewer; a list of them must not grow without end.
inline constexpr int kGpusMax = 1024;
// A configuration file of NCCL's is a few lines; of a longer one the rest is not looked at.
inline constexpr std::size_t kNcclConfBytesMax = 64u << 10;
// Numbers of CPUs are below this: the kernel's own largest configuration has 8192.
inline constexpr int kCpusMax = 1 << 16;

// Timeout of `ddprun status`, as a probe would set it.
inline constexpr std::chrono::seconds kStatusTimeoutDefault{5};

// --watch: time between two requests, and for an answer without a screen, which delays Ctrl-C.
inline constexpr std::chrono::seconds kWatchIntervalDefault{1};
inline constexpr std::chrono::milliseconds kWatchTimeoutMax{1000};

// `ddpctl top`: the values of a sparkline, events, and lines of a text that it keeps (a log grows);
// the lines that a log begins with.
inline constexpr std::size_t kTopHistoryMax = 240;
inline constexpr std::size_t kTopEventsMax = 100;
inline constexpr std::size_t kTopTextLinesMax = 5000;
inline constexpr std::size_t kTopFilterBytesMax = 64;
inline constexpr int kTopLogLines = 200;
// Its requests: not more often, even if --interval is 0; and threads that wait for an answer, the
// status and the events among them.
inline constexpr std::chrono::milliseconds kTopIntervalMin{100};
inline constexpr int kTopQuestionsMax = 10;
// News that are not shown yet; a thread that has more waits.
inline constexpr std::size_t kTopNewsMax = 1000;

// `ddpctl logs`: lines, as tail has them; and bytes that it holds to sort the nodes' answers before
// it shows them as they come.
inline constexpr int kLogsLinesDefault = 10;
inline constexpr std::size_t kLogsHeldBytesMax = 64u << 20;
// With -f, for a service that is started again or that another one takes over from.
inline constexpr std::chrono::seconds kLogsLostTimeout{60};
inline constexpr std::chrono::milliseconds kLogsAskAgainMax{1000};
// `ddpctl stop --wait`: twice the workers' default grace, and some more.
inline constexpr std::chrono::seconds kStopWaitDefault{120};

// A file of --config or --env-file.
inline constexpr std::size_t kSettingsFileBytesMax = 1u << 20;
// ---- All nodes by one command (ddprun -H)

// ssh gives a host up that does not answer by then.
inline constexpr std::chrono::seconds kSshConnectTimeout{10};
// ssh ends a connection that is silently dead after kSshAliveCount of these.
inline constexpr std::chrono::seconds kSshAliveInterval{5};
inline constexpr int kSshAliveCount = 3;
// Logging in costs this machine a process and some cryptography a host.
inline constexpr int kHostsStartingMax = 64;
// After this time a message names the hosts that are waited for; ssh alone takes most of a second.
inline constexpr std::chrono::seconds kHostsNoticeDelay{5};
// The nodes' own verdict is better than the head's; it is awaited this long after a node is gone.
inline constexpr std::chrono::seconds kHostsVerdictTimeout{2};
// Between the order to stop, or the loss of the control pipe, and the end of the transport.
inline constexpr std::chrono::seconds kHostEndTimeout{5};
// Output lines of a host before its ddprun's first message, kept for the error sentence.
inline constexpr std::size_t kHostWordsMax = 20;
// A line of a node: the longest of a worker's with its mark, srun's label and a prefix that may
// name thousands of ranks; or an escaped verdict.
inline constexpr std::size_t kHostLineBytesMax = kLineBytesMax + (64u << 10);
inline constexpr std::size_t kVerdictBytesMax = 128u << 10;
// Sentences of nodes that are remembered, so that what all say is shown once.
inline constexpr std::size_t kNotesRememberedMax = 1024;
// The setup of a node that it reads from its stdin.
inline constexpr std::size_t kSetupBytesMax = 8u << 20;
inline constexpr std::size_t kHostfileBytesMax = 8u << 20;
// Hosts that a list names in all, each mention counted: 1 000 000 take a tenth of a second, and a
// short text of ranges could name billions.
inline constexpr std::size_t kHostMentionsMax = 1'000'000;
// Ranges in one name: clusters number racks, chassis and nodes.
inline constexpr int kHostNameRangesMax = 8;
// Numbers that a list of ranges ("0-3,8") names in all: above any machine's CPUs, any node's GPUs
// and any world's ranks.
inline constexpr std::size_t kRangeNumbersMax = 2'000'000;
// A node whose head is gone ends its workers: SIGTERM, and SIGKILL after this long. Short, since
// the head may have been killed to have everything off the machines.
inline constexpr std::chrono::milliseconds kControlPipeGrace{500};
// To report that this node leaves, if nothing reads its verdict.
inline constexpr std::chrono::milliseconds kControlPipeLeaveTimeout{100};
// An agent that has not acted on its control pipe's end by then (it is stopped, it hangs) is killed
// by the keeper, and a keeper that has not by the warden.
inline constexpr std::chrono::milliseconds kControlPipeKeeperTimeout{750};
inline constexpr std::chrono::milliseconds kControlPipeWardenTimeout{850};

// ---- ddprun doctor

// For the other nodes to come: a person starts them one after the other.
inline constexpr std::chrono::seconds kDoctorTimeoutDefault{10};
// All facts of a node are a few kilobytes; its environment is cut to fit.
inline constexpr std::size_t kFactsBytesMax = 256u << 10;
inline constexpr std::size_t kFactVariablesMax = 1024;
inline constexpr std::size_t kFactValueBytesMax = 256;
// The report that node 0 sends to the other nodes.
inline constexpr std::size_t kReportBytesMax = 2u << 20;
// For the others' facts, and again for what they have measured, once all have come.
inline constexpr std::chrono::seconds kDoctorStepTimeout{10};
// For the service to end this node's session, after all results have been exchanged.
inline constexpr std::chrono::seconds kDoctorLeaveTimeout{3};
// Below this number each node connects to each other one.
inline constexpr int kProbeAllNodesMax = 16;
// A connection between hosts takes milliseconds, or a second where the first packet is lost.
inline constexpr std::chrono::milliseconds kProbeConnectTimeout{2500};
inline constexpr std::chrono::seconds kProbeAnswerTimeout{2};
// Questions to each node: enough for a median, done in a millisecond.
inline constexpr int kProbeQuestions = 21;
// Enough for TCP to find its speed within a building; a link of less than 0.5 Gbit/s is measured
// for the time instead, and needs less.
inline constexpr std::size_t kProbeBytes = 64u << 20;
inline constexpr std::chrono::milliseconds kProbeSendTime{1000};
inline constexpr std::size_t kProbeBlockBytes = 256u << 10;
// Each node has few that connect to it, but for node 0, to which all do.
inline constexpr std::size_t kProbeConnectionsMax = 16'384;
// For the program of --python to say what it has installed.
inline constexpr std::chrono::seconds kPythonTimeout{10};
inline constexpr std::size_t kPythonBytesMax = 64u << 10;
// A library in which a version is looked for, or a program that is hashed; the rest is left out.
inline constexpr std::uint64_t kHashedBytesMax = std::uint64_t{1} << 30;

// ---- Chaos

// A slice of a worker that is slowed down: it runs for one and is stopped for one.
inline constexpr std::chrono::milliseconds kChaosSlice{10};
// What a worker's connection sends in a second while the network is slow.
inline constexpr std::uint64_t kChaosBytesPerSecond = 1'000'000;
// Faults of a node that last, and sockets of a worker that are looked at.
inline constexpr std::size_t kChaosLastingMax = 64;
inline constexpr std::size_t kChaosSocketsMax = 4096;
// After a fault a node reports the progress of its workers this often, for so long: the time until
// training goes on is then known to this precision.
inline constexpr std::chrono::milliseconds kChaosReportInterval{50};
inline constexpr std::chrono::seconds kChaosReportTime{30};
// How often the status is asked for while a fault has not been followed by a new step, and else.
inline constexpr std::chrono::milliseconds kChaosPollInterval{25};
inline constexpr std::chrono::milliseconds kChaosIdleInterval{100};
// At the end, for a new step after the last fault.
inline constexpr std::chrono::seconds kChaosLastStepTimeout{60};
// A service that does not answer for so long is not waited for.
inline constexpr std::chrono::seconds kChaosServiceTimeout{60};
inline constexpr std::chrono::seconds kChaosIntervalDefault{5};
// How old the steps are that a node reports: workers report them at most every 100 ms.
inline constexpr std::chrono::milliseconds kChaosStepAge{150};
inline constexpr int kChaosFaultsMax = 1'000'000;

// ---- Kubeflow Trainer

// Between two requests, as its documentation asks.
inline constexpr std::chrono::seconds kTrainerInterval{5};
inline constexpr std::chrono::seconds kTrainerRequestTimeout{5};
// At the run's end, for the last request.
inline constexpr std::chrono::seconds kTrainerLastWait{2};
// A name or a value of a metric: the API's limit.
inline constexpr std::size_t kTrainerTextBytesMax = 64;
// A service account's token; they have 1 to 2 KB.
inline constexpr std::size_t kTrainerTokenBytesMax = 64u << 10;
// Of an answer over HTTP; of a metadata server's it is some hundred bytes.
inline constexpr std::size_t kHttpAnswerBytesMax = 64u << 10;

// ---- Detached runs

// Of the output that is kept of a run, and of the files that it is kept in: the oldest file goes
// first.
inline constexpr std::uint64_t kRunOutputBytesMax = 64u << 20;
inline constexpr std::uint64_t kRunSegmentBytesMax = 4u << 20;
// A connection that breaks after each few KB still brings a reader on.
inline constexpr std::size_t kRunFrameBytesMax = 1024;
// Runs whose folders are kept, the live ones not counted: at most 2 GB.
inline constexpr std::size_t kRunsKeptMax = 32;
// Kept free for the record of a run's end, which is longer than that only where its command is.
inline constexpr std::size_t kRunReserveBytes = 16u << 10;
inline constexpr std::size_t kRunRecordBytesMax = 4u << 20;  // a command line may have 2 MB
// Of its events, in each of two files, and of its verdict as JSON.
inline constexpr std::size_t kRunEventsBytesMax = 1u << 20;
inline constexpr std::size_t kRunVerdictBytesMax = 256u << 10;
// Of the end of its output in a capsule.
inline constexpr std::size_t kCapsuleOutputBytesMax = 1u << 20;
// Of ddpctl web: what a page keeps and shows (500 events are kept by the service), and of a run's
// lines.
inline constexpr std::size_t kWebPointsMax = 2000;
inline constexpr std::size_t kWebNodesMax = 16384;
inline constexpr std::size_t kWebChangesMax = 4096;
inline constexpr std::size_t kWebEventsMax = 2000;
inline constexpr std::size_t kWebLinesMax = 500;
inline constexpr std::size_t kWebOthersMax = 6;  // runs whose curves are drawn beside one's own
inline constexpr int kWebFirstLines = 20;        // of each rank, from before
inline constexpr int kWebOutputRanksMax = 64;    // the first ones
inline constexpr std::size_t kWebLineBytesMax = 500;
inline constexpr std::chrono::milliseconds kWebPollInterval{1000};
// At the end of a run with --web, for its page to hear of it.
inline constexpr std::chrono::milliseconds kWebEndTimeout{1000};
// Time for which output and events are gathered before all pages get them.
inline constexpr std::chrono::milliseconds kWebGatherTime{100};
// Changes that are kept for pages; one that is behind by more gets the whole anew.
inline constexpr std::size_t kWebQueueBytesMax = 1u << 20;
// Between two signs of life for a page, by which it is found gone.
inline constexpr std::chrono::seconds kWebAliveInterval{5};
// For the disk to create a run's folder.
inline constexpr std::chrono::seconds kRunFolderTimeout{10};
// Where the disk accepts nothing: the time between two tries, and for the last ones at the end.
inline constexpr std::chrono::milliseconds kRunWriteRetryInterval{200};
inline constexpr std::chrono::seconds kRunLastWriteTimeout{5};
// How often a reader looks for new output.
inline constexpr std::chrono::milliseconds kRunFollowInterval{20};
// ddpctl attach: how often its other end says that it is there, after which silence the connection
// counts as broken (a laptop has slept, or has another address), and the longest pause before a
// try.
inline constexpr std::chrono::seconds kAttachAliveInterval{2};
inline constexpr std::chrono::seconds kAttachSilenceMax{7};
inline constexpr std::chrono::milliseconds kAttachRetryMax{5000};
// How long what was shown last has to reach the other end, when the user leaves.
inline constexpr std::chrono::seconds kAttachLastWait{1};
// For systemd to answer.
inline constexpr std::chrono::seconds kLoginSessionTimeout{3};

inline constexpr int kPortDefault = 29500;          // torchrun's --master-port
inline constexpr int kEndpointPortDefault = 29400;  // torchrun's c10d --rdzv-endpoint

}  // namespace ddprun
