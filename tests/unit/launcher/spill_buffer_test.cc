// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/spill_buffer.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <random>
#include <string>

namespace ddprun {
namespace {

constexpr std::size_t kMega = 1u << 20;

// Takes what waits, in pieces of at most `bytes`.
std::string Take(SpillBuffer& buffer, std::size_t bytes) {
  std::string text;
  while (true) {
    const std::string_view next = buffer.Front().substr(0, bytes);
    if (next.empty()) return text;
    text += next;
    buffer.Pop(next.size());
  }
}

TEST(SpillBufferTest, FirstInFirstOut) {
  SpillBuffer buffer({.memory_bytes = 100, .file_bytes = 0});
  EXPECT_TRUE(buffer.Front().empty());
  EXPECT_TRUE(buffer.Append("one "));
  EXPECT_TRUE(buffer.Append("two"));
  EXPECT_EQ(buffer.size(), 7u);
  EXPECT_EQ(Take(buffer, 2), "one two");
  EXPECT_EQ(buffer.size(), 0u);
}

TEST(SpillBufferTest, BeyondMemoryAFileHoldsIt) {
  SpillBuffer buffer({.memory_bytes = kMega, .file_bytes = 16 * kMega});
  std::string said;
  for (int i = 0; said.size() < 12 * kMega; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    ASSERT_TRUE(buffer.Append(line));
    said += line;
  }
  EXPECT_EQ(buffer.size(), said.size());
  EXPECT_TRUE(Take(buffer, 100'000) == said);
}

// What a reader has begun to take fills the memory: a piece that is larger than what may be above
// it goes to the file at once.
TEST(SpillBufferTest, ALargePieceBehindAFullMemoryIsHeldToo) {
  SpillBuffer buffer({.memory_bytes = kMega, .file_bytes = 16 * kMega});
  std::string said(kMega, 'a');
  ASSERT_TRUE(buffer.Append(said));
  ASSERT_EQ(buffer.Front().size(), kMega);
  for (const char letter : {'b', 'c', 'd'}) {
    const std::string piece(400'000, letter);
    ASSERT_TRUE(buffer.Append(piece)) << letter;
    said += piece;
  }
  EXPECT_TRUE(Take(buffer, 100'000) == said);
}

// The ring in the file goes round many times while the reader is always behind.
TEST(SpillBufferTest, AReaderThatIsAlwaysBehindGetsAllInOrder) {
  SpillBuffer buffer({.memory_bytes = kMega, .file_bytes = 4 * kMega});
  std::minstd_rand random(1);
  std::string said;
  std::string heard;
  while (said.size() < 40 * kMega) {
    const std::string text(1 + random() % 30'000, static_cast<char>('a' + random() % 26));
    if (buffer.Append(text)) said += text;
    if (buffer.size() > 3 * kMega) {
      const std::string_view next = buffer.Front();
      heard += next;
      buffer.Pop(next.size());
    }
  }
  heard += Take(buffer, kMega);
  EXPECT_TRUE(heard == said);
}

TEST(SpillBufferTest, ThereIsAnEndToIt) {
  SpillBuffer buffer({.memory_bytes = kMega, .file_bytes = kMega, .reserve_bytes = kMega});
  const std::string text(100'000, 'x');
  while (buffer.Append(text)) ASSERT_LT(buffer.size(), 3 * kMega);
  EXPECT_GE(buffer.size(), 2 * kMega - text.size());
  const std::uint64_t before = buffer.size();
  EXPECT_FALSE(buffer.Append(text));
  EXPECT_EQ(buffer.size(), before);
  EXPECT_TRUE(buffer.Append("the verdict", /*use_reserve=*/true));
  const std::string all = Take(buffer, kMega);
  EXPECT_EQ(all.substr(all.size() - 11), "the verdict");
  EXPECT_TRUE(buffer.Append(text));
}

}  // namespace
}  // namespace ddprun
