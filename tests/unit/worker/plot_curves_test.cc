// SPDX-License-Identifier: Apache-2.0
#include "worker/train/plot/curves.h"

#include <gtest/gtest.h>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

Run MakeRun() {
  Run run{.name = "run"};
  run.metrics["loss/train"] = {{10, 160, 2.0}, {20, 220, 1.0}, {30, 280, 0.5}};
  run.metrics["epoch"] = {{10, 160, 0.5}, {20, 220, 1.0}};
  run.metrics["accuracy/test"] = {{20, 230, 0.25}};
  run.metrics["learning_rate"] = {{5, 100, 0.1}};
  return run;
}

TEST(Curves, LossAndAccuracyAreAPanelEach) {
  const auto panels = MakePanels({MakeRun()}, XAxis::kStep, 0);
  ASSERT_EQ(panels.size(), 2);
  EXPECT_EQ(panels[0].title, "loss");
  ASSERT_EQ(panels[0].curves.size(), 1);
  EXPECT_EQ(panels[0].curves[0].points, (Points{{10, 2.0}, {20, 1.0}, {30, 0.5}}));
  EXPECT_TRUE(panels[0].curves[0].smooth.empty());
  EXPECT_EQ(panels[1].title, "accuracy (%)");
  EXPECT_EQ(panels[1].curves[0].points, (Points{{20, 25}}));
  EXPECT_TRUE(panels[1].curves[0].test);
}

TEST(Curves, MayLieOverMinutesOrEpochs) {
  // From the run's first record of any kind.
  EXPECT_EQ(MakePanels({MakeRun()}, XAxis::kMinutes, 0)[0].curves[0].points,
            (Points{{1, 2.0}, {2, 1.0}, {3, 0.5}}));
  EXPECT_EQ(MakePanels({MakeRun()}, XAxis::kEpoch, 0)[0].curves[0].points,
            (Points{{0.5, 2.0}, {1.0, 1.0}}));
}

TEST(Curves, PanelWithoutValuesIsLeftOut) {
  auto run = MakeRun();  // Run is also a name of gtest
  run.metrics.erase("accuracy/test");
  EXPECT_EQ(MakePanels({run}, XAxis::kStep, 0).size(), 1);
}

TEST(Curves, SmoothingStartsAtTheFirstValueAndFollows) {
  const Points smooth = Smoothed({{1, 4.0}, {2, 0.0}, {3, 0.0}}, 0.5);
  ASSERT_EQ(smooth.size(), 3);
  EXPECT_DOUBLE_EQ(smooth[0].second, 4);
  EXPECT_DOUBLE_EQ(smooth[1].second, 1 / 0.75);
  EXPECT_DOUBLE_EQ(smooth[2].second, 0.5 / 0.875);
  EXPECT_EQ(MakePanels({MakeRun()}, XAxis::kStep, 0.5)[0].curves[0].smooth.size(), 3);
}

TEST(Curves, NamesAreAsLongAsTheyMustBe) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(ShortNames({"/runs/a", "/runs/b/"}), (Names{"a", "b"}));
  EXPECT_EQ(ShortNames({"/one/out", "/two/out/metrics.jsonl"}), (Names{"one/out", "two/out"}));
  EXPECT_EQ(ShortNames({"/runs/a", "/runs/a"}).size(), 2);
}

TEST(Curves, TheConfusionMatrixIsThatOfTheSummary) {
  const TempFiles files;
  EXPECT_FALSE(ReadConfusion(files.folder())) << "the run has not ended";
  files.Write("summary.json",
              R"({"by_class": {"step": 7, "names": ["a"], "confusion": [[1, 2], [3, 4]]}})");
  const auto confusion = ReadConfusion(files.folder());
  ASSERT_TRUE(confusion);
  EXPECT_EQ(confusion->title, "test images after step 7");
  EXPECT_EQ(confusion->names, (std::vector<std::string>{"a", "1"}));
  EXPECT_EQ(confusion->counts[1][0], 3);
  for (const char* text : {"", "7", R"({"by_class": {"step": 7}})",
                           R"({"by_class": {"step": 7, "confusion": [[1, 2], [3]]}})",
                           R"({"by_class": {"step": "7", "confusion": [[1]]}})"}) {
    files.Write("summary.json", text);
    EXPECT_FALSE(ReadConfusion(files.folder())) << text;
  }
}

}  // namespace
}  // namespace ddprun
