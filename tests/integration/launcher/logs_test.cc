// SPDX-License-Identifier: Apache-2.0
// Where the workers' output goes, and that nothing it goes to can hold them up.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "absl/strings/str_split.h"
#include "rendezvous/base/owned_fd.h"
#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DdprunLogsTest : public DdprunTest {
 protected:
  void SetUp() override {
    DdprunTest::SetUp();
    logs_ = folder_ + "/logs";
    std::filesystem::create_directory(folder_ + "/tmp");
    variables_["TMPDIR"] = folder_ + "/tmp";
  }
  std::string Rank(int rank, const std::string& name) const {
    return Content("logs/job7/round_1/rank_" + std::to_string(rank) + "/" + name);
  }
  std::unique_ptr<RunningProcess> LaunchLogged(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--log-dir", logs_, "--rdzv-id", "job7"});
    return Launch(std::move(arguments));
  }
  // A FIFO to which a worker says that it is done, whatever has become of what it said before.
  OwnedFd MakeDoneFifo() const {
    const std::string path = folder_ + "/done";
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return OwnedFd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  static bool WaitReadable(const OwnedFd& fd) {
    pollfd poll_fd{.fd = fd.get(), .events = POLLIN, .revents = 0};
    return poll(&poll_fd, 1, std::chrono::milliseconds(kTestDeadline).count()) == 1;
  }

  std::string logs_;
};

TEST_F(DdprunLogsTest, RedirectedStreamsAreInFilesAloneAndTeedOnesInBoth) {
  auto run = LaunchLogged({"--nproc-per-node", "2", "-r", "3", "-t", "1:1", "sh", "-c",
                           "echo out $RANK; echo err $RANK >&2"});
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_EQ(run->out(), "[1] out 1\n");
  EXPECT_EQ(run->err(), "");
  EXPECT_EQ(Rank(0, "stdout.log"), "out 0\n");
  EXPECT_EQ(Rank(0, "stderr.log"), "err 0\n");
  EXPECT_EQ(Rank(1, "stdout.log"), "out 1\n");
  EXPECT_EQ(Rank(1, "stderr.log"), "err 1\n");
}

