// SPDX-License-Identifier: Apache-2.0
#include "launcher/hosts/hosts_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/base/limits.h"
#include "proto/version.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Hello Greeting(const std::string& own = "", const std::string& head = "") {
  return {.protocol = kProtocolVersion,
          .version = kSoftwareVersion,
          .head_address = head,
          .own_address = own};
}

constexpr char kRunId[] = "run-1";

Finished Success(int nodes = 2) {
  return {.run_id = kRunId, .round = 1, .nodes = nodes, .world_size = nodes};
}

// A head and the effects of its last step, as short words.
class Head {
 public:
  explicit Head(int nodes, int nodes_min = 0, TransportKind kind = TransportKind::kSsh) {
    config_.plan.run_id = kRunId;
    config_.plan.nodes_max = nodes;
    config_.plan.nodes_min = nodes_min == 0 ? nodes : nodes_min;
    for (int node = 0; node < nodes; ++node) {
      config_.plan.names.push_back(std::string(1, static_cast<char>('a' + node)));
      config_.plan.nproc.emplace_back("1");
      if (kind == TransportKind::kSrun && node > 0) {
        config_.plan.transports[0].nodes.push_back(node);
        continue;
      }
      config_.plan.transports.push_back({.kind = kind,
                                         .nodes = {node},
                                         .commands = {{"ssh", "first"}, {"ssh", "second"}},
                                         .setup = {}});
    }
    config_.addresses.resize(config_.plan.names.size());
    config_.join_timeout = seconds(60);
    config_.term_timeout = seconds(10);
  }

  std::vector<std::string> Do(const HeadEvent& event) {
    words_.clear();
    for (const HeadEffect& effect : StepHead(state_, event, now_, config_)) Note(effect);
    return words_;
  }

  // Until the next deadline and over it.
  std::vector<std::string> WaitForDeadline() {
    now_ = *NextHeadDeadline(state_);
    return Do(HeadDeadlinePassed{});
  }

  void AllSayHello() {
    Do(HeadBegins{});
    for (int node = 0; node < static_cast<int>(config_.plan.names.size()); ++node)
      Do(MessageReceived{node, Greeting("10.0.0." + std::to_string(node + 1))});
  }

  // All run and are in the run.
  void AllRun() {
    AllSayHello();
    Do(MessageReceived{0, Serving{29500}});
    for (int node = 0; node < static_cast<int>(config_.plan.names.size()); ++node)
      Do(MessageReceived{node, Joined{}});
  }

  HeadConfig config_;
  HeadState state_;
  TimePoint now_ = TimePoint(seconds(1000));
  std::optional<EndHead> end_;
  std::vector<Go> gos_;

 private:
  void Note(const HeadEffect& effect) {
    if (const auto* start = std::get_if<StartTransport>(&effect)) {
      words_.push_back("start " + std::to_string(start->transport) + "." +
                       std::to_string(start->attempt));
    } else if (const auto* setup = std::get_if<SendSetup>(&effect)) {
      words_.push_back("setup " + std::to_string(setup->transport));
    } else if (const auto* go = std::get_if<SendGo>(&effect)) {
      words_.push_back("go " + std::to_string(go->transport));
      gos_.push_back(go->go);
    } else if (const auto* signal = std::get_if<SendSignal>(&effect)) {
      words_.push_back("signal " + std::to_string(signal->transport) + " " +
                       std::to_string(signal->signal));
    } else if (const auto* close = std::get_if<CloseControlPipe>(&effect)) {
      words_.push_back("close " + std::to_string(close->transport));
    } else if (const auto* end_transport = std::get_if<EndTransport>(&effect)) {
      words_.push_back("kill " + std::to_string(end_transport->transport) + " " +
                       std::to_string(end_transport->signal));
    } else if (const auto* show = std::get_if<ShowLine>(&effect)) {
      words_.push_back(show->line);
    } else if (const auto* end = std::get_if<EndHead>(&effect)) {
      words_.push_back("end " + std::to_string(end->exit_code));
      end_ = *end;
    }
  }

  std::vector<std::string> words_;
};

