// SPDX-License-Identifier: Apache-2.0
#include "launcher/agent/dry_run.h"

#include <gmock/gmock.h>

#include "proto/text.h"
#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const std::string& flags, int local_world_size) {
  std::vector<Place> places(static_cast<std::size_t>(local_world_size));
  for (Place& place : places) place.threads = 2;
  const Options options = ParsedLine(flags);
  // The workers of a second program come last.
  for (const ProgramSection& section : options.more_programs)
    places.resize(places.size() + static_cast<std::size_t>(*section.workers), {.program = 1});
  std::vector<Program> programs = {{"/bin/prog", {"prog", "a b", "--x=${local_rank}"}}};
  if (!options.more_programs.empty()) programs.push_back({"/bin/other", {"other"}});
  return DryRunText({.options = options,
                     .programs = programs,
                     .places = places,
                     .host = "here",
                     .topology = "s0.s1.here",
                     .secret = "the file t",
                     .inherited = {"HOME=/root", "RANK=7"}});
}

TEST(DryRunTest, OneNode) {
  EXPECT_THAT(Text("--master-port 1234 --rdzv-id job --role r", 4),
              AllOf(HasSubstr("/bin/prog 'a b' '--x=${local_rank}'\n"),
                    HasSubstr("4 here: ranks 0 to 3 of 4\n"), HasSubstr("1, this one alone"),
                    HasSubstr("no network"), HasSubstr("    RANK=0 to 3\n"),
                    HasSubstr("    WORLD_SIZE=4\n"), HasSubstr("    OMP_NUM_THREADS=2\n"),
                    HasSubstr("    MASTER_PORT=1234\n"), HasSubstr("    ROLE_NAME=r\n"),
                    HasSubstr("    TORCHELASTIC_RUN_ID=job\n"), Not(HasSubstr("HOME=")),
                    Not(HasSubstr("RANK=7")), Not(HasSubstr("preload"))));
  EXPECT_THAT(Text("--preload torch,numpy", 2),
              HasSubstr("  preload     torch, numpy, imported once; workers are forked\n"));
}

TEST(DryRunTest, SeveralPrograms) {
  EXPECT_THAT(Text("--role trainer p : --role eval:2", 3),
              AllOf(HasSubstr("(role trainer, 3 workers)\n"),
                    HasSubstr("/bin/other  (role eval, 2 workers)\n"),
                    HasSubstr("5 here: ranks 0 to 4 of 5\n"),
                    HasSubstr("environment of the workers of role trainer, in addition"),
                    HasSubstr("    RANK=0 to 2\n"), HasSubstr("    WORLD_SIZE=3\n"),
                    HasSubstr("    RANK=0 to 1\n"), HasSubstr("    LOCAL_WORLD_SIZE=2\n"),
                    HasSubstr("    ROLE_NAME=eval\n")));
  EXPECT_THAT(Text("--ranks-by run --role trainer p : --role eval:2", 3),
              AllOf(HasSubstr("    RANK=3 to 4\n"), HasSubstr("    WORLD_SIZE=5\n"),
                    HasSubstr("    ROLE_RANK=0 to 1\n")));
}

TEST(DryRunTest, TheOrderOfNodeRanks) {
  const std::string nodes = "--nnodes 2 --rdzv-endpoint h:1 --rank-order ";
  EXPECT_THAT(
      Text(nodes + "host", 1),
      HasSubstr("; its node rank is assigned at the rendezvous, in the order of host names"));
  EXPECT_THAT(Text(nodes + "topology", 1),
              HasSubstr("rendezvous, by topology, where its place is s0.s1.here\n"));
  EXPECT_THAT(
      Text(nodes + "host --node-rank 1", 1),
      AllOf(HasSubstr("; this one is node 1\n"),
            HasSubstr("note: --rank-order does not move this node, which asks for rank 1")));
}

