// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun {
namespace {

LogRound TwoWorkers() {
  return {.log_dir = "/logs",
          .log_dir_is_chosen = true,
          .run_id = "job7",
          .host = "a",
          .role = "trainer",
          .round = 3,
          .node_rank = 0,
          .node_count = 1,
          .rank_first = 4,
          .local_world_size = 2};
}

LogOptions With(const char* redirects, const char* tee) {
  LogOptions options;
  options.redirects = *ParseStreamSpec(redirects);
  options.tee = *ParseStreamSpec(tee);
  return options;
}

TEST(LogPlanTest, WithoutAFolderAllIsOnTheConsole) {
  LogRound round = TwoWorkers();
  round.log_dir.clear();
  const LogPlan plan = PlanLogs({}, round);
  ASSERT_EQ(plan.workers.size(), 2u);
  EXPECT_EQ(plan.workers[1].rank, 5);
  EXPECT_EQ(plan.workers[1].prefix, "[5] ");
  EXPECT_EQ(plan.workers[1].out.file, "");
  EXPECT_TRUE(plan.workers[1].out.on_console);
  EXPECT_TRUE(plan.workers[1].err.on_console);
}

TEST(LogPlanTest, LinesOfSeveralProgramsHaveTheirRole) {
  LogRound round = TwoWorkers();
  round.roles = {"trainer", "eval"};
  EXPECT_EQ(PlanLogs({}, round).workers[1].prefix, "[5 eval] ");
  round.node_count = 2;
  EXPECT_EQ(PlanLogs({}, round).workers[0].prefix, "[a:4 trainer] ");
  LogOptions options;
  options.line_prefix = "${role_name}${local_rank}:";
  EXPECT_EQ(PlanLogs(options, round).workers[1].prefix, "eval1:");
}

TEST(LogPlanTest, AChosenFolderHasEveryStream) {
  const LogPlan plan = PlanLogs(With("0", "0"), TwoWorkers());
  EXPECT_EQ(plan.workers[0].out.file, "/logs/job7/round_3/rank_4/stdout.log");
  EXPECT_EQ(plan.workers[1].err.file, "/logs/job7/round_3/rank_5/stderr.log");
  EXPECT_TRUE(plan.workers[0].out.on_console);
}

TEST(LogPlanTest, NoNameOfARunLeadsOutOfTheFolder) {
  const auto folder = [](const std::string& run_id) {
    LogRound round = TwoWorkers();
    round.run_id = run_id;
    return PlanLogs(With("0", "0"), round).workers[0].out.file;
  };
  EXPECT_EQ(folder("../../etc/x"), "/logs/.._.._etc_x/round_3/rank_4/stdout.log");
  EXPECT_EQ(folder("/etc"), "/logs/_etc/round_3/rank_4/stdout.log");
  EXPECT_EQ(folder(".."), "/logs/_../round_3/rank_4/stdout.log");
  EXPECT_EQ(folder("."), "/logs/_./round_3/rank_4/stdout.log");
  EXPECT_EQ(folder(""), "/logs/_/round_3/rank_4/stdout.log");
}

TEST(LogPlanTest, ATemporaryOneHasWhatWasAskedFor) {
  LogRound round = TwoWorkers();
  round.log_dir_is_chosen = false;
  const LogPlan plan = PlanLogs(With("0:1", "1:2"), round);
  EXPECT_NE(plan.workers[0].out.file, "");
  EXPECT_EQ(plan.workers[0].err.file, "");
  EXPECT_EQ(plan.workers[1].out.file, "");
  EXPECT_NE(plan.workers[1].err.file, "");
}

TEST(LogPlanTest, RedirectedStreamsLeaveTheConsoleAndTeedOnesDoNot) {
  const LogPlan plan = PlanLogs(With("3", "1:1"), TwoWorkers());
  EXPECT_FALSE(plan.workers[0].out.on_console);
  EXPECT_FALSE(plan.workers[0].err.on_console);
  EXPECT_TRUE(plan.workers[1].out.on_console);
  EXPECT_FALSE(plan.workers[1].err.on_console);
}

TEST(LogPlanTest, TheConsoleShowsOnlyTheLocalRanksThatWereAskedFor) {
  LogOptions options = With("0", "3");
  options.local_ranks = {1};
  const LogPlan plan = PlanLogs(options, TwoWorkers());
  EXPECT_FALSE(plan.workers[0].out.on_console);
  EXPECT_NE(plan.workers[0].out.file, "");
  EXPECT_TRUE(plan.workers[1].err.on_console);
}

TEST(LogPlanTest, NoFilesAtAll) {
  LogOptions options = With("3", "0");
  options.log_dir = "/dev/null";
  EXPECT_TRUE(WantsNoFiles(options));
  EXPECT_FALSE(NeedsTemporaryLogDir(options));
  LogRound round = TwoWorkers();
  round.log_dir.clear();
  const LogPlan plan = PlanLogs(options, round);
  EXPECT_EQ(plan.workers[0].out.file, "");
  EXPECT_TRUE(plan.workers[0].out.on_console);  // as torchrun has it
}

TEST(LogPlanTest, WhenAFolderMustBeMade) {
  EXPECT_FALSE(NeedsTemporaryLogDir(With("0", "0:0")));
  EXPECT_TRUE(NeedsTemporaryLogDir(With("0", "1:2")));
  EXPECT_TRUE(NeedsTemporaryLogDir(With("3", "0")));
  LogOptions filtered;
  filtered.err_filters = {"x"};
  EXPECT_TRUE(NeedsTemporaryLogDir(filtered));
  filtered.log_dir = "/logs";
  EXPECT_FALSE(NeedsTemporaryLogDir(filtered));
}

TEST(LogPlanTest, FiltersLookAtWhatIsTeedOrAtAll) {
  LogOptions options = With("0", "0");
  options.out_filters = {"x"};
  LogPlan plan = PlanLogs(options, TwoWorkers());
  EXPECT_EQ(plan.out_filter.file, "/logs/job7/round_3/filtered_stdout.log");
  EXPECT_EQ(plan.err_filter.file, "");
  EXPECT_TRUE(plan.workers[0].out.filtered);
  EXPECT_FALSE(plan.workers[0].err.filtered);
  options.tee = *ParseStreamSpec("1:1");
  plan = PlanLogs(options, TwoWorkers());
  EXPECT_FALSE(plan.workers[0].out.filtered);
  EXPECT_TRUE(plan.workers[1].out.filtered);
}

TEST(LogPlanTest, SeveralNodesAreToldApart) {
  LogRound round = TwoWorkers();
  round.node_count = 2;
  round.node_rank = 1;
  LogOptions options;
  options.err_filters = {"x"};
  const LogPlan plan = PlanLogs(options, round);
  EXPECT_EQ(plan.workers[0].prefix, "[a:4] ");
  EXPECT_EQ(plan.fold_prefix, "a:");
  EXPECT_EQ(plan.err_filter.file, "/logs/job7/round_3/filtered_stderr.node_1.log");
}

TEST(LogPlanTest, ATemplateIsThePrefixAsItStands) {
  LogOptions options;
  options.line_prefix = "${role_name}${local_rank}/${rank}@${hostname}:";
  EXPECT_EQ(PlanLogs(options, TwoWorkers()).workers[1].prefix, "trainer1/5@a:");
  options.line_prefix = "";
  EXPECT_EQ(PlanLogs(options, TwoWorkers()).workers[1].prefix, "");
}

TEST(LogPlanTest, TorchrunsPrefixIsOfWorkersWithTee) {
  LogOptions options;
  options.line_prefix = "torchrun";
  options.tee = *ParseStreamSpec("1:2");
  EXPECT_EQ(PlanLogs(options, TwoWorkers()).workers[0].prefix, "");
  EXPECT_EQ(PlanLogs(options, TwoWorkers()).workers[1].prefix, "[trainer1]:");
}

}  // namespace
}  // namespace ddprun