TEST(HostsHead, NobodyBeginsBeforeAllAreThere) {
  Head head(2);
  EXPECT_THAT(head.Do(HeadBegins{}), ElementsAre("start 0.0", "start 1.0"));
  EXPECT_THAT(head.Do(MessageReceived{1, Greeting("10.0.0.2")}), IsEmpty());
  // The first one alone: it opens the service.
  EXPECT_THAT(head.Do(MessageReceived{0, Greeting("10.0.0.1")}),
              ElementsAre("setup 0", "setup 1", "go 0"));
  EXPECT_TRUE(head.gos_[0].serve);
  EXPECT_THAT(head.gos_[0].flags, ElementsAre("--nnodes=2:2", "--master-addr=10.0.0.1"));
  EXPECT_THAT(head.Do(MessageReceived{0, Serving{4711}}), ElementsAre("go 1"));
  EXPECT_EQ(head.gos_[1].node_rank, 1);
  EXPECT_THAT(head.gos_[1].flags,
              ElementsAre("--nnodes=2:2", "--master-addr=10.0.0.1", "--master-port=4711"));
}

TEST(HostsHead, AServiceElsewhereNeedsNoFirstNode) {
  Head head(2);
  head.config_.plan.endpoint = Endpoint{"::1", 29400};
  head.AllSayHello();
  ASSERT_EQ(head.gos_.size(), 2u);
  EXPECT_THAT(head.gos_[0].flags, Contains("--rdzv-endpoint=[::1]:29400"));
  EXPECT_FALSE(head.gos_[0].serve);
}

TEST(HostsHead, AllServicesAreNamedToTheHosts) {
  Head head(2);
  head.config_.plan.endpoint = Endpoint{"a", 29400, {{"b", 29401}}};
  head.AllSayHello();
  ASSERT_EQ(head.gos_.size(), 2u);
  EXPECT_THAT(head.gos_[1].flags, Contains("--rdzv-endpoint=a:29400,b:29401"));
}

TEST(HostsHead, OneNodeMeetsNobody) {
  Head head(1);
  head.AllSayHello();
  ASSERT_EQ(head.gos_.size(), 1u);
  EXPECT_THAT(head.gos_[0].flags, ElementsAre("--nnodes=1:1"));
}

TEST(HostsHead, SrunsNodesAllHearTheSame) {
  Head head(3, 3, TransportKind::kSrun);
  EXPECT_THAT(head.Do(HeadBegins{}), ElementsAre("start 0.0"));
  for (int node = 0; node < 3; ++node) head.Do(MessageReceived{node, Greeting()});
  EXPECT_EQ(head.gos_.at(0).node, 0);
  EXPECT_THAT(head.Do(MessageReceived{0, Serving{4711}}), ElementsAre("go 0"));
  EXPECT_EQ(head.gos_.at(1).node, -1);
  EXPECT_EQ(head.gos_.at(1).node_rank, std::nullopt);
  EXPECT_THAT(head.gos_[1].flags, Contains("--master-addr=a"));
}

TEST(HostsHead, NotTooManyStartAtOnce) {
  const int count = kHostsStartingMax + 2;
  Head head(count);
  EXPECT_EQ(head.Do(HeadBegins{}).size(), static_cast<std::size_t>(kHostsStartingMax));
  EXPECT_THAT(head.Do(MessageReceived{3, Greeting()}),
              ElementsAre("start " + std::to_string(kHostsStartingMax) + ".0"));
}

TEST(HostsHead, LooksForDdprunInThePathThere) {
  Head head(2);
  head.Do(HeadBegins{});
  EXPECT_THAT(head.Do(TransportEnded{1, Exited{127}}), ElementsAre("start 1.1"));
  head.Do(LineReceived{1, "sh: ddprun: not found"});
  EXPECT_THAT(head.Do(TransportEnded{1, Exited{127}}), ElementsAre("close 0", "kill 0 15"));
  head.Do(TransportEnded{0, Signaled{SIGTERM}});
  ASSERT_TRUE(head.end_.has_value());
  EXPECT_EQ(head.end_->exit_code, 1);
  EXPECT_THAT(head.end_->text, HasSubstr("b has no ddprun"));
  EXPECT_THAT(head.end_->text, HasSubstr("not found"));
}

