// SPDX-License-Identifier: Apache-2.0
#include "launcher/workers/worker_table.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/testing/eventually.h"
#include "tests/unit/launcher/workers_fixture.h"

namespace ddprun {
namespace {

class WorkerTableTest : public WorkersFixture {
 protected:
  void SetUp() override {
    WorkersFixture::SetUp();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(table_->logs().StartParked(i, "", ends_[i]).ok());
  }
  // A process that waits for its end, where the kernel has no pidfds.
  void Adopt(int worker) {
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (true) pause();
    }
    ASSERT_GT(pid, 0);
    table_->Adopt(worker, {.pid = pid, .pidfd = {}, .outcome = {}});
  }
  void End(int worker) {
    kill(*table_->pid(worker), SIGKILL);
    EXPECT_TRUE(Eventually([&] { return table_->Reap(worker, /*spares_group=*/true); }));
  }

  LogMux::WriteEnds ends_[3];
};

TEST_F(WorkerTableTest, WithoutPidfdsTheEndOfOneThatIsKeptIsStillLookedFor) {
  Adopt(1);
  EXPECT_EQ(table_->held(), std::set<int>({1}));
  (*table_)[1].left = true;
  table_->Carry(1);
  EXPECT_FALSE((*table_)[1].left) << "it is in the next round";
  EXPECT_TRUE((*table_)[1].carried);
  EXPECT_EQ(table_->held(), std::set<int>({1}));
  End(1);
  EXPECT_TRUE(table_->held().empty());
  EXPECT_EQ(table_->outcome(1), Outcome(Signaled{SIGKILL, false}));
}

TEST_F(WorkerTableTest, OneThatHasLeftIsKeptAndNotRunning) {
  Adopt(0);
  EXPECT_TRUE(table_->IsRunning(0));
  EXPECT_FALSE(table_->AnyKept());
  (*table_)[0].left = true;
  EXPECT_FALSE(table_->IsRunning(0));
  EXPECT_TRUE(table_->IsLive(0));
  EXPECT_EQ(table_->Kept(), std::vector<bool>({true, false}));
  EXPECT_TRUE(table_->HasProcess(*table_->pid(0)));
  End(0);
  EXPECT_FALSE(table_->AnyKept());
}

TEST_F(WorkerTableTest, AParkedOneTakesAPlaceWithAllThatIsKnownOfIt) {
  table_->Vacate(0);
  table_->Vacate(2);
  Adopt(2);
  ASSERT_TRUE(table_->progress().Open(config_.temp_dir, "spare", 2).ok());
  (*table_)[2].can_be_kept = true;
  const pid_t pid = *table_->pid(2);
  table_->Replace(0, 2);
  EXPECT_EQ(table_->pid(0), pid);
  EXPECT_TRUE((*table_)[0].can_be_kept);
  EXPECT_EQ(table_->held(), std::set<int>({0}));
  EXPECT_FALSE(table_->IsLive(2));
  EXPECT_FALSE((*table_)[2].can_be_kept);
  End(0);
}

TEST_F(WorkerTableTest, AllHaveSucceededOnlyIfEachHas) {
  EXPECT_FALSE(table_->AllSucceeded()) << "none was started";
  table_->Adopt(0, {.pid = 0, .pidfd = {}, .outcome = Exited{0}});
  table_->Adopt(1, {.pid = 0, .pidfd = {}, .outcome = Exited{1}});
  EXPECT_FALSE(table_->AllSucceeded());
  table_->Adopt(1, {.pid = 0, .pidfd = {}, .outcome = Exited{0}});
  EXPECT_TRUE(table_->AllSucceeded());
}

}  // namespace
}  // namespace ddprun
