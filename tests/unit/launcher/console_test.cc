// SPDX-License-Identifier: Apache-2.0
#include "launcher/output/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "rendezvous/base/owned_fd.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

struct Pipe {
  Pipe() {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    read_end = OwnedFd(fds[0]);
    write_end = OwnedFd(fds[1]);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
  }
  std::string Take() const {
    std::string text;
    char buffer[65536];
    for (ssize_t count; (count = read(read_end.get(), buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<std::size_t>(count));
    }
    return text;
  }
  OwnedFd read_end;
  OwnedFd write_end;
};

constexpr std::size_t kMega = 1u << 20;

class ConsoleTest : public ::testing::Test {
 protected:
  // Reads all that comes until nothing waits.
  std::string TakeAll() {
    std::string text;
    do {
      console_.Pump();
      text += out_.Take();
    } while (console_.PendingFd(OutputStream::kOut) >= 0);
    return text + out_.Take();
  }

  Pipe out_;
  Pipe err_;
  Console console_{out_.write_end.get(),
                   err_.write_end.get(),
                   {.backlog_bytes = 3 * kMega, .reserve_bytes = kMega}};
};

TEST_F(ConsoleTest, WritesEachStreamWhereItBelongs) {
  console_.WriteLine(OutputStream::kOut, "one");
  console_.WriteWorkerLine(OutputStream::kErr, "[0] ", "two");
  console_.Pump();
  EXPECT_EQ(out_.Take(), "one\n");
  EXPECT_EQ(err_.Take(), "[0] two\n");
}

TEST_F(ConsoleTest, KnowsWhatItsReaderHasJustRead) {
  console_.WriteWorkerLine(OutputStream::kErr, "[0] ", "train: no data");
  console_.WriteWorkerLine(OutputStream::kOut, "[0] ", "step 1");
  EXPECT_TRUE(console_.EndsWith("no data"));
  EXPECT_FALSE(console_.EndsWith("data no"));
  EXPECT_FALSE(console_.EndsWith(""));
  console_.WriteLine(OutputStream::kErr, "ddprun: restart 1 of 2: no data");
  EXPECT_FALSE(console_.EndsWith("no data")) << "ddprun's own line came after it";
  console_.WriteWorkerLine(OutputStream::kErr, "[1] ", "no data");
  console_.WriteWorkerLine(OutputStream::kErr, "[0] ", "bye");
  EXPECT_FALSE(console_.EndsWith("no data"));
}

TEST_F(ConsoleTest, MarkedLinesGoOneWayInTheirOrder) {
  Console marked(out_.write_end.get(), err_.write_end.get(), Console::kLimits,
                 Console::Form::kMarked);
  marked.WriteWorkerLine(OutputStream::kOut, "[0] ", "one");
  marked.WriteWorkerLine(OutputStream::kErr, "[0] ", "two");
  marked.WriteMessage("\x1em{}");
  marked.Pump();
  EXPECT_EQ(out_.Take(),
            "[0] one\n\x1e"
            "e[0] two\n\x1em{}\n");
  EXPECT_EQ(err_.Take(), "");
}

TEST_F(ConsoleTest, ProgressIsNotShownWhereNoTerminalIs) {
  EXPECT_FALSE(console_.IsTerminal());
  EXPECT_FALSE(console_.IsTerminal(OutputStream::kOut));
  console_.SetStatus("10%");
  console_.ClearStatus();
  console_.Pump();
  EXPECT_EQ(out_.Take() + err_.Take(), "");
}

TEST_F(ConsoleTest, ASlowReaderLosesNothingThatTheBacklogHolds) {
  const std::string line(999, 'x');
  for (std::size_t lines = 0; lines < 3000; ++lines)
    console_.WriteWorkerLine(OutputStream::kOut, "", line);
  EXPECT_EQ(console_.PendingFd(OutputStream::kErr), -1);
  EXPECT_EQ(TakeAll().size(), 3'000'000u);
}

TEST_F(ConsoleTest, WhatIsTooMuchIsLeftOutCountedAndSaidInItsPlace) {
  console_.SetHint("all are in DIR");
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i)
    console_.WriteWorkerLine(OutputStream::kOut, "", std::string(999, 'x'));
  console_.WriteLine(OutputStream::kOut, "ddprun: the verdict");
  const std::string text = TakeAll();
  const std::size_t at = text.find("ddprun: ");
  ASSERT_EQ(at % 1000, 0u);
  const std::size_t left_out = kLines - at / 1000;
  EXPECT_GT(left_out, 0u);
  EXPECT_EQ(text.substr(at), "ddprun: " + std::to_string(left_out) +
                                 " lines are not shown here: the console was too slow (all are in "
                                 "DIR)\nddprun: the verdict\n");
}

TEST_F(ConsoleTest, AReaderThatComesBackGetsWhatIsSaidThen) {
  for (int i = 0; i < 5000; ++i)
    console_.WriteWorkerLine(OutputStream::kOut, "", std::string(999, 'x'));
  EXPECT_THAT(TakeAll(), HasSubstr(" lines are not shown here"));
  console_.WriteWorkerLine(OutputStream::kOut, "", "again");
  EXPECT_EQ(TakeAll(), "again\n");
}