TEST(HostsHead, AnotherVersionIsNamed) {
  Head head(2);
  head.Do(HeadBegins{});
  Hello other = Greeting();
  other.protocol += 1;
  other.version = "9.9";
  EXPECT_THAT(head.Do(MessageReceived{1, other}),
              ElementsAre("close 1", "close 0", "kill 0 15", "close 1", "kill 1 15"));
  head.Do(TransportEnded{0, Signaled{SIGTERM}});
  head.Do(TransportEnded{1, Exited{1}});
  EXPECT_THAT(head.end_->text, HasSubstr("b has ddprun 9.9"));
}

TEST(HostsHead, GoesOnWithFewerWhereThatIsAllowed) {
  Head head(3, 2);
  head.Do(HeadBegins{});
  head.Do(MessageReceived{1, Greeting("10.0.0.2")});
  head.Do(MessageReceived{2, Greeting("10.0.0.3")});
  head.Do(LineReceived{0, "ssh: Could not resolve hostname a"});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{255}}),
              ElementsAre(HasSubstr("going on without it"), "setup 1", "setup 2", "go 1"));
  EXPECT_EQ(head.gos_.at(0).node_rank, 0);
  EXPECT_THAT(head.gos_[0].flags, ElementsAre("--nnodes=2:2", "--master-addr=10.0.0.2"));
}

TEST(HostsHead, HostsAboveTheNumberOfNodesStandBy) {
  Head head(3, 2);
  head.config_.plan.nodes_max = 2;
  head.AllSayHello();
  head.Do(MessageReceived{0, Serving{1}});
  EXPECT_EQ(head.gos_.at(2).node_rank, std::nullopt);
  EXPECT_THAT(head.gos_[2].flags, ElementsAre("--nnodes=2:2", "--rdzv-endpoint=10.0.0.1:1"));
}

// Whether the host that cannot be reached is the last or the first of which the head hears.
TEST(HostsHead, AHostThatIsNotReachedDoesNotCountAgainstARunOfOne) {
  for (const bool last : {false, true}) {
    Head head(2, 1);
    head.Do(HeadBegins{});
    if (last) head.Do(MessageReceived{0, Greeting()});
    head.Do(TransportEnded{1, Exited{255}});
    if (!last) head.Do(MessageReceived{0, Greeting()});
    EXPECT_EQ(head.state_.phase, HeadPhase::kRunning);
    EXPECT_EQ(NextHeadDeadline(head.state_), std::nullopt);
    head.Do(MessageReceived{0, Success(1)});
    EXPECT_THAT(head.Do(TransportEnded{0, Exited{0}}), ElementsAre("end 0"));
  }
}

TEST(HostsHead, AHostThatStandsByTakesALostNodesPlace) {
  Head head(3, 2);
  head.config_.plan.nodes_max = 2;
  head.AllRun();
  head.Do(TransportEnded{1, Exited{255}});
  EXPECT_EQ(NextHeadDeadline(head.state_), std::nullopt);
  head.Do(TransportEnded{2, Exited{255}});
  EXPECT_THAT(head.WaitForDeadline(), ElementsAre("signal 0 15"));
}

TEST(HostsHead, HostsThatDoNotAnswerAreGivenUp) {
  Head head(2);
  head.Do(HeadBegins{});
  head.Do(MessageReceived{0, Greeting()});
  EXPECT_THAT(head.WaitForDeadline(), ElementsAre(HasSubstr("waiting for ddprun on b to answer")));
  EXPECT_THAT(head.WaitForDeadline(), ElementsAre("kill 1 15", "close 0", "close 1", "kill 1 15"));
  EXPECT_THAT(head.WaitForDeadline(), ElementsAre("kill 0 9", "kill 1 9"));
  EXPECT_THAT(head.WaitForDeadline(), ElementsAre("end 1"));
  EXPECT_THAT(head.end_->text, HasSubstr("ddprun on b has not answered in time"));
}

TEST(HostsHead, ARunOfOneNodeRunsOnceThoughMoreHostsAreGiven) {
  Head head(2, 1);
  head.config_.plan.nodes_max = 1;
  head.Do(HeadBegins{});
  head.Do(MessageReceived{0, Greeting()});
  EXPECT_THAT(head.Do(MessageReceived{1, Greeting()}),
              ElementsAre("setup 0", "setup 1", "go 0", "close 1"));
  head.Do(TransportEnded{1, Exited{1}});
  EXPECT_EQ(NextHeadDeadline(head.state_), std::nullopt);
  head.Do(MessageReceived{0, Success(1)});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{0}}), ElementsAre("end 0"));
}

