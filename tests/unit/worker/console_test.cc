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

TEST(Console, BarShowsShareAndTimeLeft) {
  EXPECT_EQ(
      ToBar({.step = 50, .steps = 100, .loss = 0.5, .images_per_second = 800, .left = seconds(65)}),
      "[============>           ]  50% step 50/100 loss 0.5000 800 img/s ETA 1:05");
  EXPECT_EQ(ToBar({.step = 100, .steps = 100, .loss = 0.5, .images_per_second = 800}),
            "[========================] 100% step 100/100 loss 0.5000 800 img/s ETA 0:00");
}

TEST(Console, BarShowsAccuracyAndAWaitForDataThatIsWorthAWord) {
  EXPECT_EQ(ToBar({.step = 6,
                   .steps = 100,
                   .loss = 0.5,
                   .accuracy = 0.912,
                   .images_per_second = 800,
                   .data_wait = 0.121,
                   .left = seconds(3 * 3600 + 7 * 60 + 5)}),
            "[=>                      ]   6% step 6/100 loss 0.5000 acc 91.2% 800 img/s waiting "
            "for data 12% ETA 3:07:05");
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
