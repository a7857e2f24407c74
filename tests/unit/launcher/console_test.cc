// SPDX-License-Identifier: Apache-2.0
#include "launcher/console.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <csignal>

#include "launcher/limits.h"
#include "rendezvous/owned_fd.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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

class ConsoleTest : public ::testing::Test {
 protected:
  Pipe out_;
  Pipe err_;
  Console console_{out_.write_end.get(), err_.write_end.get()};
  TimePoint now_{std::chrono::seconds(100)};
};

TEST_F(ConsoleTest, WritesEachStreamWhereItBelongs) {
  console_.WriteLine(OutputStream::kOut, "one", now_);
  console_.WriteLine(OutputStream::kErr, "two", now_);
  EXPECT_EQ(out_.Take(), "one\n");
  EXPECT_EQ(err_.Take(), "two\n");
}

TEST_F(ConsoleTest, MarkedLinesGoOneWayInTheirOrder) {
  Console marked(out_.write_end.get(), err_.write_end.get(), true);
  marked.WriteLine(OutputStream::kOut, "[0] one", now_);
  marked.WriteLine(OutputStream::kErr, "[0] two", now_);
  marked.WriteWord("\x1ewjoined", now_);
  EXPECT_EQ(out_.Take(),
            "[0] one\n\x1e"
            "e[0] two\n\x1ewjoined\n");
  EXPECT_EQ(err_.Take(), "");
}

TEST_F(ConsoleTest, ProgressIsNotShownWhereNoTerminalIs) {
  EXPECT_FALSE(console_.IsTerminal());
  console_.SetStatus("10%", now_);
  console_.ClearStatus(now_);
  EXPECT_EQ(out_.Take() + err_.Take(), "");
}

TEST_F(ConsoleTest, ASlowReaderLosesNothingAndBlocksNobody) {
  const std::string line(999, 'x');
  std::size_t lines = 0;
  for (; !console_.IsFull(now_); ++lines) console_.WriteLine(OutputStream::kOut, line, now_);
  EXPECT_GE(lines * 1000, kConsoleBufferBytesMax);
  EXPECT_EQ(console_.PendingFd(OutputStream::kErr), -1);
  std::size_t bytes = 0;
  while (console_.PendingFd(OutputStream::kOut) >= 0) {
    bytes += out_.Take().size();
    console_.Pump(now_);
  }
  EXPECT_EQ(bytes + out_.Take().size(), lines * 1000);
}

TEST_F(ConsoleTest, AReaderThatStandsStillNoLongerHoldsTheWorkersUp) {
  const std::string line(9999, 'x');
  while (!console_.IsFull(now_)) console_.WriteLine(OutputStream::kOut, line, now_);
  ASSERT_TRUE(console_.NextDeadline(now_).has_value());
  now_ = *console_.NextDeadline(now_);
  EXPECT_FALSE(console_.IsFull(now_));
  EXPECT_EQ(console_.NextDeadline(now_), std::nullopt);
  console_.WriteLine(OutputStream::kOut, "dropped", now_);
  console_.WriteLine(OutputStream::kOut, "dropped", now_);
  std::string text;
  while (console_.PendingFd(OutputStream::kOut) >= 0) {
    text += out_.Take();
    console_.Pump(now_);
  }
  text += out_.Take();
  EXPECT_EQ(text.find("dropped"), std::string::npos);
  EXPECT_THAT(text.substr(text.size() - 200), HasSubstr("2 lines are not shown"));
}

TEST_F(ConsoleTest, AReaderThatIsGoneEndsNothing) {
  signal(SIGPIPE, SIG_IGN);
  out_.read_end.Reset();
  console_.WriteLine(OutputStream::kOut, "one", now_);
  console_.WriteLine(OutputStream::kOut, "two", now_);
  EXPECT_EQ(console_.PendingFd(OutputStream::kOut), -1);
  console_.WriteLine(OutputStream::kErr, "three", now_);
  EXPECT_EQ(err_.Take(), "three\n");
}

TEST(ConsoleTerminalTest, TheStatusStaysBelowTheLines) {
  int master = -1;
  int terminal = -1;
  const winsize size{.ws_row = 24, .ws_col = 11, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(openpty(&master, &terminal, nullptr, nullptr, &size), 0);
  const OwnedFd master_owner(master);
  const OwnedFd terminal_owner(terminal);
  fcntl(master, F_SETFL, O_NONBLOCK);
  const auto take = [&] {
    char buffer[4096];
    const ssize_t count = read(master, buffer, sizeof(buffer));
    return std::string(buffer, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  };
  const TimePoint now{std::chrono::seconds(100)};
  Console console(terminal, terminal);
  EXPECT_TRUE(console.IsTerminal());
  console.SetStatus("0123456789abc", now);
  EXPECT_EQ(take(), "\r\x1b[K0123456789");  // one column is left free, or the line would wrap
  console.WriteLine(OutputStream::kOut, "a line", now);
  EXPECT_EQ(take(), "\r\x1b[Ka line\r\n0123456789");
  console.ClearStatus(now);
  EXPECT_EQ(take(), "\r\x1b[K");
  console.WriteLine(OutputStream::kErr, "more", now);
  EXPECT_EQ(take(), "more\r\n");
}

}  // namespace
}  // namespace ddprun
