// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/options.h"
#include "launcher/command_line/parse_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_split.h"
#include "rendezvous/base/limits.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

auto Parse(const std::vector<std::string>& arguments, const Variables& variables = {}) {
  return ParseOptions(arguments, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

// `flags` are separated by spaces; the program `true` follows.
Options Parsed(const std::string& flags, const Variables& variables = {}) {
  std::vector<std::string> arguments = absl::StrSplit(flags, ' ', absl::SkipEmpty());
  arguments.push_back("true");
  auto parsed = Parse(arguments, variables);
  EXPECT_TRUE(parsed.ok()) << flags << ": " << parsed.status();
  return parsed.ok() ? std::get<Options>(*parsed) : Options{};
}

std::string Error(const std::string& flags, const Variables& variables = {}) {
  std::vector<std::string> arguments = absl::StrSplit(flags, ' ', absl::SkipEmpty());
  arguments.push_back("true");
  auto parsed = Parse(arguments, variables);
  EXPECT_FALSE(parsed.ok()) << flags;
  EXPECT_TRUE(absl::IsInvalidArgument(parsed.status()));
  return std::string(parsed.status().message());
}

TEST(OptionsTest, DefaultsAreOneWorkerHere) {
  const Options options = Parsed("");
  EXPECT_EQ(options.nodes, 1);
  EXPECT_EQ(options.proc_per_node, ProcPerNode::kNumber);
  EXPECT_EQ(options.proc_per_node_number, 1);
  EXPECT_EQ(options.node_rank, std::nullopt);
  EXPECT_EQ(options.master_port, std::nullopt);
  EXPECT_EQ(options.restarts.max_restarts, 0);
  EXPECT_EQ(options.join_timeout, kJoinTimeoutDefault);
  EXPECT_THAT(options.program, ElementsAre("true"));
}

// Each flag that takes a value, in both spellings, with both ways to give it, and as a variable.
struct FlagCase {
  std::string flag;
  std::string value;
  std::string needed;  // other flags without which it makes no sense
  std::function<bool(const Options&)> holds;
};

const FlagCase kFlagCases[] = {
    {"--nnodes", "3", "--master-addr a --node-rank 0",
     [](const Options& o) { return o.nodes == 3; }},
    {"--nproc-per-node", "4", "", [](const Options& o) { return o.proc_per_node_number == 4; }},
    {"--nproc-per-node", "gpu", "",
     [](const Options& o) { return o.proc_per_node == ProcPerNode::kGpu; }},
    {"--nproc-per-node", "cpu", "",
     [](const Options& o) { return o.proc_per_node == ProcPerNode::kCpu; }},
    {"--nproc-per-node", "auto", "",
     [](const Options& o) { return o.proc_per_node == ProcPerNode::kAuto; }},
    {"--nproc-per-node", "xpu", "",
     [](const Options& o) { return o.proc_per_node == ProcPerNode::kXpu; }},
    {"--nproc-per-node", "npu", "",
     [](const Options& o) { return o.proc_per_node == ProcPerNode::kNpu; }},
    {"--ntasks", "4", "", [](const Options& o) { return o.total_workers == 4; }},
    {"--wrap", "0:gdb", "", [](const Options& o) { return o.wraps.size() == 1; }},
    {"--stdin", "0", "",
     [](const Options& o) { return o.worker_stdin.to == WorkerStdin::To::kRank; }},
    {"--node-rank", "1", "--nnodes 2 --master-addr a",
     [](const Options& o) { return o.node_rank == 1; }},
    {"--master-addr", "10.0.0.1", "", [](const Options& o) { return o.master_addr == "10.0.0.1"; }},
    {"--master-port", "1234", "", [](const Options& o) { return o.master_port == 1234; }},
    {"--max-restarts", "5", "", [](const Options& o) { return o.restarts.max_restarts == 5; }},
    {"--restart-window", "60", "",
     [](const Options& o) { return o.restarts.policy.window == std::chrono::seconds(60); }},
    {"--restart-reset", "1.5", "",
     [](const Options& o) { return o.restarts.policy.reset == std::chrono::milliseconds(1500); }},
    {"--no-progress-restarts", "3", "",
     [](const Options& o) { return o.restarts.policy.no_progress_max == 3; }},
    {"--no-restart-exit-codes", "2", "",
     [](const Options& o) {
       return o.restarts.policy.never_codes == std::vector<ExitCodeRange>{{2, 2}};
     }},
    {"--restart-exit-codes", "SIGKILL", "",
     [](const Options& o) {
       return o.restarts.policy.only_codes == std::vector<ExitCodeRange>{{137, 137}};
     }},
    {"--restart-delay", "2", "",
     [](const Options& o) { return o.restarts.policy.delay == std::chrono::seconds(2); }},
    {"--node-failures-max", "3", "",
     [](const Options& o) { return o.restarts.policy.node_failures_max == 3; }},
    {"--node-cooldown", "600", "--node-failures-max 2",
     [](const Options& o) { return o.restarts.policy.node_cooldown == std::chrono::minutes(10); }},
    {"--log-time", "utc", "", [](const Options& o) { return o.logs.time == LogTime::kUtc; }},
    {"--log-dir", "logs", "", [](const Options& o) { return o.logs.log_dir == "logs"; }},
    {"--rdzv-id", "job7", "", [](const Options& o) { return o.run_id == "job7"; }},
    {"--rdzv-endpoint", "h:1", "",
     [](const Options& o) {
       return o.endpoint == Endpoint{"h", 1};
     }},
    {"--rdzv-backend", "c10d", "", [](const Options&) { return true; }},
    {"--rdzv-conf", "timeout=7", "",
     [](const Options& o) { return o.join_timeout == std::chrono::seconds(7); }},
    {"--join-timeout", "1.5", "",
     [](const Options& o) { return o.join_timeout == std::chrono::milliseconds(1500); }},
    {"--nnodes", "2:4", "--rdzv-endpoint a",
     [](const Options& o) { return o.nodes_min == 2 && o.nodes == 4; }},
    {"--rdzv-conf", "last_call_timeout=3", "",
     [](const Options& o) { return o.last_call == std::chrono::seconds(3); }},
    {"--last-call", "2", "",
     [](const Options& o) { return o.last_call == std::chrono::seconds(2); }},
    {"--lease", "0.5", "",
     [](const Options& o) { return o.lease == std::chrono::milliseconds(500); }},
    {"--term-timeout", "3", "",
     [](const Options& o) { return o.stopping.shutdown_timeout == std::chrono::seconds(3); }},
    {"--local-addr", "10.0.0.2", "", [](const Options& o) { return o.local_addr == "10.0.0.2"; }},
    {"--role", "trainer", "", [](const Options& o) { return o.role == "trainer"; }},
    {"--preload", "torch,numpy.random", "",
     [](const Options& o) {
       return o.preload == std::vector<std::string>{"torch", "numpy.random"};
     }},
};

std::string Replaced(std::string text, char from, char to) {
  std::replace(text.begin() + 2, text.end(), from, to);
  return text;
}

std::string Variable(const std::string& flag) {
  std::string name = "PET_" + Replaced(flag, '-', '_').substr(2);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(toupper(c)); });
  return name;
}

