// SPDX-License-Identifier: Apache-2.0
#include "worker/library/files/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

void Put(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.Write(text.data(), text.size());
  file.Commit();
}

TEST(AtomicFileTest, APlantedTemporaryNameIsNotFollowed) {
  const TempFiles files;
  const std::string victim = files.Write("victim", "precious");
  const std::string path = files.Path("model");
  std::filesystem::create_symlink(victim, path + ".tmp." + std::to_string(getpid()));
  Put(path, "weights");
  EXPECT_EQ(Contents(victim), "precious");
  EXPECT_EQ(Contents(path), "weights");
}

TEST(AtomicFileTest, ALinkAtANameOfOursIsReplacedAndAUsersIsWrittenThrough) {
  const TempFiles files;
  const std::string victim = files.Write("victim", "precious");
  std::filesystem::create_symlink(victim, files.Path("step"));
  Put(files.Path("step"), "weights");
  EXPECT_EQ(Contents(victim), "precious");
  std::filesystem::create_symlink(victim, files.Path("link"));
  Put(UserPath(files.Path("link")), "figures");
  EXPECT_EQ(Contents(victim), "figures");
  EXPECT_TRUE(std::filesystem::is_symlink(files.Path("link")));
}

TEST(AtomicFileTest, AFifoIsWrittenToAndStays) {
  const TempFiles files;
  const std::string path = files.Path("fifo");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(MessageOf<std::runtime_error>([&] { AtomicFile file(path); }),
              HasSubstr("a FIFO that nothing reads from"));
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  Put(path, "figures");
  char bytes[16];
  EXPECT_EQ(read(reader, bytes, sizeof bytes), 7);
  close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

}  // namespace
}  // namespace ddprun
