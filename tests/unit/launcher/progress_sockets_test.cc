// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/progress_sockets.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>

namespace ddprun {
namespace {

class ProgressSocketsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/progress_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    ASSERT_TRUE(sockets_.Open(folder_, "1_0", 0).ok());
    ASSERT_TRUE(sockets_.Open(folder_, "1_1", 1).ok());
  }
  void TearDown() override {
    sockets_.Close();
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    std::filesystem::remove(folder_);
  }
  bool Tell(int worker, const std::string& words) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, sockets_.path(worker).c_str());
    const OwnedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return sendto(fd.get(), words.data(), words.size(), MSG_DONTWAIT,
                  reinterpret_cast<sockaddr*>(&address),
                  sizeof(address)) == static_cast<ssize_t>(words.size());
  }

  std::string folder_;
  ProgressSockets sockets_;
};

TEST_F(ProgressSocketsTest, EachWorkerIsHeardApartAndItsWordsTogether) {
  EXPECT_FALSE(sockets_.Read(0).has_value());
  EXPECT_TRUE(Tell(1, "STEP=1\nSECTION=data"));
  EXPECT_TRUE(Tell(1, "STEP=2"));
  EXPECT_FALSE(sockets_.Read(0).has_value());
  const auto said = sockets_.Read(1);
  ASSERT_TRUE(said.has_value());
  EXPECT_EQ(said->step, 2);
  EXPECT_EQ(said->section, "data");
  EXPECT_FALSE(sockets_.Read(1).has_value());
}

TEST_F(ProgressSocketsTest, ControlCharactersOfAWorkerAreReplaced) {
  EXPECT_TRUE(Tell(0,
                   "STEP=1\nUNIT=\x1b[2Jimages\nSECTION=da\x07ta\nLEFT=3\nERROR=\x1b]0;t\x07\n"
                   "WAITS=57 all\x1b[1A_reduce 4 flo\x07t32 \x1b[2J0\nLAST=56 a\x07 0"));
  const auto said = sockets_.Read(0);
  ASSERT_TRUE(said.has_value());
  EXPECT_EQ(said->step, 1);
  EXPECT_EQ(said->unit, "images");
  EXPECT_EQ(said->section, "da?ta");
  EXPECT_EQ(said->error, "?]0;t?");
  ASSERT_TRUE(said->place.has_value());
  EXPECT_EQ(said->place->waits, (Collective{"0", 57, "all_reduce", 4, "flo?t32"}));
  EXPECT_EQ(said->place->last, (std::vector<Collective>{{"0", 56, "a?"}}));
}

TEST_F(ProgressSocketsTest, AnEmptyMessageIsOneToo) {
  EXPECT_TRUE(Tell(0, ""));
  EXPECT_TRUE(sockets_.Read(0).has_value());
}

TEST_F(ProgressSocketsTest, AnotherProcessHasAnotherSocket) {
  const std::string old = sockets_.path(0);
  ASSERT_TRUE(sockets_.Open(folder_, "2_0", 0).ok());
  EXPECT_NE(sockets_.path(0), old);
  EXPECT_FALSE(std::filesystem::exists(old));
}

TEST_F(ProgressSocketsTest, AProcessKeepsItsSocketUnderAnotherNumber) {
  ASSERT_TRUE(Tell(1, "STEP=7"));
  sockets_.Swap(0, 1);
  EXPECT_EQ(sockets_.Read(0)->step, 7);
  EXPECT_FALSE(sockets_.Read(1).has_value());
}

TEST_F(ProgressSocketsTest, AWorkerIsToldOfNoticesWhereItReads) {
  const NoticeMessage notice{1, std::chrono::milliseconds(118'250), "b", 1, "a\nb"};
  EXPECT_FALSE(sockets_.Send(0, notice));  // it reads nowhere
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, NoticeSocketPath(sockets_.path(0)).c_str());
  const OwnedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_TRUE(sockets_.Send(0, notice));
  std::string text(1024, '\0');
  text.resize(static_cast<std::size_t>(recv(fd.get(), text.data(), text.size(), 0)));
  EXPECT_EQ(text, "NOTICE=1\nSECONDS=118.250\nHOST=b\nNODE_RANK=1\nREASON=a b\n");
}

TEST_F(ProgressSocketsTest, AWorkerIsToldOfRoundsWhereItReads) {
  EXPECT_FALSE(sockets_.Send(0, RoundBroken{3}));  // it reads nowhere
  EXPECT_FALSE(sockets_.Send(7, RoundBroken{3}));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = RoundSocketPath(sockets_.path(0));
  std::strcpy(address.sun_path, path.c_str());
  OwnedFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_TRUE(sockets_.Send(0, RoundBroken{3}));
  char text[256];
  const ssize_t size = recv(fd.get(), text, sizeof(text), 0);
  ASSERT_GT(size, 0);
  EXPECT_EQ(ParseRoundMessage({text, static_cast<std::size_t>(size)}),
            RoundMessage(RoundBroken{3}));
  // One that never reads holds nobody up.
  int sent = 0;
  while (sockets_.Send(0, RoundBroken{3}) && ++sent < 100'000) {
  }
  EXPECT_LT(sent, 100'000);
  fd.Reset();
  EXPECT_FALSE(sockets_.Send(0, RoundBroken{3}));  // it is gone
  sockets_.Close(0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(ProgressSocketsTest, AFolderThatIsNotThereIsASentence) {
  EXPECT_NE(sockets_.Open(folder_ + "/none", "1", 1).message().find("cannot make the socket"),
            std::string::npos);
}

}  // namespace
}  // namespace ddprun
