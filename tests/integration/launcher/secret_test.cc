// SPDX-License-Identifier: Apache-2.0
// Where the run's secret may come from, as ddprun takes it.
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210";

class SecretTest : public DdprunPortTest {
 protected:
  std::string Write(const std::string& name, mode_t mode) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << kToken << "\n";
    chmod(path.c_str(), mode);
    return path;
  }
  void ExpectBothNodesRun(const std::vector<std::string>& flags = {}) const {
    auto first = LaunchNode(0, port_, "true", flags);
    auto second = LaunchNode(1, port_, "true", flags);
    EXPECT_EQ(first->Wait(), 0) << first->err();
    EXPECT_EQ(second->Wait(), 0) << second->err();
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/config/ddprun/token"))
        << "a secret of their own was made";
  }
};

TEST_F(SecretTest, SystemdsCredential) {
  std::filesystem::create_directory(folder_ + "/credentials");
  const std::string path = Write("credentials/ddprun-token", 0440);
  variables_["CREDENTIALS_DIRECTORY"] = folder_ + "/credentials";
  if (geteuid() != 0) chmod(path.c_str(), 0400);
  ExpectBothNodesRun();
  auto dry = Launch(
      {"--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--dry-run", "true"});
  EXPECT_EQ(dry->Wait(), 0) << dry->err();
  EXPECT_THAT(dry->out(), HasSubstr("systemd's credential " + path));
}

TEST_F(SecretTest, ADamagedCredentialIsNotPassedOver) {
  std::filesystem::create_directory(folder_ + "/credentials");
  std::ofstream(folder_ + "/credentials/ddprun-token") << "short\n";
  chmod((folder_ + "/credentials/ddprun-token").c_str(), 0400);
  variables_["CREDENTIALS_DIRECTORY"] = folder_ + "/credentials";
  auto node = LaunchNode(0, port_, "true");
  EXPECT_EQ(node->Wait(), 2);
  EXPECT_THAT(node->err(), HasSubstr("ddprun-token has 5 characters"));
}

TEST_F(SecretTest, AFileOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "giving a file away needs root";
  const std::string path = Write("secret", 0640);
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  ExpectBothNodesRun({"--token-file", path});
}

}  // namespace
}  // namespace ddprun
