// SPDX-License-Identifier: Apache-2.0
// Workers that cannot be ended, or whose end somebody else holds back. A file system of ours whose
// server does not answer makes the first, without harm: it is let go when the server ends.
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <thread>

#include "rendezvous/base/addresses.h"
#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

// Mounted at a folder; whoever looks up a name in it waits in the kernel, deaf to SIGKILL, until
// this is gone.
class SilentFileSystem {
 public:
  explicit SilentFileSystem(const std::string& folder) : folder_(folder) {
    device_ = OwnedFd(open("/dev/fuse", O_RDWR | O_CLOEXEC));
    const std::string options =
        "fd=" + std::to_string(device_.get()) + ",rootmode=40000,user_id=0,group_id=0,allow_other";
    mounted_ = device_.valid() &&
               mount("silent", folder.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
    if (mounted_) AnswerInit();
  }
  ~SilentFileSystem() {
    device_.Reset();  // ends the connection, and with it all waiting
    if (mounted_) umount2(folder_.c_str(), MNT_DETACH);
  }

  bool mounted() const { return mounted_; }

  // Takes the first request that nobody will answer. False: none came in time.
  bool WaitForRequest() const {
    pollfd ready{.fd = device_.get(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 30'000) != 1) return false;
    std::array<char, 1 << 16> request;
    return read(device_.get(), request.data(), request.size()) > 0;
  }

 private:
  void AnswerInit() const {
    std::array<char, 1 << 16> request;
    if (read(device_.get(), request.data(), request.size()) <= 0) return;
    fuse_in_header in{};
    std::memcpy(&in, request.data(), sizeof(in));
    struct {
      fuse_out_header header;
      fuse_init_out init;
    } answer{};
    answer.header.len = sizeof(answer);
    answer.header.unique = in.unique;
    answer.init.major = FUSE_KERNEL_VERSION;
    answer.init.minor = FUSE_KERNEL_MINOR_VERSION;
    answer.init.max_write = 4096;
    [[maybe_unused]] const ssize_t written = write(device_.get(), &answer, sizeof(answer));
  }

  const std::string folder_;
  OwnedFd device_;
  bool mounted_ = false;
};

class StuckTest : public DdprunTest {
 protected:
  static long CpuTicksOf(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    std::istringstream rest(text.substr(text.rfind(')') + 1));
    std::string word;
    for (int i = 0; i < 11; ++i) rest >> word;
    long user = 0;
    long system = 0;
    rest >> user >> system;
    return user + system;
  }
};

TEST_F(StuckTest, AWorkerThatHangsInTheKernelIsNamedAndNotWaitedFor_RealTime) {
  const std::string mount_point = folder_ + "/silent";
  std::filesystem::create_directory(mount_point);
  {
    const SilentFileSystem silent(mount_point);
    if (!silent.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    auto run = Launch(
        {"--term-timeout", "0.1", "sh", "-c", "echo pid=$$; exec cat " + mount_point + "/file"});
    ASSERT_TRUE(run->WaitForText("pid="));
    ASSERT_TRUE(silent.WaitForRequest());
    const std::string pid = std::to_string(NumberAfter("pid=", run->out()));
    run->Signal(SIGTERM);
    EXPECT_EQ(run->Wait(), 143);
    EXPECT_THAT(run->err(), HasSubstr("ddprun: process " + pid +
                                      " (cat) has not ended 10 s after SIGKILL: it hangs in the "
                                      "kernel (state D, in "));
    EXPECT_LT(run->duration(), std::chrono::seconds(20));
  }
  std::filesystem::remove(mount_point);
}

TEST_F(StuckTest, AnOrphanThatHangsInTheKernelDoesNotCostTheNodeItsLease_RealTime) {
  const absl::StatusOr<int> port = FindFreePort("127.0.0.1");
  ASSERT_TRUE(port.ok());
  const std::string mount_point = folder_ + "/silent";
  std::filesystem::create_directory(mount_point);
  ASSERT_EQ(mkfifo((folder_ + "/go").c_str(), 0600), 0);
  {
    const SilentFileSystem silent(mount_point);
    if (!silent.mounted()) GTEST_SKIP() << "no file system can be mounted here";
    // Well below the time that is given to orphans.
    const std::vector<std::string> flags = {"--lease", "2", "--term-timeout", "1"};
    auto first = LaunchNode(0, *port, "echo ready; exec sleep 100", flags);
    auto second = LaunchNode(
        1, *port, "setsid cat " + mount_point + "/file & read line < " + folder_ + "/go; exit 5",
        flags);
    ASSERT_TRUE(silent.WaitForRequest());
    std::ofstream(folder_ + "/go") << "x\n";
    EXPECT_EQ(first->Wait(), 5);
    EXPECT_THAT(first->err(), ::testing::Not(HasSubstr("was lost")));
    EXPECT_EQ(second->Wait(), 5);
    EXPECT_THAT(second->err(), HasSubstr("(cat) has not ended 5 s after SIGKILL"));
  }
  std::filesystem::remove(mount_point);
}

TEST_F(StuckTest, ADeadWorkerThatADebuggerHoldsCostsNoTimeAndIsReapedLater_RealTime) {
  ASSERT_EQ(mkfifo((folder_ + "/go").c_str(), 0600), 0);
  auto run = Launch({"sh", "-c", "echo pid=$$; read line < " + folder_ + "/go; exit 7"});
  ASSERT_TRUE(run->WaitForText("pid="));
  const pid_t worker = NumberAfter("pid=", run->out());
  const pid_t agent = AgentOf(*run);
  if (ptrace(PTRACE_SEIZE, worker, nullptr, nullptr) != 0) GTEST_SKIP() << "no tracing here";
  std::ofstream(folder_ + "/go") << "x\n";
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(worker), &info, WEXITED | WNOWAIT), 0);
  const long before = CpuTicksOf(agent);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(CpuTicksOf(agent) - before, 5) << "of 30: the agent spins";
  waitpid(worker, nullptr, 0);  // lets it go
  EXPECT_EQ(run->Wait(), 7);
}

}  // namespace
}  // namespace ddprun