TEST(HostsHead, TheFirstNodesVerdictIsTheRuns) {
  Head head(2);
  head.AllRun();
  head.Do(MessageReceived{1, NodeVerdict{"from b\n"}});
  head.Do(TransportEnded{1, Exited{7}});
  head.Do(MessageReceived{0, NodeVerdict{"from a\n"}});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{7}}), ElementsAre("end 7"));
  EXPECT_EQ(head.end_->text, "from a\n");
}

TEST(HostsHead, SuccessSaysNothing) {
  Head head(2);
  head.AllRun();
  head.Do(MessageReceived{0, Success()});
  head.Do(TransportEnded{0, Exited{0}});
  head.Do(MessageReceived{1, Success()});
  EXPECT_THAT(head.Do(TransportEnded{1, Exited{0}}), ElementsAre("end 0"));
  EXPECT_EQ(head.end_->text, "");
}

// A wrapper, another program or a hostile host may end with 0 at any point.
TEST(HostsHead, AnExitCodeOfZeroAloneIsNoSuccess) {
  for (const int liar : {0, 1}) {
    for (const int steps : {0, 1, 2}) {
      Head head(2);
      head.AllSayHello();
      if (steps > 0 || liar == 1) head.Do(MessageReceived{0, Serving{29500}});
      if (steps > 1) head.Do(MessageReceived{liar, Joined{}});
      head.Do(LineReceived{liar, "done"});
      head.Do(TransportEnded{liar, Exited{0}});
      if (!head.end_.has_value()) head.Do(TransportEnded{1 - liar, Exited{143}});
      ASSERT_TRUE(head.end_.has_value());
      EXPECT_EQ(head.end_->exit_code, 1);
      EXPECT_THAT(head.end_->text,
                  HasSubstr(std::string("ddprun on ") + (liar == 0 ? "a" : "b") +
                            " ended with exit code 0 and did not report that the run had "
                            "finished: done; check what"));
    }
  }
}

TEST(HostsHead, ANodeThatEndsWhileTheServiceIsOpenedIsTheCause) {
  Head head(2);
  head.AllSayHello();
  EXPECT_THAT(head.Do(TransportEnded{1, Exited{0}}), ElementsAre("signal 0 15"));
  head.Do(MessageReceived{0, NodeVerdict{"interrupted\n"}});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{143}}), ElementsAre("end 1"));
  EXPECT_THAT(head.end_->text, HasSubstr("ddprun on b ended with exit code 0"));
}

TEST(HostsHead, ALiarsSuccessNeedsTheOthers) {
  Head head(2);
  head.AllRun();
  head.Do(MessageReceived{1, Success()});
  head.Do(TransportEnded{1, Exited{0}});
  EXPECT_EQ(NextHeadDeadline(head.state_), std::nullopt);  // it may be the first of two
  head.Do(MessageReceived{0, NodeVerdict{"node b did not succeed\n"}});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{1}}), ElementsAre("end 1"));
  EXPECT_EQ(head.end_->text, "node b did not succeed\n");
}

TEST(HostsHead, NodesThatReportDifferentEndsHaveNotFinishedOneRun) {
  Head head(2);
  head.AllRun();
  head.Do(MessageReceived{0, Success()});
  head.Do(TransportEnded{0, Exited{0}});
  head.Do(MessageReceived{1, Success(1)});
  head.Do(TransportEnded{1, Exited{0}});
  EXPECT_EQ(head.end_->exit_code, 1);
  EXPECT_THAT(head.end_->text, HasSubstr("a and b reported different ends of the run"));
}

TEST(HostsHead, AnotherRunsSuccessAndOneBeforeTheBeginAreNone) {
  Head head(1);
  head.Do(HeadBegins{});
  head.Do(MessageReceived{0, Success(1)});
  head.Do(MessageReceived{0, Greeting()});
  Finished other = Success(1);
  other.run_id = "yesterday";
  head.Do(MessageReceived{0, other});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{0}}), ElementsAre("end 1"));
}

TEST(HostsHead, AConnectionThatEndsWithTheRunCostsNoSuccess) {
  Head head(2);
  head.AllRun();
  head.Do(TransportEnded{1, Exited{255}});
  head.Do(MessageReceived{0, Success()});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{0}}), ElementsAre("end 0"));
}

