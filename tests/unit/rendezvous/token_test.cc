// SPDX-License-Identifier: Apache-2.0
// The run's secret: what is taken for one, and where it may lie.
#include "rendezvous/security/token.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = "00112233445566778899aabbccddeeff0123456789ABCDEFfedcba9876543210";

std::string Words(const absl::Status& status) { return std::string(status.message()); }

std::string Bytes(const Token& token) {
  return {reinterpret_cast<const char*>(token.bytes()), Token::kBytes};
}

class TokenFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/ddprun-token-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& text, mode_t mode = 0600) {
    const std::string path = folder_ + "/file";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }

  std::string folder_;
};

TEST(TokenTest, SixtyFourDigitsWithSpaceAroundThem) {
  const auto token = Token::Parse(std::string("\n ") + kGood + " \n", "it");
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(Bytes(*token).substr(0, 4), std::string("\x00\x11\x22\x33", 4));
  EXPECT_EQ(Bytes(*token).substr(28), std::string("\x76\x54\x32\x10", 4));
}

TEST(TokenTest, WeakerOnesAreRefusedWithoutBeingShown) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "it has 0 characters"},
      {"secret-password", "it has 15 characters"},
      {std::string(kGood).substr(1), "it has 63 characters"},
      {std::string(kGood) + "0", "it has 65 characters"},
      {"x" + std::string(kGood).substr(1), "no hexadecimal digit, at place 1"},
      {std::string(64, '0'), "not random enough"},
      // Run on each node, the command would make as many secrets.
      {std::string(64, '0'), "once, and give what it prints to all nodes"},
      {"0123456" + std::string(57, '0'), "not random enough"},
  };
  for (const auto& [text, words] : cases) {
    const auto token = Token::Parse(text, "it");
    EXPECT_EQ(token.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Words(token.status()), HasSubstr(words));
    EXPECT_TRUE(text.size() < 8 ||
                Words(token.status()).find(text.substr(0, 8)) == std::string::npos);
  }
}

TEST(TokenTest, TheVariableIsTakenAndWipedWhereItStands) {
  EXPECT_FALSE(TakeTokenVariable().has_value());
  setenv(kTokenVariable, kGood, 1);
  const char* const text = getenv(kTokenVariable);
  const auto token = TakeTokenVariable();
  ASSERT_TRUE(token.has_value() && token->ok());
  EXPECT_EQ(Bytes(**token), Bytes(*Token::Parse(kGood, "it")));
  EXPECT_EQ(getenv(kTokenVariable), nullptr);
  EXPECT_EQ(std::string(text, 64), std::string(64, '\0'));
}

TEST(TokenTest, ABadVariableIsWipedToo) {
  setenv(kTokenVariable, "short", 1);
  const auto token = TakeTokenVariable();
  ASSERT_TRUE(token.has_value());
  EXPECT_THAT(Words(token->status()), HasSubstr("DDPRUN_TOKEN has 5 characters"));
  EXPECT_EQ(getenv(kTokenVariable), nullptr);
}

TEST(TokenTest, TheDefaultPlace) {
  const auto path = [](std::optional<std::string> config, std::optional<std::string> home) {
    return DefaultTokenPath([&](const std::string& name) {
      return name == "HOME" ? home : name == "XDG_CONFIG_HOME" ? config : std::nullopt;
    });
  };
  EXPECT_EQ(*path(std::nullopt, "/home/a"), "/home/a/.config/ddprun/token");
  EXPECT_EQ(*path("/conf", "/home/a"), "/conf/ddprun/token");
  EXPECT_EQ(*path("relative", "/home/a"), "/home/a/.config/ddprun/token");
  EXPECT_EQ(*path("/conf", std::nullopt), "/conf/ddprun/token");
  EXPECT_THAT(Words(path("", "").status()), HasSubstr("HOME is not set"));
}

TEST_F(TokenFileTest, AFileOfOnesOwn) {
  for (const mode_t mode : {0600, 0400, 0700}) {
    const auto token = ReadTokenFile(Write(std::string(kGood) + "\n", mode));
    EXPECT_TRUE(token.ok()) << token.status();
    std::filesystem::remove(folder_ + "/file");
  }
}

