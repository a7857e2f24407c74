// SPDX-License-Identifier: Apache-2.0
// Several programs on one command line.
#include "launcher/command_line/program_sections.h"

#include <gmock/gmock.h>

#include "tests/unit/launcher/options_fixture.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ProgramSectionsTest, EachProgramHasItsRoleItsNumberAndItsArguments) {
  const Options options = ParsedLine(
      "--max-restarts 3 --role trainer:6 train --epochs 2 : --role=eval:2 -m pkg.eval --role x : "
      "--role data --no-python feed.py -- :");
  EXPECT_EQ(options.restarts.max_restarts, 3);
  EXPECT_EQ(options.role, "trainer");
  EXPECT_EQ(options.workers, 6);
  EXPECT_THAT(options.program, ElementsAre("train", "--epochs", "2"));
  ASSERT_EQ(options.more_programs.size(), 2u);
  EXPECT_EQ(options.more_programs[0].role, "eval");
  EXPECT_EQ(options.more_programs[0].workers, 2);
  EXPECT_TRUE(options.more_programs[0].module);
  EXPECT_THAT(options.more_programs[0].program, ElementsAre("pkg.eval", "--role", "x"));
  EXPECT_EQ(options.more_programs[1].role, "data");
  EXPECT_EQ(options.more_programs[1].workers, std::nullopt);
  EXPECT_TRUE(options.more_programs[1].no_python);
  EXPECT_THAT(options.more_programs[1].program, ElementsAre("feed.py", "--", ":", "true"));
}

TEST(ProgramSectionsTest, OnlyAColonBeforeARoleBeginsAProgram) {
  for (const char* line : {"prog a : b --role x", "prog : --roles x", "prog :--role x", "prog :"}) {
    const Options options = ParsedLine(line);
    EXPECT_THAT(options.more_programs, IsEmpty()) << line;
    EXPECT_THAT(options.warnings, IsEmpty()) << line;
  }
  EXPECT_THAT(ParsedLine("--role a:2 prog : -m x").warnings,
              ElementsAre(HasSubstr("':' is an argument of prog")));
}

TEST(ProgramSectionsTest, ARoleMayHaveANumberInARunOfOneProgram) {
  const Options options = ParsedLine("--role trainer:3 --nproc-per-node 2");
  EXPECT_EQ(options.role, "trainer");
  EXPECT_EQ(options.workers, 3);
  EXPECT_FALSE(options.ranks_by_role);
  EXPECT_EQ(ParsedLine("--role a:b").role, "a:b");
  EXPECT_EQ(ParsedLine("--role a:b:4").role, "a:b");
  EXPECT_EQ(ParsedLine("", {{"PET_ROLE", "x:2"}}).workers, 2);
}

TEST(ProgramSectionsTest, RanksAreCountedByRoleIfThereAreSeveral) {
  EXPECT_TRUE(ParsedLine("--role a p : --role b").ranks_by_role);
  EXPECT_FALSE(ParsedLine("--ranks-by run --role a p : --role b").ranks_by_role);
  EXPECT_TRUE(ParsedLine("--ranks-by role").ranks_by_role);
  EXPECT_THAT(LineError("--ranks-by node"), HasSubstr("'node' is not run or role"));
}

TEST(ProgramSectionsTest, WhatIsWrongIsSaidInASentence) {
  EXPECT_EQ(LineError("--role a p : --role a"),
            "two programs have the role a; give each its own with --role NAME:COUNT");
  EXPECT_THAT(LineError("--role a p : --role b --max-restarts 3"),
              AllOf(HasSubstr("--max-restarts stands after the ':' of role b"),
                    HasSubstr("before the first program")));
  EXPECT_THAT(LineError("--role a:0"), HasSubstr("--role 'a:0' is not a name, or NAME:COUNT"));
  EXPECT_THAT(LineError("--role a p : --role b:99999"), HasSubstr("'b:99999' is not a name"));
  EXPECT_THAT(LineError("--role a p : --role b --module --no-python"),
              HasSubstr("contradict each other in role b"));
  EXPECT_THAT(LineError("--spares 1 --max-restarts 1 --role a p : --role b"),
              HasSubstr("--spares parks workers of one program"));
  EXPECT_THAT(LineError("-n 4 --role a p : --role b"), HasSubstr("leave -n out"));
  EXPECT_THAT(LineError("-n 4 --role a:2"), HasSubstr("leave -n out"));
  EXPECT_EQ(
      std::string(
          ParseOptions({"--role", "a", "p", ":", "--role", "b"}, From({})).status().message()),
      "role b has no program; name one after its flags");
}

TEST(ProgramSectionsTest, WhatIsWrittenIsReadBack) {
  const ProgramSection section{.role = "a:b",
                               .workers = 3,
                               .module = true,
                               .no_python = false,
                               .run_path = true,
                               .program = {"-odd", "--role", "x"}};
  std::vector<std::string> arguments = ArgumentsOf(section);
  EXPECT_EQ(arguments.front(), ":");
  arguments.erase(arguments.begin());
  const auto back = ParseSection(arguments);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(ArgumentsOf(*back), ArgumentsOf(section));
}

}  // namespace
}  // namespace ddprun