TEST(HostsHead, ANodeThatWasLetGoIsMissedByNobody) {
  Head head(2, 1);
  head.AllRun();
  head.Do(MessageReceived{1, NodeVerdict{"drained\n"}});
  head.Do(TransportEnded{1, Exited{0}});
  EXPECT_EQ(NextHeadDeadline(head.state_), std::nullopt);
  head.Do(MessageReceived{0, Success(1)});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{0}}), ElementsAre("end 0"));
}

TEST(HostsHead, AnotherMachinesBytesReachTheTerminalWithoutEscapes) {
  Head head(2);
  head.Do(HeadBegins{});
  head.Do(MessageReceived{0, Greeting()});
  head.Do(MessageReceived{1, Greeting()});
  EXPECT_THAT(head.Do(LineReceived{1, "a\x1b]0;title\a\x1b[2Jb\rc"}),
              ElementsAre("[b] a?]0;title?b?c"));
}

TEST(HostsHead, ANodeThatNeverJoinedStopsTheOthersAtOnce) {
  Head head(2);
  head.AllSayHello();
  head.Do(MessageReceived{0, Serving{1}});
  head.Do(MessageReceived{0, Joined{}});
  head.Do(LineReceived{1, "ddprun: there is no program 'x'"});
  EXPECT_THAT(head.Do(TransportEnded{1, Exited{127}}), ElementsAre("signal 0 15"));
  head.Do(MessageReceived{0, NodeVerdict{"interrupted\n"}});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{143}}), ElementsAre("end 127"));
  EXPECT_THAT(head.end_->text,
              HasSubstr("ddprun on b ended with exit code 127: there is no program"));
}

TEST(HostsHead, ANodeThatIsLostLeavesTheOthersTimeForTheirVerdict) {
  Head head(2);
  head.AllRun();
  EXPECT_THAT(head.Do(TransportEnded{1, Exited{255}}), IsEmpty());
  head.now_ += seconds(3);
  head.Do(MessageReceived{0, NodeVerdict{"node b left\n"}});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{1}}), ElementsAre("end 1"));
  EXPECT_EQ(head.end_->text, "node b left\n");
}

TEST(HostsHead, ALostNodeThatTheOthersWaitForEndsThemAfterAll) {
  Head head(2);
  head.AllRun();
  head.Do(TransportEnded{1, Exited{255}});
  EXPECT_THAT(head.WaitForDeadline(), ElementsAre("signal 0 15"));
  EXPECT_THAT(head.WaitForDeadline(), ElementsAre("close 0"));
  EXPECT_THAT(head.WaitForDeadline(), ElementsAre("kill 0 9"));
  head.Do(TransportEnded{0, Signaled{SIGKILL}});
  EXPECT_EQ(head.end_->exit_code, 1);
  EXPECT_THAT(head.end_->text, HasSubstr("the connection to b ended"));
}

TEST(HostsHead, AnElasticRunGoesOnWithoutALostNode) {
  Head head(2, 1);
  head.AllRun();
  head.Do(TransportEnded{1, Exited{255}});
  EXPECT_EQ(NextHeadDeadline(head.state_), std::nullopt);
  head.Do(MessageReceived{0, Success(1)});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{0}}), ElementsAre("end 0"));
}

TEST(HostsHead, TheFirstNodesLossIsTheCause) {
  Head head(2, 2, TransportKind::kDirect);
  head.AllRun();
  head.Do(TransportEnded{0, Signaled{SIGKILL}});
  head.Do(MessageReceived{1, NodeVerdict{"lost the service\n"}});
  EXPECT_THAT(head.Do(TransportEnded{1, Exited{1}}), ElementsAre("end 137"));
  EXPECT_THAT(head.end_->text, HasSubstr("ddprun on a was killed by SIGKILL"));
}