TEST_F(DdprunLogsTest, WithoutALogDirAFolderIsMadeSaidAndLeft) {
  auto run = Launch({"--rdzv-id", "job7", "--redirects", "0:1", "echo", "hidden"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_EQ(run->out(), "");
  const std::string said = "ddprun: logs are in ";
  ASSERT_THAT(run->err(), ::testing::StartsWith(said + folder_ + "/tmp/ddprun-logs-"));
  const std::string folder = run->err().substr(said.size(), run->err().size() - said.size() - 1);
  EXPECT_EQ(Content(folder.substr(folder_.size() + 1) + "/round_1/rank_0/stdout.log"), "hidden\n");
  EXPECT_FALSE(std::filesystem::exists(folder + "/round_1/rank_0/stderr.log"));
}

TEST_F(DdprunLogsTest, ARunOfTheSameNameOverwritesNothing) {
  for (const char* word : {"first", "second"}) EXPECT_EQ(LaunchLogged({"echo", word})->Wait(), 0);
  EXPECT_EQ(Rank(0, "stdout.log"), "first\nsecond\n");
}

TEST_F(DdprunLogsTest, FiltersAndPrefixes) {
  variables_["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "<${role_name}.${local_rank}.${rank}>";
  auto run = LaunchLogged({"--nproc-per-node", "2", "--role", "t", "--local-ranks-filter", "1",
                           "--duplicate-stdout-filters", "a,,b", "sh", "-c",
                           "[ $RANK = 0 ] && echo 'a,b zero'; echo c"});
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_EQ(run->out(), "<t.1.1>c\n");
  EXPECT_EQ(Content("logs/job7/round_1/filtered_stdout.log"), "<t.0.0>a,b zero\n");
}

TEST_F(DdprunLogsTest, RotatedFilesTogetherHaveEveryLine) {
  auto run = LaunchLogged({"--log-rotate", "10K", "seq", "20000"});
  EXPECT_EQ(run->Wait(), 0);
  std::string all;
  for (int i = 1; i < 100; ++i) {
    const std::string part = Rank(0, "stdout.log." + std::to_string(i));
    if (part.empty()) break;
    EXPECT_LE(part.size(), 10240u);
    EXPECT_EQ(part.back(), '\n');
    all += part;
  }
  all += Rank(0, "stdout.log");
  std::string expected;
  for (int i = 1; i <= 20000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_TRUE(all == expected);
}

// Rank 0 says the line in all workers' names, so that it comes from all of them in one instant.
TEST_F(DdprunLogsTest, EqualLinesAreFoldedWhereAskedFor) {
  const std::string pid_file = folder_ + "/pid_";
  const std::string script = "echo $$ > " + pid_file + "$RANK; [ $RANK = 0 ] || exec sleep 100; " +
                             "for r in 0 1 2 3; do while [ ! -s " + pid_file +
                             "$r ]; do sleep 0.01; done; read p < " + pid_file +
                             "$r; set -- $@ $p; done; "
                             "for p in $@; do echo same > /proc/$p/fd/1; done; exec sleep 100";
  auto run = LaunchLogged({"--nproc-per-node", "4", "--log-fold", "always", "sh", "-c", script});
  EXPECT_TRUE(run->WaitForText("ranks 0-3: same\n"));
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Wait(), 128 + SIGTERM);
  EXPECT_EQ(run->out(), "ranks 0-3: same\n");
  EXPECT_EQ(Rank(2, "stdout.log"), "same\n");
}

TEST_F(DdprunLogsTest, WhatWasSaidBeforeADeathIsOutBeforeTheVerdict) {
  auto run = Launch({"--nproc-per-node", "2", "--log-fold", "always", "sh", "-c",
                     "[ $RANK = 1 ] && exec sleep 100; echo it breaks >&2; exit 3"});
  EXPECT_EQ(run->Wait(), 3);
  const std::size_t said = run->err().find("[0] it breaks");
  EXPECT_NE(said, std::string::npos);
  EXPECT_LT(said, run->err().find("ddprun: run failed"));
}

// 3 MB without a line end, bytes of every value, "\r\n", a progress bar, no newline at the end.
TEST_F(DdprunLogsTest, EveryByteIsInTheFileWhateverItIs) {
  const std::string script =
      "head -c 3000000 /dev/zero | tr '\\0' x; echo; printf 'dos\\r\\n10%%\\r20%%\\r'; "
      "printf '\\001\\377\\000\\n'; printf last";
  auto run = LaunchLogged({"--nproc-per-node", "2", "-t", "3", "sh", "-c", script});
  EXPECT_EQ(run->Wait(), 0) << run->err();
  const std::string expected =
      std::string(3'000'000, 'x') + "\ndos\r\n10%\r20%\r\x01\xff" + std::string(1, '\0') + "\nlast";
  for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(Rank(rank, "stdout.log") == expected);
  // On the console each piece of the long line is a line with a prefix, and none is mixed.
  std::size_t long_bytes = 0;
  for (const absl::string_view view : absl::StrSplit(run->out(), '\n', absl::SkipEmpty())) {
    const std::string line(view);
    EXPECT_THAT(line,
                ::testing::AnyOf(::testing::StartsWith("[0] "), ::testing::StartsWith("[1] ")));
    if (line.substr(4, 1) != "x") continue;
    EXPECT_EQ(line.find_first_not_of('x', 4), std::string::npos);
    long_bytes += line.size() - 4;
  }
  EXPECT_EQ(long_bytes, 6'000'000u);
  EXPECT_THAT(run->out(), HasSubstr("[0] dos\n"));
  EXPECT_THAT(run->out(), HasSubstr("[1] last\n"));
}

// ---- Nothing holds a worker up

TEST_F(DdprunLogsTest, AConsoleThatNobodyReadsHoldsNoWorkerUpAndLosesNothing) {
  const OwnedFd done = MakeDoneFifo();
  auto run = Launch({"--nproc-per-node", "2", "sh", "-c",
                     "seq 1000000; [ $RANK = 0 ] || exit 0; echo > " + folder_ + "/done"});
  EXPECT_TRUE(WaitReadable(done));  // and only now its 14 MB are read
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_EQ(std::count(run->out().begin(), run->out().end(), '\n'), 2'000'000);
  EXPECT_THAT(run->out(), HasSubstr("\n[0] 999999\n"));
  EXPECT_THAT(run->out() + run->err(), Not(HasSubstr("not shown")));
}

// A FIFO in place of a log file, with a reader that does not read, is a disk that hangs.
TEST_F(DdprunLogsTest, ADiskThatHangsHoldsNoWorkerUp) {
  const std::string folder = logs_ + "/job7/round_1/rank_0";
  std::filesystem::create_directories(folder);
  ASSERT_EQ(mkfifo((folder + "/stdout.log").c_str(), 0600), 0);
  const OwnedFd reader(open((folder + "/stdout.log").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  auto run = LaunchLogged({"seq", "100000"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_EQ(std::count(run->out().begin(), run->out().end(), '\n'), 100'000);
  EXPECT_THAT(run->err(), HasSubstr("bytes of the output were not written to the log files"));
}

// Without a reader not even opening it comes back.
TEST_F(DdprunLogsTest, ADiskThatDoesNotAnswerIsNamedAndNotWaitedFor) {
  const std::string folder = logs_ + "/job7/round_1/rank_0";
  std::filesystem::create_directories(folder);
  ASSERT_EQ(mkfifo((folder + "/stdout.log").c_str(), 0600), 0);
  auto run = LaunchLogged({"echo", "hello"});
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_EQ(run->out(), "[0] hello\n");
  EXPECT_THAT(run->err(), HasSubstr("the disk of the log files has not answered"));
  EXPECT_THAT(run->err(), HasSubstr("6 bytes of the output were not written to the log files"));
}

}  // namespace
}  // namespace ddprun
