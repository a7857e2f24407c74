// SPDX-License-Identifier: Apache-2.0
// The fault injection itself: a test that relies on a fault which does not happen cannot fail.
#include "tests/testing/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <csignal>

#include "tests/testing/run_process.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class FaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/faults_test_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = std::filesystem::canonical(name).string();
    faults_ = std::make_unique<Faults>(folder_);
    std::ofstream(folder_ + "/data") << "0123456789";
  }
  void TearDown() override {
    faults_.reset();
    std::filesystem::remove_all(folder_);
  }
  RunningProcess Run(const std::vector<std::string>& argv) const {
    return RunningProcess(argv, faults_->variables());
  }
  // The exit code and what was said, of a program that ends.
  std::string Said(const std::vector<std::string>& argv) const {
    RunningProcess run = Run(argv);
    const int code = run.Wait();
    return std::to_string(code) + " " + run.out() + run.err();
  }
  std::string Data() const { return folder_ + "/data"; }
  static std::vector<std::string> Python(const std::string& script) {
    return {"python3", "-c", "import os, select, signal, socket; " + script};
  }

  std::string folder_;
  std::unique_ptr<Faults> faults_;
};

TEST_F(FaultsTest, WithoutRulesNothingIsAffected) {
  EXPECT_EQ(Said({"cat", Data()}), "0 0123456789");
  EXPECT_EQ(faults_->Hits(), "");
}

TEST_F(FaultsTest, OpenFailsWithTheChosenErrnoBelowThePathAlone) {
  faults_->Set({"open EMFILE path=" + Data()});
  EXPECT_THAT(Said({"cat", Data()}), HasSubstr("Too many open files"));
  EXPECT_THAT(faults_->Hits(), HasSubstr(" open EMFILE " + Data() + "\n"));
  EXPECT_EQ(Said({"cat", "/dev/null"}), "0 ");
}

TEST_F(FaultsTest, APathWithTwoSlashesIsTheSame) {
  faults_->Set({"open EIO path=" + folder_ + "//./data"});
  EXPECT_THAT(Said({"cat", folder_ + "/.//data"}), HasSubstr("Input/output error"));
}

TEST_F(FaultsTest, ARelativePathIsSeenAsItIs) {
  faults_->Set({"open EACCES path=" + Data()});
  EXPECT_THAT(Said({"sh", "-c", "cd " + folder_ + "; cat data"}), HasSubstr("Permission denied"));
}

TEST_F(FaultsTest, WritesFailOrFallShort) {
  faults_->Set({"write ENOSPC path=" + Data()});
  EXPECT_THAT(Said(Python("os.write(os.open('" + Data() + "', os.O_WRONLY), b'more')")),
              HasSubstr("No space left on device"));
  faults_->Set({"write short=3 path=" + Data()});
  EXPECT_EQ(
      Said(Python("f = os.open('" + Data() + "', os.O_WRONLY); print(os.write(f, b'12345'))")),
      "0 3\n");
  faults_->Set({"read short=2 path=" + Data()});
  EXPECT_EQ(Said(Python("print(os.read(os.open('" + Data() + "', os.O_RDONLY), 9))")), "0 b'12'\n");
}

TEST_F(FaultsTest, FromAndTimesChooseTheCalls) {
  faults_->Set({"open EIO from=2 times=1 path=" + Data()});
  EXPECT_EQ(Said(Python("\nfor i in range(3):\n try: open('" + Data() +
                        "'); print('ok')\n except OSError as e: print(e.errno)")),
            "0 ok\n5\nok\n");
}

TEST_F(FaultsTest, AProgramIsChosenByItsName) {
  faults_->Set({"open EIO program=cat path=" + Data()});
  EXPECT_THAT(Said({"cat", Data()}), StartsWith("1 "));
  EXPECT_EQ(Said({"head", "-c1", Data()}), "0 0");
}

TEST_F(FaultsTest, EachKindOfCallCanFail) {
  const std::string at = "'" + Data() + "'";
  const std::string file = "os.open(" + at + ", os.O_RDWR)";
  const std::map<std::string, std::string> scripts = {
      {"fsync", "os.fsync(" + file + ")"},
      {"truncate", "os.ftruncate(" + file + ", 1)"},
      {"rename", "os.rename(" + at + ", '" + Data() + "2')"},
      {"unlink", "os.unlink(" + at + ")"},
      {"stat", "os.stat(" + at + ")"},
      {"close", "os.close(" + file + ")"},
      {"lock", "import fcntl; fcntl.flock(" + file + ", 2)"},
      {"mkdir", "os.mkdir('" + Data() + "2')"}};
  for (const auto& [call, script] : scripts) {
    faults_->Set({call + " EIO path=" + Data()});
    EXPECT_THAT(Said(Python(script)), HasSubstr("[Errno 5] Input/output error")) << call;
    EXPECT_THAT(faults_->Hits(), HasSubstr(" " + call + " EIO " + Data())) << call;
  }
  faults_->Set({"opendir EIO path=" + folder_});
  EXPECT_THAT(Said({"ls", folder_}), HasSubstr("Input/output error"));
}

