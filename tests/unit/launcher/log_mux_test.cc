// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/log_mux.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/base/limits.h"
#include "rendezvous/base/limits.h"
#include "tests/testing/eventually.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;

// Two workers whose console is one pipe.
class LogMuxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/log_mux_test_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    int fds[2];
    ASSERT_EQ(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    OpenConsole(fds[0], fds[1]);
  }
  void OpenConsole(int read_end, int write_end) {
    read_end_ = OwnedFd(read_end);
    write_end_ = OwnedFd(write_end);
    console_ = std::make_unique<Console>(write_end, write_end);
    mux_ = std::make_unique<LogMux>(*console_, LogFold::kNever);
  }
  void OpenTerminal() {
    int master = -1;
    int terminal = -1;
    ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
    fcntl(master, F_SETFL, O_NONBLOCK);
    OpenConsole(master, terminal);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static LogPlan TwoWorkers() {
    LogPlan plan;
    plan.workers = {{.rank = 4, .prefix = "[4] "}, {.rank = 5, .prefix = "[5] "}};
    return plan;
  }
  void Start(const LogPlan& plan) {
    ends_.clear();
    absl::Status status = mux_->StartRound(plan, {}, ends_);
    if (status.ok()) status = AwaitFiles();
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::Status AwaitFiles() {
    std::optional<absl::Status> opened;
    EXPECT_TRUE(Eventually([&] { return (opened = mux_->Opened()).has_value(); }));
    return opened.value_or(absl::DeadlineExceededError(""));
  }
  void StartRound(const std::string& log_folder) {
    LogPlan plan = TwoWorkers();
    if (!log_folder.empty()) {
      plan.workers[0].out.file = log_folder + "/stdout.log";
      plan.workers[0].err.file = log_folder + "/stderr.log";
    }
    Start(plan);
  }
  void Say(int worker, OutputStream stream, std::string_view text) {
    const LogMux::WriteEnds& ends = ends_[static_cast<std::size_t>(worker)];
    const int fd = stream == OutputStream::kOut ? ends.out.get() : ends.err.get();
    ASSERT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    mux_->Read(worker, stream, now_);
  }
  std::string Shown() const {
    char buffer[65536];
    console_->Pump();
    const ssize_t count = read(read_end_.get(), buffer, sizeof(buffer));
    return std::string(buffer, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  // What a terminal gets, which comes in the kernel's own time. `\x1b[K` erases a status.
  void ExpectShown(const std::string& expected) const {
    std::string shown;
    EXPECT_TRUE(Eventually([&] { return (shown += Shown()).size() >= expected.size(); }));
    EXPECT_EQ(shown, expected);
  }
  void PassTime(TimePoint::duration time) {
    now_ += time;
    if (mux_->NextDeadline().has_value() && *mux_->NextDeadline() <= now_) mux_->OnDeadline(now_);
  }
  static std::string Content(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string folder_;
  OwnedFd read_end_;
  OwnedFd write_end_;
  std::unique_ptr<Console> console_;
  std::unique_ptr<LogMux> mux_;
  std::vector<LogMux::WriteEnds> ends_;
  TimePoint now_{std::chrono::seconds(1)};
};

TEST_F(LogMuxTest, LinesOfTwoWorkersAreNeverMixed) {
  StartRound("");
  Say(0, OutputStream::kOut, "four ");
  Say(1, OutputStream::kOut, "five\n");
  Say(0, OutputStream::kOut, "again\n");
  EXPECT_EQ(Shown(), "[5] five\n[4] four again\n");
}

TEST_F(LogMuxTest, ADeadWorkersLastWordsAreReadWithoutALineEnd) {
  StartRound("");
  const LogMux::WriteEnds& ends = ends_[0];
  ASSERT_EQ(write(ends.err.get(), "a\nfatal: x", 10), 10);  // and a grandchild holds the pipe open
  mux_->Drain(0, now_);
  EXPECT_EQ(Shown(), "[4] a\n[4] fatal: x\n");
  EXPECT_THAT(mux_->feed().LastLinesOf(0), ElementsAre("a", "fatal: x"));
  EXPECT_THAT(mux_->feed().LastLinesOf(1), ElementsAre());
}

TEST_F(LogMuxTest, FilesHaveEveryByteAndASecondRoundAppends) {
  const std::string folder = folder_ + "/run/round_1/rank_4";
  for (int i = 0; i < 2; ++i) {
    StartRound(folder);
    Say(0, OutputStream::kOut, "10%\rdone\n");
    Say(0, OutputStream::kErr, "warning\n");
    mux_->EndRound({}, now_);
    for (int worker : {0, 1}) EXPECT_TRUE(mux_->OpenPipes(worker).empty());
  }
  mux_->FinishFiles();
  EXPECT_EQ(Content(folder + "/stdout.log"), "10%\rdone\n10%\rdone\n");
  EXPECT_EQ(Content(folder + "/stderr.log"), "warning\nwarning\n");
}

TEST_F(LogMuxTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder_ + "/file") << "x";
  LogPlan plan = TwoWorkers();
  plan.workers[0].out.file = folder_ + "/file/sub/stdout.log";
  ASSERT_TRUE(mux_->StartRound(plan, {}, ends_).ok());
  const absl::Status status = AwaitFiles();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(folder_ + "/file/sub"));
}

TEST_F(LogMuxTest, WhatIsNotShownIsKeptForTheVerdict) {
  LogPlan plan = TwoWorkers();
  plan.workers[0].out.on_console = false;
  plan.workers[0].out.file = folder_ + "/stdout.log";
  Start(plan);
  Say(0, OutputStream::kOut, "to the file\n");
  Say(0, OutputStream::kErr, "to the console\n");
  EXPECT_EQ(Shown(), "[4] to the console\n");
  EXPECT_THAT(mux_->feed().LastLinesOf(0), ElementsAre("to the file", "to the console"));
}

TEST_F(LogMuxTest, LinesWithATextGoToAFileOfTheirOwnToo) {
  LogPlan plan = TwoWorkers();
  plan.out_filter = {{"loss", "acc"}, folder_ + "/filtered_stdout.log"};
  plan.workers[0].out.filtered = plan.workers[1].out.filtered = true;
  Start(plan);
  Say(0, OutputStream::kOut, "loss 1\nother\n");
  Say(1, OutputStream::kOut, "the acc\r\n");
  Say(1, OutputStream::kErr, "loss on stderr\n");
  mux_->EndRound({}, now_);
  mux_->FinishFiles();
  EXPECT_EQ(Content(folder_ + "/filtered_stdout.log"), "[4] loss 1\n[5] the acc\n");
}

TEST_F(LogMuxTest, EqualLinesAreFoldedOnTheConsoleAlone) {
  mux_ = std::make_unique<LogMux>(*console_, LogFold::kAlways);
  LogPlan plan = TwoWorkers();
  plan.fold_prefix = "node-a:";
  plan.workers[0].out.file = folder_ + "/stdout.log";
  Start(plan);
  Say(0, OutputStream::kOut, "epoch 1\n");
  EXPECT_EQ(Shown(), "");
  EXPECT_EQ(mux_->NextDeadline(), now_ + kFoldWindow);
  Say(1, OutputStream::kOut, "epoch 1\n");
  EXPECT_EQ(Shown(), "node-a:ranks 4-5: epoch 1\n");
  Say(1, OutputStream::kOut, "alone\n");
  EXPECT_EQ(Shown(), "");
  mux_->OnDeadline(now_ + kFoldWindow);
  EXPECT_EQ(Shown(), "[5] alone\n");
  Say(1, OutputStream::kErr, "last words\n");
  mux_->EndRound({}, now_);
  EXPECT_EQ(Shown(), "[5] last words\n");
  mux_->FinishFiles();
  EXPECT_EQ(Content(folder_ + "/stdout.log"), "epoch 1\n");
}

TEST_F(LogMuxTest, AWorkerThatIsNotShownIsNotWaitedFor) {
  mux_ = std::make_unique<LogMux>(*console_, LogFold::kAlways);
  LogPlan plan = TwoWorkers();
  plan.workers[1].out.on_console = plan.workers[1].err.on_console = false;
  Start(plan);
  Say(0, OutputStream::kOut, "at once\n");
  EXPECT_EQ(Shown(), "[4] at once\n");
}

// ---- Unfinished lines

TEST_F(LogMuxTest, ATerminalShowsTextWithoutALineEndAfterAMoment) {
  OpenTerminal();
  StartRound("");
  Say(0, OutputStream::kOut, "Loading");
  EXPECT_EQ(mux_->NextDeadline(), now_ + kUnfinishedDelay);
  EXPECT_EQ(Shown(), "");
  PassTime(kUnfinishedDelay);
  ExpectShown("\r\x1b[K[4] Loading");
  Say(0, OutputStream::kOut, " done\n");
  ExpectShown("\r\x1b[K[4] Loading done\r\n");
}

TEST_F(LogMuxTest, ATerminalShowsTheTextOfTheLowestRank) {
  OpenTerminal();
  StartRound("");
  Say(1, OutputStream::kErr, "\r10%");
  PassTime(kUnfinishedDelay);
  ExpectShown("\r\x1b[K[5] 10%");
  Say(0, OutputStream::kErr, "\r20%");
  PassTime(kUnfinishedDelay);
  ExpectShown("\r\x1b[K[4] 20%");
  Say(1, OutputStream::kErr, "\r30%");
  PassTime(kUnfinishedDelay);
  Say(0, OutputStream::kErr, "\n");
  ExpectShown("\r\x1b[K[4] 20%\r\n");
  PassTime(kUnfinishedDelay);
  ExpectShown("\r\x1b[K[5] 30%");
}

TEST_F(LogMuxTest, ADeadRanksProgressHidesNoOther) {
  OpenTerminal();
  StartRound("");
  Say(0, OutputStream::kErr, "90%\r");
  ExpectShown("\r\x1b[K[4] 90%");
  Say(1, OutputStream::kErr, "\r10%");
  mux_->Drain(0, now_);
  ExpectShown("\r\x1b[K");
  PassTime(kUnfinishedDelay);
  ExpectShown("\r\x1b[K[5] 10%");
}

TEST_F(LogMuxTest, APromptComesBeforeTheProgressOfOtherRanks) {
  OpenTerminal();
  mux_->SetPromptRank(5);
  StartRound("");
  Say(0, OutputStream::kErr, "\r10%");
  Say(1, OutputStream::kOut, "(Pdb) ");
  PassTime(kUnfinishedDelay);
  ExpectShown("\r\x1b[K[5] (Pdb) ");
  Say(0, OutputStream::kErr, "\r20%\r");
  EXPECT_EQ(Shown(), "");
}

TEST_F(LogMuxTest, TextComesBackBelowALineOfTheOtherStream) {
  OpenTerminal();
  StartRound("");
  Say(0, OutputStream::kErr, "\r10%");
  PassTime(kUnfinishedDelay);
  ExpectShown("\r\x1b[K[4] 10%");
  Say(0, OutputStream::kOut, "a line\n");
  PassTime(kUnfinishedDelay);
  ExpectShown("\r\x1b[K[4] a line\r\n\r\x1b[K[4] 10%");
}

TEST_F(LogMuxTest, ElsewhereTextWithoutALineEndIsALineNowAndThen) {
  StartRound("");
  Say(0, OutputStream::kErr, "10%\r");
  Say(1, OutputStream::kErr, "\r15%");
  PassTime(kUnfinishedInterval - std::chrono::milliseconds(1));
  Say(0, OutputStream::kErr, "20%\r");
  EXPECT_EQ(Shown(), "");
  PassTime(std::chrono::milliseconds(1));
  EXPECT_EQ(Shown(), "[4] 20%\n");
  for (int i = 0; i < 4; ++i) PassTime(kUnfinishedInterval);
  EXPECT_EQ(Shown(), "") << "it has not changed";
  Say(1, OutputStream::kErr, "\r35%");
  PassTime(kUnfinishedInterval);
  EXPECT_EQ(Shown(), "[5] 35%\n");
  Say(0, OutputStream::kErr, "100%\r\n");
  EXPECT_EQ(Shown(), "[4] 100%\n");
}

TEST_F(LogMuxTest, ElsewhereALineThatIsBeingWrittenIsNotShownInParts) {
  StartRound("");
  Say(0, OutputStream::kOut, "one\ntw");
  PassTime(kUnfinishedInterval - std::chrono::milliseconds(1));
  Say(0, OutputStream::kOut, "o\nthr");
  PassTime(std::chrono::milliseconds(1));
  EXPECT_EQ(Shown(), "[4] one\n[4] two\n");
  Say(0, OutputStream::kOut, "ee\n");
  PassTime(kUnfinishedInterval);
  EXPECT_EQ(Shown(), "[4] three\n");
}

TEST_F(LogMuxTest, ElsewhereABlankedProgressBarIsNoLine) {
  StartRound("");
  Say(0, OutputStream::kErr, "\r10%\r   \r");
  PassTime(kUnfinishedInterval);
  EXPECT_EQ(Shown(), "");
}

TEST_F(LogMuxTest, ThePipeLeavesWithItsWriter) {
  StartRound("");
  EXPECT_EQ(mux_->OpenPipes(0).size() + mux_->OpenPipes(1).size(), 4u);
  ends_.clear();
  EXPECT_FALSE(mux_->Read(0, OutputStream::kOut, now_));
  EXPECT_EQ(mux_->OpenPipes(0).size() + mux_->OpenPipes(1).size(), 3u);
}

TEST_F(LogMuxTest, AKeptWorkerKeepsItsPipesAndFilesUnderItsNewRank) {
  LogPlan plan = TwoWorkers();
  for (int i : {0, 1})
    plan.workers[static_cast<std::size_t>(i)].out.file =
        folder_ + "/round_1/" + std::to_string(i) + ".log";
  Start(plan);
  Say(0, OutputStream::kOut, "a\n");
  Say(1, OutputStream::kOut, "b\n");
  const LogMux::WriteEnds kept = std::move(ends_[1]);
  mux_->EndRound({false, true}, now_);
  for (int i : {0, 1}) {
    plan.workers[static_cast<std::size_t>(i)].out.file =
        folder_ + "/round_2/" + std::to_string(i) + ".log";
    plan.workers[static_cast<std::size_t>(i)].prefix = "[" + std::to_string(7 + i) + "] ";
  }
  ASSERT_TRUE(mux_->StartRound(plan, {false, true}, ends_).ok());
  ASSERT_TRUE(AwaitFiles().ok());
  EXPECT_FALSE(ends_[1].out.valid());
  Say(0, OutputStream::kOut, "c\n");
  ASSERT_EQ(write(kept.out.get(), "d\n", 2), 2);
  mux_->Read(1, OutputStream::kOut, now_);
  EXPECT_EQ(Shown(), "[4] a\n[5] b\n[7] c\n[8] d\n");
  mux_->FinishFiles();
  EXPECT_EQ(Content(folder_ + "/round_1/0.log"), "a\n");
  EXPECT_EQ(Content(folder_ + "/round_1/1.log"), "b\nd\n");
  EXPECT_EQ(Content(folder_ + "/round_2/0.log"), "c\n");
}

TEST_F(LogMuxTest, AParkedWorkersLinesAreARanksOnceItHasOne) {
  Start(TwoWorkers());
  LogMux::WriteEnds parked;
  ASSERT_TRUE(mux_->StartParked(2, "[spare] ", parked).ok());
  ASSERT_EQ(write(parked.out.get(), "loaded\n", 7), 7);
  mux_->Read(2, OutputStream::kOut, now_);
  mux_->EndRound({true, false, true}, now_);
  mux_->Swap(1, 2);
  LogPlan plan = TwoWorkers();
  plan.workers[1].out.file = folder_ + "/round_2/1.log";
  std::vector<LogMux::WriteEnds> none;
  ASSERT_TRUE(mux_->StartRound(plan, {true, true}, none).ok());
  ASSERT_TRUE(AwaitFiles().ok());
  ASSERT_EQ(write(parked.out.get(), "trains\n", 7), 7);
  mux_->Read(1, OutputStream::kOut, now_);
  EXPECT_EQ(Shown(), "[spare] loaded\n[5] trains\n");
  EXPECT_THAT(mux_->feed().LastLinesOf(1), ElementsAre("trains"));
  mux_->FinishFiles();
  EXPECT_EQ(Content(folder_ + "/round_2/1.log"), "trains\n");
}

TEST_F(LogMuxTest, TheTimeIsOnTheConsoleAndNotInFiles) {
  mux_ = std::make_unique<LogMux>(*console_, LogFold::kNever, LogTime::kRelative);
  now_ = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  StartRound(folder_);
  Say(0, OutputStream::kOut, "a\n");
  EXPECT_THAT(Shown(), ::testing::ContainsRegex("^  100\\.[0-9]{3} \\[4\\] a\n$"));
  mux_->FinishFiles();
  EXPECT_EQ(Content(folder_ + "/stdout.log"), "a\n");
}

TEST_F(LogMuxTest, AFoldedLineHasTheTimeOfItsFirstOne) {
  mux_ = std::make_unique<LogMux>(*console_, LogFold::kAlways, LogTime::kRelative);
  const TimePoint start = std::chrono::steady_clock::now();
  now_ = start + std::chrono::seconds(100);
  StartRound("");
  Say(0, OutputStream::kOut, "a\n");
  now_ = start + std::chrono::seconds(300);
  mux_->OnDeadline(now_);
  EXPECT_THAT(Shown(), ::testing::ContainsRegex("^  100\\.[0-9]{3} \\[4\\] a\n$"));
}

}  // namespace
}  // namespace ddprun
