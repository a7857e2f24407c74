// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/backlog.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace ddprun {
namespace {

// Takes what waits, at most `bytes` at once.
std::string Take(Backlog& backlog, std::size_t bytes) {
  std::string text;
  while (true) {
    const std::string_view next = backlog.Front().substr(0, bytes);
    if (next.empty()) return text;
    text += next;
    backlog.Pop(next.size());
  }
}

TEST(BacklogTest, FirstInFirstOut) {
  Backlog backlog(100);
  EXPECT_TRUE(backlog.Front().empty());
  backlog.Append("one ");
  backlog.Append("two");
  EXPECT_EQ(backlog.size(), 7u);
  EXPECT_EQ(backlog.Front(), "one two");
  EXPECT_EQ(Take(backlog, 2), "one two");
  EXPECT_EQ(backlog.size(), 0u);
}

TEST(BacklogTest, ATextMayBeLongerThanSeveralPieces) {
  Backlog backlog(4);
  backlog.Append("0123456789");
  EXPECT_EQ(backlog.Front(), "0123");
  EXPECT_EQ(Take(backlog, 100), "0123456789");
}

TEST(BacklogTest, ClearedItBeginsAnew) {
  Backlog backlog(4);
  backlog.Append("0123456789");
  backlog.Pop(2);
  backlog.Clear();
  EXPECT_EQ(backlog.size(), 0u);
  EXPECT_TRUE(backlog.Front().empty());
  backlog.Append("new");
  EXPECT_EQ(Take(backlog, 100), "new");
}

// A reader that is behind most of the time, and takes other amounts than were written.
TEST(BacklogTest, EveryByteInOrderWhateverTheSizes) {
  Backlog backlog(1000);
  std::minstd_rand random(1);
  std::string written;
  std::string taken;
  while (written.size() < 1'000'000) {
    const std::string text(random() % 3000, static_cast<char>('a' + random() % 26));
    backlog.Append(text);
    written += text;
    const std::string_view next = backlog.Front().substr(0, random() % 1500);
    taken += next;
    backlog.Pop(next.size());
    ASSERT_EQ(backlog.size(), written.size() - taken.size());
  }
  taken += Take(backlog, 700);
  EXPECT_TRUE(taken == written);
}

}  // namespace
}  // namespace ddprun