TEST_F(FaultsTest, EachKindOfDescriptorCanBeRefused) {
  const std::map<std::string, std::string> scripts = {
      {"socket", "socket.socket()"},
      {"pipe", "os.pipe()"},
      {"epoll_create", "select.epoll()"},
      {"epoll_ctl", "select.epoll().register(os.pipe()[0])"},
      {"accept",
       "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
       "c = socket.create_connection(s.getsockname()); s.accept()"},
      {"eventfd",
       "import ctypes; l = ctypes.CDLL(None, use_errno=True); r = l.eventfd(0, 0); "
       "print(os.strerror(ctypes.get_errno()) if r < 0 else 'ok')"},
      {"signalfd",
       "import ctypes; l = ctypes.CDLL(None, use_errno=True); m = ctypes.c_uint64(0); "
       "r = l.signalfd(-1, ctypes.byref((ctypes.c_uint64 * 16)()), 0); "
       "print(os.strerror(ctypes.get_errno()) if r < 0 else 'ok')"},
      {"timerfd",
       "import ctypes; l = ctypes.CDLL(None, use_errno=True); "
       "r = l.timerfd_create(1, 0); "
       "print(os.strerror(ctypes.get_errno()) if r < 0 else 'ok')"}};
  for (const auto& [call, script] : scripts) {
    faults_->Set({call + " EMFILE program=python3"});
    EXPECT_THAT(Said(Python(script)), HasSubstr("Too many open files")) << call;
  }
}

TEST_F(FaultsTest, AHungCallEndsWhenTheRuleIsGoneAndNotByASignal) {
  faults_->Set({"read hang path=" + Data()});
  auto run = std::make_unique<RunningProcess>(
      Python("signal.signal(signal.SIGUSR1, lambda *_: None); f = os.open('" + Data() +
             "', os.O_RDONLY); print('begin', flush=True); print(os.read(f, 3))"),
      faults_->variables());
  ASSERT_TRUE(run->WaitForText("begin\n"));
  ASSERT_TRUE(faults_->WaitForHit("read hang " + Data()));
  run->Signal(SIGUSR1);
  EXPECT_EQ(run->out(), "begin\n");
  faults_->Clear();
  EXPECT_EQ(run->Wait(), 0) << run->err();
  EXPECT_EQ(run->out(), "begin\nb'012'\n");
}

TEST_F(FaultsTest, ADelayedCallIsMadeLater) {
  faults_->Set({"open delay=200 times=1 path=" + Data()});
  RunningProcess run = Run({"cat", Data()});
  EXPECT_EQ(run.Wait(), 0);
  EXPECT_EQ(run.out(), "0123456789");
  EXPECT_GE(run.duration(), std::chrono::milliseconds(200));
}

TEST_F(FaultsTest, ARuleThatCannotBeReadEndsTheProgram) {
  faults_->Set({"open EWHAT path=/"});
  EXPECT_THAT(Said({"cat", Data()}), HasSubstr("cannot read the rule `open EWHAT path=/`"));
}

TEST_F(FaultsTest, LimitsHoldForTheProgram) {
  const std::string script = "head -c 5000 /dev/zero > " + folder_ + "/big";
  RunningProcess limited(WithLimit("--fsize=4096", {"sh", "-c", script}));
  EXPECT_NE(limited.Wait(), 0);
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/big"), 4096u);
  RunningProcess opening(Python(
      "\nfiles = []\nprint('begin', flush=True)\nwhile True:\n try: files.append(os.open('/', 0))\n"
      " except OSError as e: print(e.strerror); break"));
  RunningProcess sleeping({"sleep", "100"});
  ASSERT_TRUE(opening.WaitForText("begin"));
  EXPECT_GE(HighestDescriptor(sleeping.pid()), 2);
  LimitDescriptors(sleeping.pid(), 3);
  rlimit now{};
  prlimit(sleeping.pid(), RLIMIT_NOFILE, nullptr, &now);
  EXPECT_EQ(now.rlim_cur, 3u);
  EXPECT_EQ(opening.Wait(), 0);
  EXPECT_THAT(opening.out(), HasSubstr("Too many open files"));
}

TEST_F(FaultsTest, ASmallDiskIsSoonFullAndCanGrow) {
  const SmallDisk disk(folder_ + "/disk", 64 << 10);
  if (!disk.mounted()) GTEST_SKIP() << "mounting needs root";
  const std::string command = "head -c 100000 /dev/zero > " + disk.folder() + "/big";
  EXPECT_THAT(Said({"sh", "-c", command}), HasSubstr("No space left on device"));
  EXPECT_TRUE(disk.Resize(1 << 20));
  EXPECT_EQ(Said({"sh", "-c", command}), "0 ");
}

}  // namespace
}  // namespace ddprun