TEST_F(ConsoleTest, AReaderThatIsGoneEndsNothing) {
  signal(SIGPIPE, SIG_IGN);
  out_.read_end.Reset();
  console_.WriteLine(OutputStream::kOut, "one");
  console_.Pump();
  console_.WriteLine(OutputStream::kOut, "two");
  EXPECT_EQ(console_.PendingFd(OutputStream::kOut), -1);
  console_.WriteLine(OutputStream::kErr, "three");
  console_.Pump();
  EXPECT_EQ(err_.Take(), "three\n");
}

// Both streams into one file, as with `> log 2>&1`, or each for itself.
TEST(ConsoleFileTest, AFileGetsAllInOrder) {
  std::string path = ::testing::TempDir() + "/console_test_XXXXXX";
  const OwnedFd file(mkstemp(path.data()));
  ASSERT_TRUE(file.valid());
  unlink(path.c_str());
  const OwnedFd same(dup(file.get()));
  Console console(file.get(), same.get());
  std::string said;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = std::to_string(i);
    console.WriteWorkerLine(i % 2 == 0 ? OutputStream::kOut : OutputStream::kErr, "", line);
    said += line + "\n";
  }
  EXPECT_EQ(console.PendingFd(OutputStream::kOut), -1);
  console.Flush(std::chrono::seconds(30), std::chrono::seconds(30), -1);
  std::string text(said.size() + 1, ' ');
  const ssize_t count = pread(file.get(), text.data(), text.size(), 0);
  EXPECT_EQ(text.substr(0, static_cast<std::size_t>(count)), said);
}

TEST(ConsolePipeTest, APipeOfBothStreamsGetsAllInOrder) {
  const Pipe pipe;
  const OwnedFd same(dup(pipe.write_end.get()));
  Console console(pipe.write_end.get(), same.get());
  console.WriteLine(OutputStream::kErr, "one");
  console.WriteLine(OutputStream::kOut, "two");
  console.WriteLine(OutputStream::kErr, "three");
  console.Pump();
  EXPECT_EQ(pipe.Take(), "one\ntwo\nthree\n");
}

TEST(ConsoleFlushTest, AReaderThatStandsStillOrASignalEndsTheWait) {
  const Pipe out;
  const Pipe err;
  const Pipe interrupt;
  Console console(out.write_end.get(), err.write_end.get());
  console.WriteWorkerLine(OutputStream::kOut, "", std::string(200'000, 'x'));
  console.Flush(std::chrono::milliseconds(1), std::chrono::hours(1), interrupt.read_end.get());
  EXPECT_GE(console.PendingFd(OutputStream::kOut), 0);
  ASSERT_EQ(write(interrupt.write_end.get(), "x", 1), 1);
  console.Flush(std::chrono::hours(1), std::chrono::hours(1), interrupt.read_end.get());
  EXPECT_GE(console.PendingFd(OutputStream::kOut), 0);
}

class ConsoleTerminalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int master = -1;
    int terminal = -1;
    const winsize size{.ws_row = 24, .ws_col = 11, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, &size), 0);
    master_ = OwnedFd(master);
    terminal_ = OwnedFd(terminal);
    const OwnedFd same(dup(terminal));
    console_ = std::make_unique<Console>(terminal, same.get());
  }
  // The kernel hands a terminal's bytes over in its own time, and in parts.
  void ExpectShown(const std::string& expected) {
    console_->Pump();
    std::string shown;
    pollfd readable{.fd = master_.get(), .events = POLLIN, .revents = 0};
    while (shown.size() < expected.size() && poll(&readable, 1, 10'000) == 1) {
      char buffer[4096];
      const ssize_t count = read(master_.get(), buffer, sizeof(buffer));
      ASSERT_GT(count, 0);
      shown.append(buffer, static_cast<std::size_t>(count));
    }
    EXPECT_EQ(shown, expected);
  }

  OwnedFd master_;
  OwnedFd terminal_;
  std::unique_ptr<Console> console_;
};

TEST_F(ConsoleTerminalTest, TheStatusStaysBelowTheLines) {
  EXPECT_TRUE(console_->IsTerminal());
  EXPECT_TRUE(console_->IsTerminal(OutputStream::kOut));
  console_->SetStatus("0123456789abc");
  ExpectShown("\r\x1b[K0123456789");  // one column is left free, or the line would wrap
  console_->WriteLine(OutputStream::kOut, "a line");
  ExpectShown("\r\x1b[Ka line\r\n0123456789");
  console_->ClearStatus();
  ExpectShown("\r\x1b[K");
  console_->WriteLine(OutputStream::kErr, "more");
  ExpectShown("more\r\n");
}

TEST_F(ConsoleTerminalTest, TheStatusIsErasedBeforeALineOfEitherStream) {
  std::string expected;
  for (const OutputStream stream : {OutputStream::kOut, OutputStream::kErr}) {
    console_->SetStatus("10%");
    console_->ClearStatus();
    console_->WriteLine(stream, "a line");
    expected += "\r\x1b[K10%\r\x1b[Ka line\r\n";
  }
  ExpectShown(expected);
}

TEST_F(ConsoleTerminalTest, AnotherTerminalHasNoStatusToErase) {
  int master = -1;
  int terminal = -1;
  ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, nullptr), 0);
  const OwnedFd other_master(master);
  const OwnedFd other(terminal);
  console_ = std::make_unique<Console>(other.get(), terminal_.get());
  EXPECT_TRUE(console_->IsTerminal(OutputStream::kOut));
  console_->SetStatus("10%");
  console_->WriteLine(OutputStream::kOut, "a line");
  ExpectShown("\r\x1b[K10%");
}

}  // namespace
}  // namespace ddprun
