// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/flag_names.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

constexpr char kNames[] = "--nnodes=WORLD_SIZE  --master-port=MASTER_PORT --master=NEVER x=y";

TEST(RenamedFlags, SentencesNameWhatUsersSet) {
  EXPECT_EQ(RenameFlags("--nnodes is 2 (--nnodes 2); see --master-port", kNames),
            "WORLD_SIZE is 2 (WORLD_SIZE 2); see MASTER_PORT");
  EXPECT_EQ(RenameFlags("--nnodes", kNames), "WORLD_SIZE");
}

TEST(RenamedFlags, OtherFlagsAndDashesStay) {
  for (const char* text :
       {"--nnodes-max", "--nnodesx", "--master-ports", "-- x", "a--", "----", ""})
    EXPECT_EQ(RenameFlags(text, kNames), text);
  EXPECT_EQ(RenameFlags("--nnodes", ""), "--nnodes");
}

}  // namespace
}  // namespace ddprun
