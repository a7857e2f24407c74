// SPDX-License-Identifier: Apache-2.0
// Values survive the way over the wire, and what comes from the wire is cut and checked.
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/scalars.h"
#include "rendezvous/wire/session_convert.h"
#include "rendezvous/wire/store_convert.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "proto/failure_record.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/wire/status_convert.h"

namespace ddprun {
namespace {

Failure FullFailure(FailureKind kind) {
  Failure failure;
  failure.kind = kind;
  failure.rank = 3;
  failure.local_rank = 1;
  failure.node_rank = 2;
  failure.host = "host";
  failure.pid = 1LL << 40;
  failure.exit_code = 4;
  failure.signal = 9;
  failure.message = "m\xC3\xA4h";
  failure.last_lines = {"one", "two"};
  failure.age = std::chrono::milliseconds(12'345);
  failure.oom = OomKill{1LL << 40, 1LL << 41, true};
  failure.core_file = "/tmp/core.7";
  failure.role = "eval";
  failure.role_rank = 1;
  failure.advice = "raise that limit";
  failure.traceback = "Traceback (most recent call last):\nm\xC3\xA4h";
  failure.places = {
      {{{0, 1}, {3, 3}}, {Collective{"0", 57, "all_reduce", 4194304, "float32"}, {}}},
      {{{2, 2}}, {std::nullopt, {{"0", 56, "all_reduce"}, {"stage", 3, "broadcast"}}}}};
  failure.hang = Hang{.kind = HangKind::kNoOutput,
                      .silent = std::chrono::milliseconds(30'001),
                      .step = 0,
                      .section = "d\xC3\xA4ta",
                      .others_step = 1LL << 40,
                      .stack = {"thread 1", "  #0 f()"}};
  return failure;
}

template <typename T, typename Message>
void ExpectRoundTrip(const T& value) {
  Message message;
  ASSERT_TRUE(message.ParseFromString(ToProto(value).SerializeAsString()));
  const auto back = FromProto(message);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(*back == value);
}

TEST(ConvertTest, Reports) {
  Join join;
  join.protocol_version = 1;
  join.software_version = "0.1";
  join.run_id = "run";
  join.node_id = NodeId{"id"};
  join.host = "host";
  join.node_rank = 0;
  join.local_world_size = 2;
  join.nodes_min = 3;
  join.nodes_max = 4;
  join.restarts_max = 5;
  join.address = "10.0.0.1";
  join.worker_port = 6;
  join.join_timeout = std::chrono::milliseconds(1'500);
  join.stop_timeout = std::chrono::minutes(31);
  join.restart_policy = {.window = std::chrono::milliseconds(1),
                         .reset = std::chrono::milliseconds(2'002),
                         .no_progress_max = 3,
                         .never_codes = {{4, 4}, {77, 80}},
                         .only_codes = {{128, 255}},
                         .node_failures_max = 5,
                         .node_cooldown = std::chrono::milliseconds(6),
                         .delay = std::chrono::milliseconds(7),
                         .delay_max = std::chrono::milliseconds(8)};
  join.hosts_service = true;
  join.role = "trainer";
  join.hears_preemption = true;
  ExpectRoundTrip<Report, v1::Report>(join);
  join.roles = {{"trainer", 1, 7}, {"eval", 2, 8}};
  join.ranks_by_role = true;
  join.rank_order = RankOrder::kTopology;
  join.topology = "s0.s1.n3";
  join.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  ExpectRoundTrip<Report, v1::Report>(join);
  join.node_rank = std::nullopt;
  ExpectRoundTrip<Report, v1::Report>(join);
  for (const FailureKind kind :
       {FailureKind::kWorkerExited, FailureKind::kWorkerSignaled, FailureKind::kSpawnFailed,
        FailureKind::kNodeLost, FailureKind::kNodeInterrupted, FailureKind::kJoinTimeout,
        FailureKind::kWorkerHung, FailureKind::kWorkerEndedEarly}) {
    ExpectRoundTrip<Report, v1::Report>(WorkerFailed{RoundId{7}, FullFailure(kind)});
  }
  ExpectRoundTrip<Report, v1::Report>(Heartbeat{});
  ExpectRoundTrip<Report, v1::Report>(
      Heartbeat{RoundId{7}, {1LL << 40, 0, 310.5, "images", "d\xC3\xA4ta"}});
  RankTime time;
  for (std::size_t i = 0; i < kTimeClasses; ++i) time.times[i] = std::chrono::microseconds(7 + i);
  ExpectRoundTrip<Report, v1::Report>(Heartbeat{.time = time});
  ExpectRoundTrip<Report, v1::Report>(
      Heartbeat{RoundId{7}, {.step = 3, .slow_rank = 0, .slowness = 2.125}});
  ExpectRoundTrip<Report, v1::Report>(
      Heartbeat{RoundId{7}, {.step = 3, .damages = 2, .damaged_rank = 5}});
  ExpectRoundTrip<Report, v1::Report>(Heartbeat{RoundId{7}, {.step = 3, .accuracy = 0.9375}});
  ExpectRoundTrip<Report, v1::Report>(Heartbeat{
      .progress_round = RoundId{7},
      .still = {{.ranks = {{2, 3}}, .place = {Collective{"0", 57, "all_reduce", 4, "int8"}, {}}}}});
  ExpectRoundTrip<Report, v1::Report>(
      Heartbeat{.progress_round = RoundId{7},
                .ranks = {{.step = 0, .rate = 2.5, .loss = -0.5, .section = "data", .memory = 1},
                          {.gpu_memory = 1LL << 40, .slowness = 2.125, .hung = true},
                          {.loss = std::numeric_limits<double>::infinity(), .ended = true}}});
  ExpectRoundTrip<Report, v1::Report>(
      FaultReport{.id = 3, .done = true, .words = "rank 3", .stack = {"a", "b"}});
  ExpectRoundTrip<Report, v1::Report>(NodeSucceeded{RoundId{7}, time});
  ExpectRoundTrip<Report, v1::Report>(NodeStopped{RoundId{7}, 4000, {}, time});
  const CollectivePlace place{Collective{"0", 3, "all_reduce"}, {{"0", 2, "barrier"}}};
  ExpectRoundTrip<Report, v1::Report>(NodeStopped{RoundId{7}, 1, {}, {}, {{{{2, 3}}, place}}});
  ExpectRoundTrip<Report, v1::Report>(
      NodeStopped{.round = RoundId{7}, .worker_port = 1, .role_ports = {1, 2}});
  NodeStopped stopped{RoundId{7}, 4000, {}};
  for (const EndKind kind : {EndKind::kExited, EndKind::kSignaled, EndKind::kNotStarted,
                             EndKind::kLost, EndKind::kStopped, EndKind::kSucceeded}) {
    stopped.ends.push_back({kind, 3, 4, 5});
  }
  ExpectRoundTrip<Report, v1::Report>(stopped);
  ExpectRoundTrip<Report, v1::Report>(
      Leave{FullFailure(FailureKind::kNodeInterrupted), true, false});
  ExpectRoundTrip<Report, v1::Report>(
      Leave{FullFailure(FailureKind::kNodeInterrupted), false, true});
  ExpectRoundTrip<Report, v1::Report>(
      PreemptionReport{std::chrono::milliseconds(120'001), "the file /run/\xC3\xA4"});
  ExpectRoundTrip<Report, v1::Report>(PreemptionReport{.withdrawn = true});
  ExpectRoundTrip<Report, v1::Report>(PreemptionReport{.saved = 1ULL << 60});
}

// They go both ways.
TEST(ConvertTest, WhoseConnectionsAre) {
  const TcpConnection connection{"fe80::2", 4711, "10.0.0.1", 29'400};
  const OwnerQueries queries{{{1ULL << 60, connection, true}, {2, connection, false}}};
  ExpectRoundTrip<Report, v1::Report>(queries);
  ExpectRoundTrip<Directive, v1::Directive>(queries);
  OwnerAnswers answers;
  for (const Ownership ownership : {Ownership::kOwn, Ownership::kOtherUser, Ownership::kNone,
                                    Ownership::kUnknown, Ownership::kNoReply}) {
    answers.answers.push_back({3, ownership, std::nullopt, "b"});
    answers.answers.push_back({3, ownership, 0, ""});
    answers.answers.push_back({3, ownership, 4'294'967'294, ""});
  }
  ExpectRoundTrip<Report, v1::Report>(answers);
  ExpectRoundTrip<Directive, v1::Directive>(answers);
  ExpectRoundTrip<Directive, v1::Directive>(ConnectionRefused{connection, 1001});
  ExpectRoundTrip<Directive, v1::Directive>(ConnectionRefused{connection, std::nullopt});
}

TEST(ConvertTest, Directives) {
  ExpectRoundTrip<Directive, v1::Directive>(Waiting{"words", std::chrono::milliseconds(2'001)});
  ExpectRoundTrip<Directive, v1::Directive>(Accepted{.takes_preemption = true});
  for (const int node_rank : {-1, 0, 3}) {
    ExpectRoundTrip<Directive, v1::Directive>(
        Preemption{2, std::chrono::milliseconds(120'001), "b", node_rank, "SIGUSR1"});
  }
  ExpectRoundTrip<Directive, v1::Directive>(
      Start{RoundId{1}, "run", 2, 3, 4, 5, "addr", 6, 7, 8, 9, "b"});
  ExpectRoundTrip<Directive, v1::Directive>(
      Start{.round = RoundId{1}, .roles = {{1, 2, 3, 4, "addr", 5}, {6, 7, 8, 9, "b", 10}}});
  ExpectRoundTrip<Directive, v1::Directive>(Start{.round = RoundId{1}, .traceparent = "00-1-2-01"});
  for (const bool last : {false, true}) {
    ExpectRoundTrip<Directive, v1::Directive>(
        Stop{RoundId{2}, FullFailure(FailureKind::kNodeLost), last});
  }
  ExpectRoundTrip<Directive, v1::Directive>(Refused{absl::AlreadyExistsError("taken"), 9});
  Verdict verdict{.success = false,
                  .cause = FullFailure(FailureKind::kWorkerSignaled),
                  .exit_code = 137,
                  .round = RoundId{3},
                  .restart_count = 1,
                  .restarts_max = 2,
                  .world_size = 8,
                  .node_count = 4,
                  .outcomes = {{EndKind::kExited, 1, 3, {{0, 1}, {4, 4}}, {}},
                               {EndKind::kLost, 0, 2, {{2, 3}}, {"host"}}},
                  .restarts_forgiven = 5,
                  .not_restarted = "words",
                  .time = {{std::chrono::microseconds(1), std::chrono::microseconds(2)}}};
  ExpectRoundTrip<Directive, v1::Directive>(Finish{verdict});
  verdict = Verdict{.success = true};
  ExpectRoundTrip<Directive, v1::Directive>(Finish{verdict});
}

// Lines may have any bytes: what a program prints need not be text.
TEST(ConvertTest, LinesOfWorkers) {
  LogLines lines{.watch = 1, .number = 2, .left_out = 3, .lines = {}, .tail_end = true};
  lines.lines.push_back({4, 5, true, "[h:4] ", std::string("\xff\x00\xc3 \x1b[31m", 9)});
  lines.lines.push_back({});
  ExpectRoundTrip<Report, v1::Report>(lines);
  const LogWatch watch{.id = 1,
                       .lines = 2,
                       .follow = true,
                       .ranks = {{0, 3}, {8, 8}},
                       .without_stdout = true,
                       .without_stderr = true,
                       .resumed = true,
                       .received = 9};
  ExpectRoundTrip<Directive, v1::Directive>(LogWatches{{watch, LogWatch{.id = 2}}});
  ExpectRoundTrip<Directive, v1::Directive>(LogWatches{});
  ExpectRoundTrip<Directive, v1::Directive>(LogsTaken{1, 2});
  const RunQuestion question{.output = true, .watch = watch, .nodes = {"0", "b"}};
  EXPECT_EQ(FromProto(ToProto(question, "job")), question);
  ExpectRoundTrip<RunNews, v1::RunNews>(WatchBegun{"job", {"a"}, {"b", "c"}});
  ExpectRoundTrip<RunNews, v1::RunNews>(WorkerLines{"b (node rank 1)", 1, lines});
  ExpectRoundTrip<RunNews, v1::RunNews>(RunWords{"round 2 begins"});
  ExpectRoundTrip<RunNews, v1::RunNews>(TailsEnd{});
  ExpectRoundTrip<RunNews, v1::RunNews>(RunOver{});
  ExpectRoundTrip<RunNews, v1::RunNews>(RunOver{Verdict{.success = true}});
}

TEST(ConvertTest, LossReports) {
  const LossReport report{
      .protocol_version = 2, .run_id = "run", .node_id = NodeId{"id"}, .reason = "words"};
  EXPECT_EQ(FromProto(ToProto(report)), report);
  v1::LossReport hostile;
  hostile.set_run_id(std::string(kNameBytesMax + 9, 'r'));
  hostile.set_node_id("a\x1b[2J");
  hostile.set_reason(std::string(kLastLineBytesMax + 1, 'x'));
  const LossReport cut = FromProto(hostile);
  EXPECT_EQ(cut.run_id.size(), kNameBytesMax + 1) << "so that it is no run's";
  EXPECT_EQ(cut.node_id.value.find('\x1b'), std::string::npos);
  EXPECT_EQ(cut.reason.size(), kLastLineBytesMax);
}

TEST(ConvertTest, StoreOperationsOfEveryVerb) {
  for (int verb = 1; verb <= 15; ++verb) {
    StoreOp op;
    op.verb = static_cast<StoreVerb>(verb);
    op.round = RoundId{9};
    op.keys = {"k", std::string("\0\xff", 2)};
    op.values = {std::string("\0\xff", 2), ""};
    op.number = -5;
    op.timeout = std::chrono::milliseconds(1'234);
    ExpectRoundTrip<StoreOp, v1::StoreOp>(op);
  }
}

TEST(ConvertTest, StoreBatches) {
  StoreBatch batch;
  batch.requests.push_back({7, StoreOp{.verb = StoreVerb::kGet, .keys = {"k"}}});
  batch.requests.push_back({6, std::nullopt});
  batch.answered = {3, 5};
  v1::StoreRequests message;
  AddTo(&message, batch);
  // One request of neither kind, and one with a verb that is not known.
  message.add_requests()->set_id(8);
  message.mutable_requests(2)->clear_kind();
  message.add_requests()->set_id(9);
  message.mutable_requests(3)->mutable_op();
  std::vector<StoreReply> refused;
  EXPECT_EQ(FromProto(message, &refused), batch);
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_EQ(refused[0].id, 8u);
  EXPECT_EQ(refused[1].id, 9u);
  EXPECT_EQ(refused[1].result.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused[1].result.status.message(),
            "store verb 0 is not known to this version; install the same ddprun on all nodes");

  const StoreHello hello{"run", "node", 3, {4, 1ull << 60}};
  EXPECT_EQ(FromProto(ToProto(hello)), hello);
}

TEST(ConvertTest, StoreResults) {
  StoreResult result;
  result.values = {"v", std::string("\0", 1)};
  result.keys = {"k"};
  result.number = 1LL << 60;
  StoreReply reply{42, result};
  EXPECT_EQ(FromProto(ToProto(reply)), reply);
  reply = {1, {}};
  reply.result.status = absl::AbortedError("over");
  EXPECT_EQ(FromProto(ToProto(reply)), reply);
}

TEST(ConvertTest, UnknownKindsAreInvalid) {
  EXPECT_EQ(FromProto(v1::Report()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FromProto(v1::Directive()).status().code(), absl::StatusCode::kInvalidArgument);
  v1::StoreOp op;
  EXPECT_EQ(FromProto(op).status().code(), absl::StatusCode::kInvalidArgument);
  op.set_verb(static_cast<v1::StoreOp::Verb>(99));
  EXPECT_EQ(FromProto(op).status().code(), absl::StatusCode::kInvalidArgument);
  v1::Directive refused;
  refused.mutable_refused()->set_code(4711);
  EXPECT_EQ(std::get<Refused>(*FromProto(refused)).status.code(), absl::StatusCode::kUnknown);
}

// A process that ends with 256 ends with 0.
TEST(ConvertTest, AFailedRunHasAnExitCodeOfAFailureWhateverTheServiceSays) {
  const auto finish = [](Verdict verdict) {
    const auto directive = FromProto(ToProto(Directive(Finish{std::move(verdict)})));
    return std::get<Finish>(*directive).verdict.exit_code;
  };
  for (const int code : {256, 0, -1, 512, 1 << 30}) {
    EXPECT_EQ(finish({.success = false, .exit_code = code}), 1) << code;
    const auto over = FromProto(ToProto(RunNews(RunOver{Verdict{.exit_code = code}})));
    EXPECT_EQ(std::get<RunOver>(*over).verdict->exit_code, 1) << code;
    v1::Directive refused;
    refused.mutable_refused()->set_exit_code(code);
    EXPECT_EQ(std::get<Refused>(*FromProto(refused)).exit_code, code == 0 ? 0 : 1) << code;
  }
  EXPECT_EQ(finish({.success = false, .exit_code = 255}), 255);
  EXPECT_EQ(finish({.success = true, .exit_code = 7}), 0);
  Failure drained;
  drained.kind = FailureKind::kNodeDrained;
  EXPECT_EQ(finish({.success = false, .cause = drained, .exit_code = 0}), 0);
}

TEST(ConvertTest, WhatIsLongIsCutAndTheLastLinesAreKept) {
  Failure failure;
  failure.message = std::string(kFailureMessageBytesMax + 100, 'x');
  for (std::size_t i = 0; i < kLastLinesMax + 5; ++i)
    failure.last_lines.push_back(std::to_string(i));
  failure.last_lines.back() = std::string(kLastLineBytesMax + 1, 'y');
  const auto report = FromProto(ToProto(Report(WorkerFailed{RoundId{1}, failure})));
  const Failure& cut = std::get<WorkerFailed>(*report).failure;
  EXPECT_EQ(cut.message.size(), kFailureMessageBytesMax);
  ASSERT_EQ(cut.last_lines.size(), kLastLinesMax);
  EXPECT_EQ(cut.last_lines.front(), "5");
  EXPECT_EQ(cut.last_lines.back().size(), kLastLineBytesMax);
}

TEST(ConvertTest, OutputThatIsNoTextStillParses) {
  Failure failure;
  for (const char* bytes :
       {"\xff", "a\xC3", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE0\x80\x80", "\xC0\x80"}) {
    failure.last_lines.push_back(bytes);
  }
  failure.last_lines.push_back("\xF0\x9F\x98\x80 fine");
  v1::Report message;
  ASSERT_TRUE(message.ParseFromString(
      ToProto(Report(WorkerFailed{RoundId{1}, failure})).SerializeAsString()));
  EXPECT_EQ(message.worker_failed().failure().last_lines(6), "\xF0\x9F\x98\x80 fine");
  EXPECT_EQ(message.worker_failed().failure().last_lines(1), "a?");
}

TEST(ConvertTest, AbsurdDurationsAreCut) {
  v1::StoreOp op;
  op.set_verb(v1::StoreOp::GET);
  op.mutable_timeout()->set_seconds(std::numeric_limits<std::int64_t>::max());
  EXPECT_LE(FromProto(op)->timeout, std::chrono::hours(24 * 367));
}

// Sums of them are shown to people and to Prometheus.
TEST(ConvertTest, ARateThatNoMachineHasIsCut) {
  for (const auto& [said, kept] : {std::pair{1e308, kRateMax},
                                   {310.5, 310.5},
                                   {-1.0, 0.0},
                                   {std::numeric_limits<double>::infinity(), 0.0},
                                   {std::numeric_limits<double>::quiet_NaN(), 0.0}}) {
    v1::Report message;
    message.mutable_heartbeat()->set_round(1);
    message.mutable_heartbeat()->mutable_progress()->set_rate(said);
    const auto report = FromProto(message);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(std::get<Heartbeat>(*report).progress.rate, kept) << said;
  }
}

}  // namespace
}  // namespace ddprun
