// SPDX-License-Identifier: Apache-2.0
#include "worker/train/metrics/console.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace ddprun {
namespace {

using std::chrono::seconds;

// What `use` writes through a console.
template <typename Use>
std::string Written(Console::Options options, Use use) {
  char* text = nullptr;
  std::size_t size = 0;
  options.out = open_memstream(&text, &size);
  {
    Console console(options);
    use(console);
  }
  std::fclose(options.out);
  std::string written(text, size);
  std::free(text);
  return written;
}

TEST(Console, LineNamesEpochAndBatch) {
  EXPECT_EQ(ToLine({.epoch = 1,
                    .epochs = 2,
                    .batch = 100,
                    .batches = 469,
                    .loss = 0.53214,
                    .learning_rate = 0.008,
                    .images_per_second = 411.6}),
            "epoch 1/2 batch 100/469 loss 0.5321 lr 0.0080 img/s 412");
}

BarReport Half() {
  return {.epoch = 2,
          .epochs = 4,
          .step = 50,
          .steps = 100,
          .loss = 0.5,
          .images_per_second = 800,
          .left = seconds(65)};
}

TEST(Console, BarShowsShareAndTimeLeft) {
  EXPECT_EQ(ToBar(Half()),
            "[============>           ]  50% ETA 1:05 epoch 2/4 step 50/100 loss 0.5000 800 img/s");
  BarReport whole = Half();
  whole.step = 100;
  whole.left = {};
  EXPECT_EQ(
      ToBar(whole),
      "[========================] 100% ETA 0:00 epoch 2/4 step 100/100 loss 0.5000 800 img/s");
}

TEST(Console, BarShowsAccuracyAndAWaitForDataThatIsWorthAWord) {
  BarReport report = Half();
  report.accuracy = 0.912;
  report.data_wait = 0.121;
  report.left = seconds(3 * 3600 + 7 * 60 + 5);
  EXPECT_TRUE(ToBar(report).ends_with(
      " 50% ETA 3:07:05 epoch 2/4 step 50/100 loss 0.5000 800 img/s acc 91.2% waiting for data "
      "12%"));
}

TEST(Console, BarFitsIntoTheTerminal) {
  const std::string text = " 50% ETA 1:05 epoch 2/4 step 50/100 loss 0.5000 800 img/s";
  EXPECT_EQ(ToBar(Half(), text.size() + 40), ToBar(Half()));
  EXPECT_EQ(ToBar(Half(), text.size() + 13), "[=====>    ] " + text);
  EXPECT_EQ(ToBar(Half(), text.size() + 10), text) << "no bar rather than a short one";
  for (std::size_t columns = 1; columns < text.size() + 40; ++columns)
    EXPECT_LE(ToBar(Half(), columns).size(), columns);
  EXPECT_EQ(ToBar(Half(), 20), " 50% ETA 1:05 epoch ");
}

TEST(Console, TableAlignsValues) {
  EXPECT_EQ(ToTable({{"test accuracy", "88 %"}, {"world size", "2"}}),
            "test accuracy  88 %\nworld size     2");
}

TEST(Console, ColumnsOfNumbersAreAlignedToTheRight) {
  EXPECT_EQ(ToColumns({{"", "plain", "ddp"}, {"ranks", "1", "2"}}),
            "       plain  ddp\n"
            "ranks      1    2");
}

TEST(Console, WithoutABarThereAreOnlyLines) {
  EXPECT_EQ(Written({.bar = false},
                    [](Console& console) {
                      EXPECT_FALSE(console.BarIsDue(std::chrono::steady_clock::now()));
                      console.Bar("half");
                      console.Line("done");
                    }),
            "done\n");
}

TEST(Console, UnderTheAgentABarIsMarkedAsTransient) {
  EXPECT_EQ(Written({.bar = true},
                    [](Console& console) {
                      console.Bar("half");
                      console.Line("done");
                    }),
            "half\rdone\n");
}

TEST(Console, AloneItWipesItsBar) {
  EXPECT_EQ(Written({.bar = true, .erase_bar = true},
                    [](Console& console) {
                      console.Bar("half");
                      console.Line("done");
                      console.Bar("more");
                    }),
            "\x1b[2Khalf\r\x1b[2Kdone\n\x1b[2Kmore\r\x1b[2K");
}

TEST(Console, NextBarIsDueAfterTheInterval) {
  Written({.bar = true}, [](Console& console) {
    const auto before = std::chrono::steady_clock::now();
    EXPECT_TRUE(console.BarIsDue(before));
    console.Bar("half");
    EXPECT_FALSE(console.BarIsDue(before));
    EXPECT_TRUE(console.BarIsDue(std::chrono::steady_clock::now() + kBarInterval));
  });
}

}  // namespace
}  // namespace ddprun
