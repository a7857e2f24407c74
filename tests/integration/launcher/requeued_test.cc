// SPDX-License-Identifier: Apache-2.0
// What an earlier run, or an earlier round, has left behind is not taken for this one's: a job that
// is requeued has the same id and the same log folder.
#include "tests/integration/launcher/ddprun_fixture.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RequeuedTest : public DdprunTest {
 protected:
  std::unique_ptr<RunningProcess> LaunchJob(const std::string& script,
                                            std::vector<std::string> flags = {}) const {
    flags.insert(flags.end(), {"--rdzv-id", "job", "--log-dir", folder_ + "/logs", "sh", "-c"});
    flags.push_back(script);
    return Launch(std::move(flags));
  }

  // A run of two workers that ends with a failure record of rank 0.
  void FailWithRecord() const {
    auto run = LaunchJob(
        "[ $RANK = 0 ] || exec sleep 100; "
        "echo '{\"message\":\"the disk of yesterday was full\"}' > $TORCHELASTIC_ERROR_FILE; exit "
        "5",
        {"--nproc-per-node", "2"});
    EXPECT_EQ(run->Wait(), 5);
    EXPECT_THAT(run->err(), HasSubstr("the disk of yesterday was full"));
  }
};

TEST_F(RequeuedTest, AnOldFailureRecordIsNotTheMessageOfANewFailure) {
  FailWithRecord();
  auto run = LaunchJob("[ $RANK = 0 ] || exec sleep 100; exit 6", {"--nproc-per-node", "2"});
  EXPECT_EQ(run->Wait(), 6);
  EXPECT_THAT(run->err(), Not(HasSubstr("yesterday")));
}

TEST_F(RequeuedTest, AnOldFailureRecordIsNotTheCause) {
  FailWithRecord();
  auto run = LaunchJob("[ $RANK = 1 ] || exec sleep 100; exit 6", {"--nproc-per-node", "2"});
  EXPECT_EQ(run->Wait(), 6);
  EXPECT_THAT(run->err(), HasSubstr("    rank 0 was stopped by ddprun\n")) << "and had not failed";
  EXPECT_THAT(run->err(), Not(HasSubstr("yesterday")));
}

TEST_F(RequeuedTest, ARoundThatCannotStartHasNoWorkers) {
  auto run = LaunchJob("touch " + folder_ + "/logs/job/round_2; exit 5",
                       {"--max-restarts", "1", "--event-log", folder_ + "/events"});
  EXPECT_EQ(run->Wait(), 126);
  EXPECT_THAT(run->err(), HasSubstr("cannot make the log folder"));
  std::istringstream events(Content("events"));
  int started = 0;
  for (std::string line; std::getline(events, line);) {
    started += line.find("\"worker.started\"") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(started, 1) << Content("events");
}

}  // namespace
}  // namespace ddprun
