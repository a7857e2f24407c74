// SPDX-License-Identifier: Apache-2.0
// A service whose journal's disk does not answer: it must end when it is told to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/rendezvous/service_program.h"
#include "tests/integration/rendezvous/test_node.h"
#include "tests/testing/faults.h"
#include "tests/testing/paths.h"

namespace ddprun {
namespace {

using ::testing::HasSubstr;

class HungJournalTest : public ::testing::Test {
 protected:
  HungJournalTest() : faults_(folder_ / ".") {}
  std::vector<std::string> Flags() const {
    return {"--insecure", "--journal", folder_ / "journal"};
  }

  TempDir folder_;
  Faults faults_;
};

TEST_F(HungJournalTest, TheServiceEndsWhenItIsTold) {
  ServiceProgram service(Flags(), faults_.variables());
  ASSERT_GT(service.port(), 0) << service.process().err();
  faults_.Set({"write,fsync hang path=" + (folder_ / "journal")});
  TestNode node(service.target(), MakeJoin("a", 2));
  ASSERT_TRUE(faults_.WaitForHit(" hang "));
  service.process().Signal(SIGTERM);
  EXPECT_EQ(service.process().Wait(), 1);
  EXPECT_THAT(service.process().err(), HasSubstr("the disk of the journal in " +
                                                 (folder_ / "journal") + " does not answer"));
}

TEST_F(HungJournalTest, TheServiceEndsWhileItReadsItsJournal) {
  faults_.Set({"open hang path=" + (folder_ / "journal")});
  RunningProcess service({BuildPath("bin/ddprun-rendezvous"), "--port", "0", "--insecure",
                          "--journal", folder_ / "journal"},
                         faults_.variables());
  ASSERT_TRUE(faults_.WaitForHit("open hang "));
  service.Signal(SIGINT);
  EXPECT_EQ(service.Wait(), 1);
}

TEST_F(HungJournalTest, AJournalAtTheLimitOfFileSizesIsOneOnAFullDisk) {
  ServiceProgram service(Flags(), {});
  ASSERT_GT(service.port(), 0) << service.process().err();
  const rlimit small{.rlim_cur = 1, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(prlimit(service.pid(), RLIMIT_FSIZE, &small, nullptr), 0);
  TestNode node(service.target(), MakeJoin("a", 2));
  EXPECT_EQ(service.process().Wait(), 1) << "not killed by SIGXFSZ";
  EXPECT_THAT(service.process().err(), HasSubstr("File too large"));
}

}  // namespace
}  // namespace ddprun