TEST(DryRunTest, WrappedRanksAndStdin) {
  EXPECT_THAT(Text("--wrap 0-1:time --wrap 3:gdb --stdin 3", 4),
              AllOf(HasSubstr("  wrapped     ranks 0-1: time\n  wrapped     rank 3: gdb\n"),
                    HasSubstr("  stdin       of rank 3\n")));
  EXPECT_THAT(Text("--wrap all:time --stdin none", 2),
              AllOf(HasSubstr("all ranks: time\n"), HasSubstr("  stdin       of no worker\n")));
  EXPECT_THAT(Text("", 2), AllOf(Not(HasSubstr("wrapped")), Not(HasSubstr("stdin"))));
}

TEST(DryRunTest, ANodeWhoseRanksAreKnown) {
  EXPECT_THAT(Text("--nnodes 3 --node-rank 1 --master-addr a", 2),
              AllOf(HasSubstr("2 here: ranks 2 to 3 of 6, if every node has as many\n"),
                    HasSubstr("3; this one is node 1"), HasSubstr("a:29500, hosted by node 0"),
                    HasSubstr("    GROUP_RANK=1\n"), HasSubstr("    MASTER_PORT=<a port that"),
                    HasSubstr("the file t")));
}

TEST(DryRunTest, WhatIsNotKnownIsSaid) {
  const std::string text = Text("--nnodes 2:4 --rdzv-endpoint h:1", 2);
  EXPECT_THAT(text, AllOf(HasSubstr("2 to 4; its node rank is assigned at the rendezvous"),
                          HasSubstr("h:1, hosted elsewhere"),
                          HasSubstr("    RANK=<assigned at the rendezvous>\n"),
                          HasSubstr("    LOCAL_RANK=0 to 1\n")));
}

TEST(DryRunTest, WhereSeveralServicesAre) {
  EXPECT_THAT(Text("--nnodes 2 --rdzv-endpoint h:1,i:2", 2),
              HasSubstr("h:1,i:2, hosted elsewhere"));
  EXPECT_THAT(Text("--nnodes 2 --rdzv-endpoint h:1,i:2 --rdzv-id r --journal etcd://e:1", 2),
              HasSubstr("h:1,i:2, hosted by these machines; one leads, with the journal in "
                        "etcd://e:1"));
  EXPECT_THAT(Text("--nnodes 2 --rdzv-endpoint h:1,i:2 --rdzv-id r --standby-nodes 1", 2),
              HasSubstr("h:1,i:2, hosted by these machines; the first one leads"));
}

TEST(DryRunTest, WhereTheFlightRecorderDumps) {
  EXPECT_THAT(Text("", 2),
              AllOf(HasSubstr("    TORCH_FR_DUMP_TEMP_FILE=<a file that PyTorch writes"),
                    HasSubstr("    TORCH_NCCL_DUMP_ON_TIMEOUT=1\n")));
  EXPECT_THAT(Text("--flight-recorder off", 2), Not(HasSubstr("TORCH_FR")));
}

TEST(DryRunTest, TheSecretsSource) {
  const auto source = [](const std::string& flags, bool has_variable = false) {
    return SecretText(ParsedLine(flags), has_variable, From({{"HOME", "/nowhere"}}));
  };
  const std::string two = "--nnodes 2 --rdzv-endpoint h ";
  EXPECT_EQ(source(""), "none is needed");
  EXPECT_EQ(source(two + "--insecure"), "none: plain text (--insecure)");
  EXPECT_EQ(source(two + "--token-file t"), "the file t");
  EXPECT_EQ(source(two, true), "DDPRUN_TOKEN of the environment");
  EXPECT_EQ(source(two), "the file /nowhere/.config/ddprun/token, which would be created");
}

TEST(DryRunTest, WordsAsAShellTakesThemBack) {
  EXPECT_EQ(ShellQuote("--lr=0.1"), "--lr=0.1");
  EXPECT_EQ(ShellQuote(""), "''");
  EXPECT_EQ(ShellQuote("it's $5"), "'it'\\''s $5'");
}

}  // namespace
}  // namespace ddprun