TEST(HostsHead, SignalsArePassedOnAndEndWhatDoesNotListen) {
  Head head(2);
  head.AllRun();
  EXPECT_THAT(head.Do(HeadSignaled{.signal = SIGINT}), ElementsAre("signal 0 2", "signal 1 2"));
  EXPECT_THAT(head.Do(HeadSignaled{.signal = SIGINT}), IsEmpty());  // an echo
  head.now_ += kSignalEchoTime;
  EXPECT_THAT(head.Do(HeadSignaled{.signal = SIGINT}), ElementsAre("signal 0 2", "signal 1 2"));
  EXPECT_THAT(head.WaitForDeadline(), ElementsAre("close 0", "close 1"));
  head.Do(TransportEnded{0, Exited{130}});
  EXPECT_THAT(head.Do(TransportEnded{1, Exited{130}}), ElementsAre("end 130"));
  EXPECT_THAT(head.end_->text, HasSubstr("run ended: ddprun got SIGINT"));
}

TEST(HostsHead, AFirstSignalIsNoSecondOneForNodesThatWereToldToStop) {
  Head head(2);
  head.AllSayHello();
  head.Do(MessageReceived{0, Serving{1}});
  head.Do(MessageReceived{0, Joined{}});
  EXPECT_THAT(head.Do(TransportEnded{1, Exited{127}}), ElementsAre("signal 0 15"));
  head.now_ += seconds(1);
  EXPECT_THAT(head.Do(HeadSignaled{.signal = SIGINT}), IsEmpty());
  head.now_ += kSignalEchoTime;
  EXPECT_THAT(head.Do(HeadSignaled{.signal = SIGINT}), ElementsAre("signal 0 2"));
}

TEST(HostsHead, ASignalBeforeTheStartEndsAll) {
  Head head(2);
  head.Do(HeadBegins{});
  head.Do(MessageReceived{0, Greeting()});
  EXPECT_THAT(head.Do(HeadSignaled{.signal = SIGTERM}),
              ElementsAre("close 0", "close 1", "kill 1 15"));
  head.Do(TransportEnded{1, Signaled{SIGTERM}});
  EXPECT_THAT(head.Do(TransportEnded{0, Exited{1}}), ElementsAre("end 143"));
}

TEST(HostsHead, WhatAllSayIsShownOnce) {
  Head head(3);
  head.AllRun();
  const std::string note = "ddprun: restart 1 of 3";
  EXPECT_THAT(head.Do(LineReceived{1, note}), ElementsAre("[b] " + note));
  EXPECT_THAT(head.Do(LineReceived{0, note}), IsEmpty());
  EXPECT_THAT(head.Do(LineReceived{2, note}), IsEmpty());
  EXPECT_THAT(head.Do(LineReceived{2, note}), ElementsAre("[c] " + note));
  EXPECT_THAT(head.Do(LineReceived{0, note}), IsEmpty());
}

TEST(HostsHead, WhatIsSaidOnTheWayIsShownOnlyIfTheWayFails) {
  Head head(1);
  head.Do(HeadBegins{});
  EXPECT_THAT(head.Do(LineReceived{0, "Welcome to a!"}), IsEmpty());
  head.Do(MessageReceived{0, Greeting()});
  head.Do(TransportEnded{0, Exited{255}});
  EXPECT_THAT(head.end_->text, testing::Not(HasSubstr("Welcome")));
}

TEST(HostsHead, TheServiceIsWhereTheOthersReachIt) {
  Head head(2);
  head.AllSayHello();
  EXPECT_EQ(ServiceAddress(head.state_, head.config_), "10.0.0.1");
  head.config_.plan.master_addr = "ib0.a";
  EXPECT_EQ(ServiceAddress(head.state_, head.config_), "ib0.a");
  head.config_.plan.master_addr.clear();
  // The first node is here, and was reached by nobody: the other one has seen where we came from.
  head.config_.plan.transports[0].kind = TransportKind::kDirect;
  head.state_.nodes[0].hello = Greeting();
  head.state_.nodes[1].hello = Greeting("10.0.0.2", "10.0.0.7");
  EXPECT_EQ(ServiceAddress(head.state_, head.config_), "10.0.0.7");
  // A loopback is no address for another host.
  head.state_.nodes[1].hello = Greeting("10.0.0.2", "127.0.0.1");
  head.config_.addresses[0] = "10.0.0.9";
  EXPECT_EQ(ServiceAddress(head.state_, head.config_), "10.0.0.9");
  head.config_.addresses[0].clear();
  EXPECT_EQ(ServiceAddress(head.state_, head.config_), "a");
}

}  // namespace
}  // namespace ddprun