TEST_F(TokenFileTest, OneThatOthersCanReadIsRefused) {
  for (const auto& [mode, words] :
       {std::pair<mode_t, const char*>{0644, "mode 644"}, {0640, "mode 640"}, {0602, "mode 602"}}) {
    const auto token = ReadTokenFile(Write(kGood, mode));
    EXPECT_EQ(token.status().code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(Words(token.status()), HasSubstr(words));
    EXPECT_THAT(Words(token.status()), HasSubstr("chmod 600 " + folder_ + "/file"));
  }
}

TEST_F(TokenFileTest, OneOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "giving a file away needs root";
  const std::string path = Write(kGood);
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  const auto token = ReadTokenFile(path);
  EXPECT_EQ(token.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Words(token.status()), HasSubstr("belongs to user 12345"));
}

TEST_F(TokenFileTest, ANamedOneMayBeAnotherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "giving a file away needs root";
  for (const mode_t mode : {0600, 0640, 0440}) {
    const std::string path = Write(kGood, mode);
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    EXPECT_TRUE(ReadNamedTokenFile(path).ok()) << ReadNamedTokenFile(path).status();
    std::filesystem::remove(path);
  }
  for (const mode_t mode : {0644, 0660, 0641}) {
    const std::string path = Write(kGood, mode);
    ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
    const absl::Status status = ReadNamedTokenFile(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(Words(status), HasSubstr("chmod 640 " + path));
    std::filesystem::remove(path);
  }
}

// Where the process is not root, as ddprun is not: another user's file, which its group may read.
TEST_F(TokenFileTest, ANamedOneIsReadThroughItsGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "becoming another user needs root";
  const std::string path = Write(kGood, 0640);
  ASSERT_EQ(chown(path.c_str(), 12345, 23456), 0);
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    if (setgid(23456) != 0 || setuid(34567) != 0) _exit(2);
    _exit(ReadNamedTokenFile(path).ok() && !ReadTokenFile(path).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(TokenFileTest, SystemdsCredential) {
  const auto path = [](std::optional<std::string> folder) {
    return CredentialTokenPath([&](const std::string& name) {
      return name == "CREDENTIALS_DIRECTORY" ? folder : std::nullopt;
    });
  };
  EXPECT_EQ(path(std::nullopt), std::nullopt);
  EXPECT_EQ(path("relative"), std::nullopt);
  EXPECT_EQ(path(folder_), std::nullopt) << "credentials of other programs";
  std::filesystem::rename(Write(kGood, 0440), folder_ + "/ddprun-token");
  EXPECT_EQ(path(folder_), folder_ + "/ddprun-token");
}

TEST_F(TokenFileTest, WhatIsNoTokenFile) {
  EXPECT_EQ(ReadTokenFile(folder_ + "/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Words(ReadTokenFile(folder_).status()), HasSubstr("is not a file"));
  ASSERT_EQ(mkfifo((folder_ + "/fifo").c_str(), 0600), 0);
  EXPECT_THAT(Words(ReadTokenFile(folder_ + "/fifo").status()), HasSubstr("is not a file"));
  EXPECT_THAT(Words(ReadTokenFile(Write(std::string(100'000, 'a'))).status()),
              HasSubstr("must have 64 hexadecimal digits"));
}

TEST_F(TokenFileTest, OneIsMadeOnFirstUseForItsUserAlone) {
  const std::string path = folder_ + "/a/b/ddprun/token";
  const auto made = ReadOrMakeTokenFile(path);
  ASSERT_TRUE(made.ok()) << made.status();
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((folder_ + "/a/b/ddprun").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(Bytes(*ReadOrMakeTokenFile(path)), Bytes(*made));
  EXPECT_NE(Bytes(*ReadOrMakeTokenFile(folder_ + "/other")), Bytes(*made));
}

TEST_F(TokenFileTest, OfManyMakersAtOnceAllGetTheSame) {
  for (int round = 0; round < 20; ++round) {
    const std::string path = folder_ + "/" + std::to_string(round) + "/token";
    std::vector<std::string> seen(8);
    std::vector<std::thread> makers;
    for (std::string& one : seen) {
      makers.emplace_back([&] {
        const auto token = ReadOrMakeTokenFile(path);
        if (token.ok()) one = Bytes(*token);
      });
    }
    for (std::thread& maker : makers) maker.join();
    EXPECT_EQ(seen.front().size(), Token::kBytes);
    EXPECT_THAT(seen, ::testing::Each(seen.front()));
    // And nothing of the others' tries is left.
    EXPECT_EQ(
        std::distance(std::filesystem::directory_iterator(folder_ + "/" + std::to_string(round)),
                      std::filesystem::directory_iterator()),
        1);
  }
}

// The folder that cannot be made and the reason of that, not what follows from it.
TEST_F(TokenFileTest, AFolderThatCannotBeMadeIsNamed) {
  const auto expect = [](const std::string& path, const std::string& folder, const char* why) {
    EXPECT_EQ(Words(ReadOrMakeTokenFile(path).status()),
              "cannot make the folder " + folder + " for the token file " + path + ": " + why +
                  "; give the run's secret with DDPRUN_TOKEN or --token-file");
  };
  const std::string file = Write("x");
  expect(file + "/.config/ddprun/token", file + "/.config/ddprun", "Not a directory");
  expect(file + "/token", file, "Not a directory");
  std::filesystem::create_symlink("nowhere", folder_ + "/link");
  expect(folder_ + "/link/token", folder_ + "/link", "Not a directory");
  expect(folder_ + "/link/ddprun/token", folder_ + "/link", "Not a directory");
}

TEST_F(TokenFileTest, AReadOnlyHomeIsSaid) {
  if (geteuid() != 0) GTEST_SKIP() << "mounting needs root";
  const std::string path = folder_ + "/.config/ddprun/token";
  const auto is_said = [&] {
    return Words(ReadOrMakeTokenFile(path).status()) ==
           "cannot make the folder " + folder_ + "/.config for the token file " + path +
               ": Read-only file system; give the run's secret with DDPRUN_TOKEN or --token-file";
  };
  constexpr int kCannotMount = 77;
  const pid_t pid = fork();
  if (pid == 0) {
    // The mounts end with this process.
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", "", MS_REC | MS_PRIVATE, "") != 0 ||
        mount("tmpfs", folder_.c_str(), "tmpfs", MS_RDONLY, "") != 0) {
      _exit(kCannotMount);
    }
    _exit(is_said() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotMount) GTEST_SKIP() << "mounting needs root";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(TokenFileTest, AFileThatCannotBeReadIsSaidWithTheNextMove) {
  EXPECT_EQ(Words(ReadNamedTokenFile(folder_ + "/none").status()),
            "cannot read the token file " + folder_ +
                "/none: No such file or directory; give the run's secret with DDPRUN_TOKEN or "
                "--token-file");
}

}  // namespace
}  // namespace ddprun