TEST(OptionsTest, EveryFlagInBothSpellingsAndAsAVariable) {
  for (const FlagCase& one : kFlagCases) {
    const std::string other = Replaced(one.flag, '-', '_');
    for (const std::string& flag : {one.flag, other}) {
      EXPECT_TRUE(one.holds(Parsed(one.needed + " " + flag + " " + one.value)))
          << flag << " " << one.value;
      EXPECT_TRUE(one.holds(Parsed(one.needed + " " + flag + "=" + one.value)))
          << flag << "=" << one.value;
    }
    EXPECT_TRUE(one.holds(Parsed(one.needed, {{Variable(one.flag), one.value}})))
        << Variable(one.flag);
  }
}

TEST(OptionsTest, Switches) {
  EXPECT_TRUE(Parsed("--standalone").standalone);
  EXPECT_TRUE(Parsed("--module").module);
  EXPECT_TRUE(Parsed("-m").module);
  EXPECT_TRUE(Parsed("--no-python").no_python);
  EXPECT_TRUE(Parsed("--no_python").no_python);
  EXPECT_TRUE(Parsed("", {{"PET_STANDALONE", "1"}}).standalone);
  EXPECT_FALSE(Parsed("", {{"PET_STANDALONE", "0"}}).standalone);
}

TEST(OptionsTest, CommandLineBeforeVariableBeforeDefault) {
  const Variables variables = {{"PET_MAX_RESTARTS", "4"}};
  EXPECT_EQ(Parsed("--max-restarts 2", variables).restarts.max_restarts, 2);
  EXPECT_EQ(Parsed("", variables).restarts.max_restarts, 4);
}

