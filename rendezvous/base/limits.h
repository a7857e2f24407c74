// SPDX-License-Identifier: Apache-2.0
// Every limit of the rendezvous room, in one place, with the reason for its size.
#pragma once

#include <chrono>
#include <cstddef>

namespace ddprun {

// Those of torch's TCPStore (TCPStoreBackend.hpp); c10d's own keys are under 200 bytes, and its
// largest values are Gloo's address lists and object collectives of a few hundred KB.
inline constexpr std::size_t kKeyBytesMax = 8192;
inline constexpr std::size_t kValueBytesMax = 8u << 20;
// How many keys a request of TCPStore's protocol may name; torch's own limit.
inline constexpr std::size_t kTcpStoreKeysMax = 128 * 1024;
// Requests of one TCPStore client that are under way; it waits for the answer to most of them.
inline constexpr std::size_t kTcpStoreOpsMax = 256;
// Addresses that a node names as its own.
inline constexpr std::size_t kNodeAddressesMax = 16;
inline constexpr std::size_t kMessageBytesMax = 16u << 20;
// Per run. A world of 100 000 ranks that each set a few keys stays below.
inline constexpr std::size_t kKeysMax = 4'000'000;
inline constexpr std::size_t kStoreBytesMax = std::size_t{1} << 30;
inline constexpr std::size_t kWaitersMax = 1'000'000;
// Unanswered operations on one stream; a worker has a handful.
inline constexpr std::size_t kStreamOpsMax = 65'536;
// One message of the store takes this much of what waits to be sent (one operation or answer may be
// larger).
inline constexpr std::size_t kStoreBatchBytes = 1u << 20;
inline constexpr std::size_t kStoreBatchOps = 4096;
// Replies to operations that change something, which the service caches for a node until the node
// confirms them. It does so with its next message, and at the latest after kUnsaidAnswersMax.
inline constexpr std::size_t kRememberedAnswersMax = 2 * kStreamOpsMax;
inline constexpr std::size_t kRememberedBytesMax = 64u << 20;
inline constexpr std::size_t kUnsaidAnswersMax = 1024;
// Connections to the store of one agent, and those of them that may be TCP, where the process may
// open twice as many files: whatever connects there, each worker of the node has a place at the
// unix socket.
inline constexpr std::size_t kWorkerStreamsMax = 16'384;
inline constexpr std::size_t kTcpStreamsMax = 12'288;
// TCP connections to one agent from other hosts that wait until the node that has the client says
// which user it is of; and those of them from one address, since a stranger needs no more than an
// address. A connection is refused after kOwnerTimeout. The service waits less for the nodes, so
// that it still can name the one that has not replied.
inline constexpr std::size_t kAdmissionsMax = 4096;
inline constexpr std::size_t kAdmissionsPerAddressMax = 1024;
inline constexpr std::chrono::seconds kOwnerTimeout{5};
inline constexpr std::chrono::seconds kOwnerReplyTimeout{4};
// The service asks about so many such connections for all stores of one run.
inline constexpr std::size_t kOwnerQueriesMax = 4 * kAdmissionsMax;
// All nodes are asked about a connection from an address that none has named, which a stranger can
// cause at will: at most once in this time, about so many connections, in so many queries together
// (of one connection at least).
inline constexpr std::chrono::seconds kAskAllInterval{1};
inline constexpr std::size_t kAskAllConnectionsMax = 64;
inline constexpr std::size_t kAskAllQueriesMax = 65'536;
// Replies of a stream that are not written yet; above it the service does nothing more for that
// stream. One reply may be larger.
inline constexpr std::size_t kStreamReplyBytesMax = 1u << 20;
// Messages of replies that a service writes to all peers at a time, beside those that are not
// larger than kSmallReplyBytes (one may be larger). Streams wait for room; one whose message is not
// read for kReplyRoomTimeout while others wait is ended.
inline constexpr std::size_t kReplyRoomBytes = 16u << 20;
inline constexpr std::size_t kSmallReplyBytes = 4096;
inline constexpr std::chrono::seconds kReplyRoomTimeout{5};
inline constexpr std::size_t kRunsMax = 1024;
// One peer (an address in plain text, a certificate of the user's own) may begin so many of them. A
// certificate that comes from the token is for one run alone.
inline constexpr std::size_t kRunsPerPeerMax = 256;
// A run that no node has been connected to for this long makes room for another when there are
// kRunsMax. Nodes whose connection broke try again four times a second.
inline constexpr std::chrono::seconds kDesertedRunTimeout{5};
inline constexpr int kNodesMax = 100'000;
// In one answer of GetStatus: 10 000 nodes are 1 MB, and a run is locked for the few milliseconds
// that copying them takes.
inline constexpr std::size_t kStatusNodesMax = 16'384;
// Reports of single ranks in one answer, for a caller who asks for them: 10 000 are 0.5 MB.
inline constexpr std::size_t kStatusRanksMax = 32'768;
inline constexpr int kLocalWorldSizeMax = 4096;
// Run ids, node ids, host names, addresses: DNS allows 255.
inline constexpr std::size_t kNameBytesMax = 256;
inline constexpr std::size_t kLastLinesMax = 20;
inline constexpr std::size_t kLastLineBytesMax = 2048;
// Distinct outcomes of the workers of one round; further ones are reported as one.
inline constexpr std::size_t kOutcomeWaysMax = 16;
// Distinct places among the collectives that a verdict reports.
inline constexpr std::size_t kCollectivePlacesMax = 64;
// Those that a sentence names beside the one in which most ranks wait.
inline constexpr std::size_t kCollectivePlacesShown = 8;
// A rank that has been at one place among its collectives for so long is reported by its node: to
// the status, and to the verdict of a run that is interrupted.
inline constexpr std::chrono::seconds kStillTime{10};
// Ranks that have waited for the others for so long are told of on node 0's console.
inline constexpr std::chrono::seconds kStallTime{60};
// How often a run looks for such ranks at most, while its nodes report changes.
inline constexpr std::chrono::seconds kStallLook{1};
// Workers that still run so long after all others have ended with success are told of.
inline constexpr std::chrono::seconds kLateEndTime{60};
// A verdict lists so many ranges of ranks and so many hosts for each outcome; the rest is a
// number.
inline constexpr std::size_t kOutcomeRangesShown = 16;
inline constexpr std::size_t kOutcomeHostsShown = 8;
// And in the service, where ranges merge as nodes report.
inline constexpr std::size_t kOutcomeRangesMax = 65'536;
// A traceback keeps its end.
inline constexpr std::size_t kTracebackBytesMax = 16u << 10;
// Names in a worker's progress report, which a person has chosen.
inline constexpr std::size_t kSectionBytesMax = 128;
inline constexpr std::size_t kRateUnitBytesMax = 32;
// A node reports its workers' progress at most this often. In a run of N thousand nodes it is once
// in N seconds: they share one service.
inline constexpr std::chrono::seconds kProgressInterval{1};
inline constexpr int kNodesPerProgressInterval = 1000;
// A verdict has so much of a hung worker's native stacks; the node itself shows and keeps more.
inline constexpr std::size_t kStackLinesMax = 64;
inline constexpr std::size_t kStackLineBytesMax = 512;
// A path.
inline constexpr std::size_t kPathBytesMax = 4096;
// A wait without an end would hide a dead peer: longer timeouts are reduced to this.
inline constexpr std::chrono::hours kStoreTimeoutMax{24};

// Open connections of one service; fewer where the process may have fewer files (RLIMIT_NOFILE).
inline constexpr std::size_t kConnectionsMax = 32'768;
// Files that are left for everything else when connections are limited by RLIMIT_NOFILE.
inline constexpr std::size_t kReservedFiles = 128;
// Connections whose first bytes or handshake are pending: a file descriptor and 300 bytes each.
// Above it those that have sent the least for the longest time are closed.
inline constexpr std::size_t kSilentConnectionsMax = 16'384;
// Handshakes at the same time: up to 100 KB each. Others wait for one to end.
inline constexpr std::size_t kHandshakesMax = 256;
inline constexpr std::size_t kHandshakesPerAddressMax = 64;
// From a connection's begin to the end of its handshake.
inline constexpr std::chrono::seconds kHandshakeTimeout{5};
// Between a stream's begin and its first message; the project's own clients send both at once.
inline constexpr std::chrono::seconds kFirstMessageTimeout{10};
// A connection without a stream: a node has one as long as it is in a run.
inline constexpr std::chrono::seconds kIdleConnectionTimeout{60};
// How long a rejected peer may take to read the reason.
inline constexpr std::chrono::seconds kLingerTimeout{1};
// A node has two streams; a simulation may share a connection between some hundred nodes.
inline constexpr int kStreamsPerConnectionMax = 1024;
// gRPC's reflection holds a thread for each stream; a person has one tool open.
inline constexpr int kReflectionThreadsMax = 8;
inline constexpr int kHeaderBytesMax = 8192;
// Threads of a service that its streams are called back on (completion_threads.h).
inline constexpr int kCompletionThreads = 8;
// Threads of a process that are there before anything may fail for want of one (thread_check.h):
// without gRPC, as a client of a service, and with a service. Counted on 2 CPUs; gRPC has some more
// where there are many.
inline constexpr int kThreadsAlone = 4;
inline constexpr int kThreadsOfClient = 16;
inline constexpr int kThreadsOfService = 26;

// A file of certificates or a key; a bundle of every public authority has 200 KB.
inline constexpr std::size_t kPemBytesMax = 1u << 20;

inline constexpr std::chrono::seconds kJoinTimeoutDefault{600};
// Between the verdict and the service's end: nodes that have not read it by then see a broken
// stream.
inline constexpr std::chrono::seconds kFinishTimeout{5};
// HTTP/2 keepalive: a peer that does not answer for this long is lost, although TCP has no error.
inline constexpr std::chrono::seconds kKeepaliveInterval{5};
inline constexpr std::chrono::seconds kKeepaliveTimeout{10};
// How long after a failure the nodes may take to stop their workers before they count as lost; a
// node whose workers have more time (a checkpoint on SIGTERM) says so when it joins.
inline constexpr std::chrono::seconds kStopTimeout{60};
inline constexpr std::chrono::hours kStopTimeoutMax{25};
// The time that a notice of preemption may give: a day is a maintenance window.
inline constexpr std::chrono::seconds kNoticeMin{1};
inline constexpr std::chrono::hours kNoticeMax{24};
// Notices of one event reach the nodes at different moments. One is another only if its deadline is
// earlier by this.
inline constexpr std::chrono::seconds kSameNoticeTime{1};
// Waiting nodes are told at most this often what the run waits for. In a run of N thousand nodes it
// is once in N of these: joins must not cause a million messages.
inline constexpr std::chrono::seconds kWaitingInterval{1};
inline constexpr std::size_t kNodesPerWaitingInterval = 1000;
// Above this, the missing nodes are listed once in that time and not at every join.
inline constexpr std::size_t kExactWordsNodesMax = 64;
// Places and spares of one run.
inline constexpr std::size_t kMembersMax = 2 * std::size_t{kNodesMax};
// A node that sends nothing for this long is lost. Long enough for a switch that restarts or a
// virtual machine that moves, and far below the timeouts of collectives.
inline constexpr std::chrono::seconds kLeaseDefault{10};
inline constexpr std::chrono::milliseconds kLeaseMin{100};
// A switch or a virtual machine that takes longer needs repair, not patience.
inline constexpr std::chrono::hours kLeaseMax{1};
// The lease of a node that is away and was never in a round: it has no workers to lose.
inline constexpr std::chrono::seconds kUnseatedLeaseMax{30};
// How long a round that has its least number of nodes waits for more; torchrun's last_call_timeout.
inline constexpr std::chrono::seconds kLastCallDefault{30};
inline constexpr std::chrono::hours kLastCallMax{24};

// Restarts that are remembered with their times, and so the most that --max-restarts can be with
// --restart-window.
inline constexpr int kWindowRestartsMax = 10'000;
// --restart-window and its like: longer than the longest runs.
inline constexpr std::chrono::hours kRestartTimeMax{24 * 366};
// --restart-delay: beyond it a failed run is of more use than a waiting one.
inline constexpr std::chrono::hours kRestartDelayMax{1};
inline constexpr std::size_t kExitCodeRangesMax = 64;
inline constexpr int kNodeFailuresMax = 1000;
// Hosts whose failures are counted. Above it the one that failed longest ago starts anew.
inline constexpr std::size_t kFailedHostsMax = 4096;
// Hosts that are left out, in a status.
inline constexpr std::size_t kStatusLeftOutMax = 64;

// Between two attempts to reach the service: the first pause, and the longest after doubling.
inline constexpr std::chrono::milliseconds kConnectBackoffMin{20};
inline constexpr std::chrono::milliseconds kConnectBackoffMax{1000};
// And where the node is in a run: its workers may be waiting.
inline constexpr std::chrono::milliseconds kReconnectBackoffMax{250};
// How long a node tries while nothing listens at the address of a service without a journal, which
// has mostly ended: a forwarder or a tunnel is restarted within that time.
inline constexpr std::chrono::milliseconds kRefusedTimeout{2000};
// How long a node continues without a service that has a journal: a supervisor restarts it within
// seconds, a rebooted machine within minutes.
inline constexpr std::chrono::minutes kReconnectTimeout{10};
// How long one attempt to connect takes: the error then names a host that drops packets.
inline constexpr std::chrono::seconds kConnectAttemptTimeout{5};
// How much longer than the operation's own timeout a caller of the store waits: longer than
// keepalive needs to detect a dead peer.
inline constexpr std::chrono::seconds kStoreAnswerSlack{20};
// How long a client that ends waits until its last messages are sent.
inline constexpr std::chrono::seconds kCloseTimeout{1};

// Subscribers of one run: each costs every node its workers' output once more.
inline constexpr std::size_t kWatchesMax = 16;
// The backlog of one subscriber in the service, of all nodes together: above it lines are dropped.
inline constexpr std::size_t kWatchBytesMax = 8u << 20;
// A node sends one subscriber so many bytes before they are confirmed, and so many in one message:
// output must not delay the node's session.
inline constexpr std::size_t kLogWindowBytes = 64u << 10;
inline constexpr std::size_t kLogBatchBytes = 16u << 10;
// What a line counts beyond its text.
inline constexpr std::size_t kLogLineOverhead = 32;
// Past lines of each worker that may be requested; no agent keeps as many.
inline constexpr int kWatchLinesMax = 100'000;
// Ranges of ranks, and names of nodes, in one subscription.
inline constexpr std::size_t kWatchNamesMax = 4096;
// How long a service that ends waits for subscribers to read their last news.
inline constexpr std::chrono::seconds kWatchEndTimeout{1};

// Events that wait for their file; above it they are dropped and counted.
inline constexpr std::size_t kEventLogBytesMax = 4u << 20;
// How long the end of a process waits for the event log's file to take the last ones.
inline constexpr std::chrono::seconds kEventLogCloseTimeout{1};
// Runs with counters of their own in the metrics.
inline constexpr std::size_t kCountedRunsMax = 1024;
// Nodes with metrics of their own; above it they are only counted.
inline constexpr std::size_t kMetricsNodesMax = 4096;

// The journal. A record holds one event, at most a message; the parts of a snapshot are made of
// about kJournalPartBytes.
inline constexpr std::size_t kJournalRecordBytesMax = std::size_t{64} << 20;
inline constexpr std::size_t kJournalPartBytes = std::size_t{4} << 20;
// Above this much journal, and twice the last snapshot's size, a new snapshot is wanted: replay
// stays below a second, and snapshots cost less than the records.
inline constexpr std::size_t kJournalSegmentBytesMax = std::size_t{64} << 20;
// Records that wait for the disk. Above it the disk is too slow.
inline constexpr std::size_t kJournalQueueBytesMax = std::size_t{256} << 20;
// How often the journal is flushed where commits do not wait for it: what a crash of the machine
// may cost. A crash of the process costs nothing.
inline constexpr std::chrono::milliseconds kJournalSyncInterval{100};
// A disk that takes no record for this long does not answer, and neither does etcd.
inline constexpr std::chrono::seconds kJournalAnswerTimeout{30};

// The journal in etcd. A value: etcd refuses requests above 1.5 MiB by default.
inline constexpr std::size_t kEtcdValueBytesMax = std::size_t{1} << 20;
// A snapshot is wanted above this much journal, or so many values: etcd keeps what was deleted
// until it is compacted, and has room for 2 GiB by default.
inline constexpr std::size_t kEtcdSegmentBytesMax = std::size_t{16} << 20;
inline constexpr std::size_t kEtcdSegmentValuesMax = 16384;
// Values that are read, or deleted, at a time.
inline constexpr int kEtcdPageValues = 128;
inline constexpr std::size_t kEtcdMembersMax = 16;
// What one member is given to answer before the next one is asked.
inline constexpr std::chrono::milliseconds kEtcdAttemptTimeout{1500};
// After all members were asked in vain.
inline constexpr std::chrono::milliseconds kEtcdPause{100};
// The lease of the service that leads: etcd's shortest with its default election timeout.
inline constexpr std::chrono::seconds kLeaderLease{2};
// A service that ends waits so long for its last records.
inline constexpr std::chrono::seconds kEtcdCloseTimeout{2};
// A leader that nobody reaches is replaced before its lease expires, but not sooner than this after
// it began to lead. Nodes that it does not hear meanwhile must not be lost: below their lease.
inline constexpr std::chrono::seconds kLeaderReplacePause{4};
// What a leader is given to answer a service that stands by, before it counts as gone.
inline constexpr std::chrono::milliseconds kLeaderProbeTimeout{500};
// Calls that a service which stands by holds until it is known who leads.
inline constexpr std::size_t kHeldCallsMax = 2 * std::size_t{kNodesMax};
// A copy of the service's journal on another node: one that takes nothing for so long is given up.
// Nothing is decided meanwhile, so it is below the nodes' lease.
inline constexpr std::chrono::milliseconds kCopyTimeout{2000};
// The pause between two messages to a copy, and between two looks at the other services.
inline constexpr std::chrono::milliseconds kCopyInterval{500};
// Of records in one message.
inline constexpr std::size_t kCopyMessageBytes = std::size_t{1} << 20;
// Services of one run, of which one leads.
inline constexpr std::size_t kServicesMax = 16;
// Where there is another peer to ask, one that does not answer a connection or a ping for so long
// is given up.
inline constexpr std::chrono::milliseconds kOtherPeerTimeout{1000};

// ---- What a peer may hold in a service or an agent

// Concurrent handshakes (see kHandshakesMax) of peers whose ClientHello proves that they have the
// run's secret (hello_tag.h), and of those with the same tag. Other peers do not use these.
inline constexpr std::size_t kMemberHandshakesMax = 256;
inline constexpr std::size_t kHandshakesPerMemberMax = 8;
// While others wait, the oldest handshake that is older than this is closed. A handshake and the
// first call take two round trips and some milliseconds.
inline constexpr std::chrono::milliseconds kHandshakePatience{1000};

// The headers of one call, as they are sent, and in how many frames (frame_guard.h).
inline constexpr std::size_t kHeaderBlockBytesMax = 2 * kHeaderBytesMax;
inline constexpr std::size_t kHeaderFramesMax = 16;
// Calls that begin on one connection, and calls that are reset, those of all its streams at once.
inline constexpr int kCallsAtOnceMax = 4 * kStreamsPerConnectionMax;
inline constexpr int kCallsPerSecondMax = 1000;
inline constexpr int kResetsAtOnceMax = kStreamsPerConnectionMax;
inline constexpr int kResetsPerSecondMax = 100;

// A stream keeps this much memory of a message for the next one.
inline constexpr std::size_t kKeptMessageBytes = 256u << 10;

// A client of an agent's store may send so much ahead, or so much of an incomplete request, at any
// time.
inline constexpr std::size_t kSmallRequestBytes = 4096;
// All larger incomplete requests to one agent; further ones wait for room. A client of whose
// request no further tenth comes within kRequestRoomTimeout while others wait is closed.
inline constexpr std::size_t kRequestRoomBytes = 32u << 20;
inline constexpr std::chrono::seconds kRequestRoomTimeout{5};
// Replies of one agent's store that its clients have not read yet. While there are more, none are
// taken from the service, and clients are closed that are behind by kUnreadReplyTimeout, which is
// more than the network takes to send a lost packet again (200 ms), in reading kUnreadReplyRate.
inline constexpr std::size_t kUnreadReplyBytesMax = 24u << 20;
inline constexpr std::chrono::milliseconds kUnreadReplyTimeout{250};
inline constexpr double kUnreadReplyRate = 4 << 20;  // bytes per second

// Watches of a run's events without its workers' output (see kWatchesMax), which cost the nodes
// nothing. Above either limit the oldest watch of the address that has the most is ended.
inline constexpr std::size_t kQuietWatchesMax = 256;
// Events of a run that its service keeps: those of IsRoutine() (run_event.h), and the others.
inline constexpr std::size_t kRoutineHistoryMax = 256;
inline constexpr std::size_t kEventHistoryMax = 512;
// Faults of a run that nodes have been asked for and have not reported yet.
inline constexpr std::size_t kFaultsUnderWayMax = 64;
// The longest fault that lasts.
inline constexpr std::chrono::seconds kFaultDurationMax{60};

// The highest rate that a worker may report, per second.
inline constexpr double kRateMax = 1e12;

// Threads that each hold a request for metrics until it is complete, for kScrapeTimeout at most.
inline constexpr std::size_t kScrapeThreads = 16;
inline constexpr std::chrono::milliseconds kScrapeTimeout{500};

// Browsers' connections to a page: threads, each of which holds one; a request; the time for one,
// and for a browser to read what it is sent.
inline constexpr std::size_t kWebConnectionsMax = 64;
inline constexpr std::size_t kWebRequestBytesMax = 16u << 10;
inline constexpr std::chrono::milliseconds kWebTimeout{5000};

}  // namespace ddprun
