// SPDX-License-Identifier: Apache-2.0
#include "launcher/collectives/flight_recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utime.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"
#include "rendezvous/base/owned_fd.h"
#include "tests/testing/paths.h"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class FlightRecorderTest : public ::testing::Test {
 protected:
  FlightRecorderTest() {
    std::string pattern = ::testing::TempDir() + "ddprun-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    recorded_ = FileText(SourcePath("tests/unit/launcher/flight_dumps/rank0.pickle"));
  }
  ~FlightRecorderTest() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(Path(name), std::ios::binary) << bytes;
  }
  // As ProcessGroupNCCL makes it.
  OwnedFd Listen(const std::string& name) const {
    EXPECT_EQ(mkfifo(Path(name).c_str(), 0600), 0);
    return OwnedFd(open(Path(name).c_str(), O_RDONLY | O_NONBLOCK));
  }
  DumpQuestion Ask(int local_rank) const {
    return {.local_rank = local_rank,
            .dump = Path(absl::StrCat("dump", local_rank)),
            .pipe = Path(absl::StrCat("pipe", local_rank)),
            .since = std::chrono::system_clock::time_point(),
            .copy = ""};
  }

  std::string folder_;
  std::string recorded_;
};

// ---- Variables

TEST_F(FlightRecorderTest, TheWorkerIsToldWhereToDump) {
  std::vector<std::string> environment = {"A=1"};
  const FlightFiles files =
      AddFlightRecorder({folder_, "/dev/shm/own"}, "flight_3_1", 7, environment);
  const std::string prefix = folder_ + "/flight_3_1_";
  const std::string pipes = "/dev/shm/own/flight_3_1_";
  EXPECT_THAT(environment, ElementsAre("A=1", "TORCH_FR_DUMP_TEMP_FILE=" + prefix,
                                       "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=" + prefix,
                                       "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + pipes,
                                       "TORCH_NCCL_DUMP_ON_TIMEOUT=1"));
  EXPECT_EQ(files.dump, prefix + "7");
  EXPECT_EQ(files.pipe, pipes + "7.pipe");
  EXPECT_TRUE(files.own_dump && files.own_pipe);
}

TEST_F(FlightRecorderTest, WhatAUserHasSaidStays) {
  const std::vector<std::string> own = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/home/me/dump_",
                                        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/home/me/pipe_",
                                        "TORCH_NCCL_DUMP_ON_TIMEOUT=0"};
  std::vector<std::string> environment = own;
  const FlightFiles files = AddFlightRecorder({folder_, folder_}, "x", 7, environment);
  EXPECT_EQ(environment, own);
  EXPECT_EQ(files.dump, "/home/me/dump_7");
  EXPECT_EQ(files.pipe, "/home/me/pipe_7.pipe");
  EXPECT_FALSE(files.own_dump || files.own_pipe);
  environment.push_back("TORCH_FR_DUMP_TEMP_FILE=/new_");
  EXPECT_EQ(AddFlightRecorder({folder_, folder_}, "x", 7, environment).dump, "/new_7");
  environment = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE="};  // PyTorch makes none then
  EXPECT_EQ(AddFlightRecorder({folder_, folder_}, "x", 7, environment).pipe, "");
}

TEST_F(FlightRecorderTest, OnlyFilesOfItsOwnAreRemoved) {
  Write("dump", "x");
  Write("pipe", "x");
  RemoveFlightFiles({.dump = Path("dump"), .pipe = Path("pipe"), .own_pipe = true});
  EXPECT_TRUE(fs::exists(Path("dump")));
  EXPECT_FALSE(fs::exists(Path("pipe")));
  RemoveFlightFiles({.dump = Path("dump"), .pipe = "", .own_dump = true});
  EXPECT_FALSE(fs::exists(Path("dump")));
}

TEST_F(FlightRecorderTest, WithoutAFolderThereAreNoPipes) {
  std::vector<std::string> environment;
  const FlightFiles files = AddFlightRecorder({folder_, ""}, "x", 0, environment);
  EXPECT_EQ(files.pipe, "");
  EXPECT_FALSE(files.own_pipe);
  EXPECT_THAT(environment, Not(Contains(HasSubstr("PIPE_FILE"))));
}

// ---- Dumps

TEST_F(FlightRecorderTest, OneThatListensIsAskedAndItsAnswerRead) {
  const OwnedFd reader = Listen("pipe0");
  auto places = std::async(std::launch::async, [this] {
    DumpQuestion question = Ask(0);
    question.copy = Path("copy");
    return ReadDumps({question}, seconds(30), -1);
  });
  char byte = 0;
  while (read(reader.get(), &byte, 1) != 1) usleep(1000);
  Write("dump0", recorded_.substr(0, 100));  // it is being written
  Write("dump0", recorded_);
  const DumpedPlaces found = places.get();
  ASSERT_THAT(found, ElementsAre(Key(0)));
  EXPECT_EQ(found.at(0).waits->number, 4);
  EXPECT_EQ(FileText(Path("copy")), recorded_);
}

TEST_F(FlightRecorderTest, WithoutAReaderNobodyIsWaitedFor) {
  Listen("pipe0").Reset();
  Write("pipe2", "a file");
  Write("dump3", recorded_);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(ReadDumps({Ask(0), Ask(1), Ask(2), Ask(3)}, seconds(30), -1), ElementsAre(Key(3)));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
  EXPECT_EQ(FileText(Path("pipe2")), "a file");
}

TEST_F(FlightRecorderTest, OneThatDoesNotAnswerHasItsEarlierDumpTaken) {
  const OwnedFd reader = Listen("pipe0");
  const OwnedFd other = Listen("pipe1");
  Write("dump0", recorded_);
  EXPECT_THAT(ReadDumps({Ask(0), Ask(1)}, milliseconds(60), -1), ElementsAre(Key(0)));
}

TEST_F(FlightRecorderTest, ADamagedDumpIsNone) {
  const OwnedFd reader = Listen("pipe0");
  Write("dump0", recorded_.substr(0, recorded_.size() - 1));
  EXPECT_THAT(ReadDumps({Ask(0)}, milliseconds(60), -1), IsEmpty());
  fs::remove(Path("dump0"));
  fs::create_directory(Path("dump0"));
  EXPECT_THAT(ReadDumps({Ask(0)}, milliseconds(60), -1), IsEmpty());
}

TEST_F(FlightRecorderTest, AnOldDumpIsNone) {
  Write("dump0", recorded_);
  DumpQuestion question = Ask(0);
  question.since = std::chrono::system_clock::now() + kFileClockErrorMax + seconds(60);
  EXPECT_THAT(ReadDumps({question}, milliseconds(60), -1), IsEmpty());
}

TEST_F(FlightRecorderTest, OneThatEndedWithoutADumpLetsNobodyBeAsked) {
  const OwnedFd reader = Listen("pipe1");
  Write("dump1", recorded_);
  char byte = 0;
  EXPECT_THAT(ReadDumps({Ask(0), Ask(1)}, milliseconds(60), 0), IsEmpty());
  EXPECT_LT(read(reader.get(), &byte, 1), 1);
  Write("dump0", recorded_);
  EXPECT_THAT(ReadDumps({Ask(0), Ask(1)}, milliseconds(60), 0), ElementsAre(Key(0), Key(1)));
  EXPECT_EQ(read(reader.get(), &byte, 1), 1);
}

}  // namespace
}  // namespace ddprun