TEST(OptionsTest, WhatFollowsTheProgramIsItsOwn) {
  const auto parsed = Parse({"--nproc-per-node", "2", "prog", "--nnodes", "9", "-x", "--", "$$",
                             "--help", "${local_rank}", ""});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Options& options = std::get<Options>(*parsed);
  EXPECT_EQ(options.nodes, 1);
  EXPECT_EQ(options.proc_per_node_number, 2);
  EXPECT_THAT(options.program, ElementsAre("prog", "--nnodes", "9", "-x", "--", "$$", "--help",
                                           "${local_rank}", ""));
}

TEST(OptionsTest, DashesMayStandBeforeTheProgram) {
  const auto parsed = Parse({"--nproc-per-node", "2", "--", "-odd-name", "--", "x"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(std::get<Options>(*parsed).program, ElementsAre("-odd-name", "--", "x"));
}

TEST(OptionsTest, ModuleTakesTheProgramAfterIt) {
  const auto parsed = Parse({"-m", "pkg.mod", "-v"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(std::get<Options>(*parsed).module);
  EXPECT_THAT(std::get<Options>(*parsed).program, ElementsAre("pkg.mod", "-v"));
}

TEST(OptionsTest, Endpoints) {
  EXPECT_EQ(Parsed("--rdzv-endpoint node0").endpoint, (Endpoint{"node0", 29400}));
  EXPECT_EQ(Parsed("--rdzv-endpoint [::1]:7").endpoint, (Endpoint{"::1", 7}));
  EXPECT_EQ(Parsed("--rdzv-endpoint [fe80::2]").endpoint, (Endpoint{"fe80::2", 29400}));
  EXPECT_EQ(Parsed("--rdzv-endpoint fe80::2").endpoint, (Endpoint{"fe80::2", 29400}));
  const std::optional<Endpoint> several = Parsed("--rdzv-endpoint a,b:5,[::1]:7").endpoint;
  EXPECT_EQ(several, (Endpoint{"a", 29400, {{"b", 5}, {"::1", 7}}}));
  EXPECT_EQ(EndpointText(*several), "a:29400,b:5,[::1]:7");
  for (const char* bad :
       {"h:", ":5", "h:65536", "h:x", "[::1", "[::1]x", "[::1]:", "a,", "a,b:0"}) {
    EXPECT_THAT(Error(std::string("--rdzv-endpoint ") + bad), HasSubstr("--rdzv-endpoint")) << bad;
  }
}

TEST(OptionsTest, AJournalIsInEtcdAndNeedsTheServicesAndAName) {
  const std::string all = "--rdzv-endpoint a,b --rdzv-id job --journal ";
  EXPECT_EQ(Parsed(all + "etcd://e:2379/p").journal, "etcd://e:2379/p");
  EXPECT_THAT(Error(all + "/var/lib/journal"), HasSubstr("is ddprun-rendezvous's"));
  EXPECT_THAT(Error(all + "etcd://e"), HasSubstr("without host or port"));
  EXPECT_THAT(Error("--rdzv-endpoint a,b --journal etcd://e:1"), HasSubstr("--rdzv-id"));
  EXPECT_THAT(Error("--rdzv-id job --journal etcd://e:1"), HasSubstr("--rdzv-endpoint"));
  // Without the authority it would be plain text.
  EXPECT_THAT(Error(all + "etcd://e:1 --journal-tls-cert c --journal-tls-key k"),
              HasSubstr("--journal-tls-ca"));
  EXPECT_THAT(Error("--rdzv-endpoint a,b --rdzv-id job --journal-tls-ca c"),
              HasSubstr("need a journal in etcd"));
}

TEST(OptionsTest, CopiesOfTheJournalNeedTheServicesAndAName) {
  const std::string all = "--rdzv-endpoint a,b,c --rdzv-id job --standby-nodes ";
  EXPECT_EQ(Parsed(all + "2").standby_nodes, 2);
  EXPECT_THAT(Error(all + "1"), HasSubstr("--rdzv-endpoint with 2 machines"));
  EXPECT_THAT(Error("--rdzv-id job --standby-nodes 1"), HasSubstr("--rdzv-endpoint with 2"));
  EXPECT_THAT(Error("--rdzv-endpoint a,b --standby-nodes 1"), HasSubstr("--rdzv-id"));
  EXPECT_THAT(Error(all + "2 --journal etcd://e:1"), HasSubstr("contradict each other"));
}

TEST(OptionsTest, AnotherRoundNeedsARestartOrNodesThatComeAndGo) {
  EXPECT_TRUE(HasOneRound(Parsed("--nnodes 2 --master-addr a --node-rank 0")));
  EXPECT_FALSE(HasOneRound(Parsed("--max-restarts 1")));
  EXPECT_FALSE(HasOneRound(Parsed("--nnodes 1:2 --rdzv-endpoint a")));
}

TEST(OptionsTest, HelpAndVersion) {
  for (const char* flag : {"--help", "-h"}) {
    const auto parsed = Parse({flag});
    ASSERT_TRUE(parsed.ok());
    EXPECT_THAT(std::get<ShowText>(*parsed).text, HasSubstr("--nproc-per-node"));
  }
  const auto parsed = Parse({"--version"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(std::get<ShowText>(*parsed).text, std::string("ddprun ") + DDPRUN_VERSION + "\n");
}

TEST(OptionsTest, ErrorsNameTheFlagAndTheValue) {
  EXPECT_THAT(Error("--nodes 2"),
              AllOf(HasSubstr("unknown flag --nodes"), HasSubstr("see ddprun --help")));
  EXPECT_THAT(Error("--nnodes x"), HasSubstr("--nnodes 'x' is not a number of nodes"));
  EXPECT_THAT(Error("--nnodes 0"), HasSubstr("--nnodes '0'"));
  EXPECT_THAT(Error("--nnodes 2:1"), HasSubstr("--nnodes '2:1'"));
  EXPECT_THAT(Error("--nnodes 1:2:3"), HasSubstr("--nnodes '1:2:3'"));
  EXPECT_THAT(Error("--nproc-per-node many"), HasSubstr("--nproc-per-node 'many' is not"));
  EXPECT_THAT(Error("--nproc-per-node 0"), HasSubstr("--nproc-per-node '0' is not"));
  EXPECT_THAT(Error("--node-rank -1"), HasSubstr("--node-rank '-1' is not"));
  EXPECT_THAT(Error("--node-rank 2 --nnodes 2 --master-addr a"),
              HasSubstr("--node-rank 2 is not below --nnodes 2"));
  EXPECT_THAT(Error("--master-port 70000"), HasSubstr("--master-port '70000' is not"));
  EXPECT_THAT(Error("--max-restarts -3"), HasSubstr("--max-restarts '-3' is not"));
  EXPECT_THAT(Error("--rdzv-backend etcd"), AllOf(HasSubstr("etcd"), HasSubstr("--journal")));
  EXPECT_THAT(Error("--lease 0.01"), HasSubstr("--lease 10 ms is too short; give 100 ms"));
  EXPECT_THAT(Error("--rdzv-conf timeout"), HasSubstr("--rdzv-conf timeout '' is not"));
  EXPECT_THAT(Error("--join-timeout 0"), HasSubstr("--join-timeout '0' is not"));
  EXPECT_THAT(Error("--join-timeout nan"), HasSubstr("--join-timeout 'nan' is not"));
  EXPECT_THAT(Error("--term-timeout 90000"), HasSubstr("up to 86400"));
  EXPECT_THAT(Error("--rdzv-id a/b"), HasSubstr("--rdzv-id 'a/b'"));
  for (const char* modules : {",", "torch,", "a-b", "a..b", "1a", "a/b", "torch;numpy"}) {
    EXPECT_THAT(Error(std::string("--preload ") + modules),
                HasSubstr("is not a list of up to 64 Python modules"));
  }
  EXPECT_THAT(Error("", {{"PET_NNODES", "x"}}), HasSubstr("PET_NNODES 'x'"));
  EXPECT_THAT(Error("", {{"PET_STANDALONE", "maybe"}}), HasSubstr("PET_STANDALONE 'maybe'"));
}

TEST(OptionsTest, ErrorsOfFlagsThatDoNotGoTogether) {
  EXPECT_THAT(Error("--nnodes 2"), HasSubstr("--master-addr"));
  EXPECT_THAT(Error("--nnodes 2 --master-addr a"), HasSubstr("--node-rank, 0 to 1"));
  EXPECT_THAT(Error("--nnodes 2 --standalone"), HasSubstr("--standalone"));
  EXPECT_THAT(Error("-m --no-python"), HasSubstr("contradict"));
  const auto nothing = Parse({"--nproc-per-node", "2"});
  EXPECT_THAT(std::string(nothing.status().message()), HasSubstr("no program is named"));
  const auto no_value = Parse({"--nnodes"});
  EXPECT_THAT(std::string(no_value.status().message()), HasSubstr("--nnodes"));
}

}  // namespace
}  // namespace ddprun
