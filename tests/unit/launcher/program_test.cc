// SPDX-License-Identifier: Apache-2.0
#include "launcher/processes/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A folder of its own with a few files; its sub-folder "own" is ddprun's, "path" is in PATH.
class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/program_test_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    for (const char* sub : {"own", "path"}) std::filesystem::create_directory(folder_ + "/" + sub);
    variables_["PATH"] = folder_ + "/path";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Make(const std::string& name, mode_t mode = 0755) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n";
    chmod(path.c_str(), mode);
    return path;
  }

  absl::StatusOr<Program> Resolve(std::vector<std::string> program, bool module = false,
                                  bool no_python = false) {
    ProgramSection section;
    section.program = std::move(program);
    section.module = module;
    section.no_python = no_python;
    return ResolveSection(section);
  }

  absl::StatusOr<Program> ResolveSection(const ProgramSection& section) {
    return ResolveProgram(
        section, folder_ + "/own", [this](const std::string& name) -> std::optional<std::string> {
          const auto found = variables_.find(name);
          return found == variables_.end() ? std::nullopt : std::optional(found->second);
        });
  }

  std::string folder_;
  std::map<std::string, std::string> variables_;
};

TEST_F(ProgramTest, AnInterpreterThatIsNotThereIsNamed) {
  const std::string script = Make("path/script");
  const auto says = [&](const std::string& line) {
    std::ofstream(script) << line;
    const absl::StatusOr<Program> program = Resolve({script});
    EXPECT_TRUE(program.ok() || absl::IsNotFound(program.status())) << program.status();
    return std::string(program.status().message());
  };
  EXPECT_EQ(says("#!/bin/sh\r\nexit 0\r\n"),
            script +
                " has Windows line ends, so its interpreter /bin/sh is not found; "
                "`sed -i 's/\\r$//' " +
                script + "` fixes it");
  EXPECT_THAT(says("#!/usr/bin/env python3\r\n"), HasSubstr("its interpreter python3 is not"));
  EXPECT_THAT(says("#! /no/such/shell -e\n"),
              HasSubstr("names the interpreter /no/such/shell in its first line"));
  EXPECT_EQ(says("#!/bin/sh -e\n"), "");
  EXPECT_EQ(says("#!/bin/sh"), "");
  EXPECT_EQ(says("#!\n"), "");
  EXPECT_EQ(says("\x7f"
                 "ELF"),
            "");
}

TEST_F(ProgramTest, ABareNameIsLookedForBesideDdprunFirst) {
  const std::string in_path = Make("path/train");
  ASSERT_TRUE(Resolve({"train", "-x"}).ok());
  EXPECT_EQ(Resolve({"train"})->path, in_path);
  const std::string own = Make("own/train");
  EXPECT_EQ(Resolve({"train"})->path, own);
  EXPECT_THAT(Resolve({"train", "--epochs", "$$"})->argv, ElementsAre("train", "--epochs", "$$"));
}

TEST_F(ProgramTest, APathIsTakenAsItIs) {
  const std::string path = Make("tool");
  EXPECT_EQ(Resolve({path})->path, path);
}

TEST_F(ProgramTest, ScriptsAndModulesAreRunByPython) {
  const std::string python = Make("path/python3");
  const std::string script = Make("job.py", 0644);
  EXPECT_THAT(Resolve({script, "-v"})->argv, ElementsAre(python, "-u", script, "-v"));
  EXPECT_THAT(Resolve({"pkg.mod", "-v"}, true)->argv,
              ElementsAre(python, "-u", "-m", "pkg.mod", "-v"));
  variables_["PYTHON_EXEC"] = Make("other-python");
  EXPECT_EQ(Resolve({script})->path, variables_["PYTHON_EXEC"]);
}

// Its environment need not be active, as under cron and systemd.
TEST_F(ProgramTest, ThePythonOfTheEnvironmentThatDdprunIsInWins) {
  for (const char* sign : {"pyvenv.cfg", "conda-meta"}) {
    const std::string in_path = Make("path/python3");
    const std::string own = Make("own/python3");
    const std::string script = Make("job.py", 0644);
    EXPECT_EQ(Resolve({script})->path, in_path) << "no environment: /usr/bin";
    Make(sign, 0644);
    EXPECT_THAT(Resolve({script, "-v"})->argv, ElementsAre(own, "-u", script, "-v"));
    variables_["PYTHON_EXEC"] = in_path;
    EXPECT_EQ(Resolve({script})->path, in_path);
    variables_.erase("PYTHON_EXEC");
    std::filesystem::remove(own);
    EXPECT_EQ(Resolve({script})->path, in_path);
    std::filesystem::remove(folder_ + "/" + sign);
  }
}

TEST_F(ProgramTest, RunPathIsWhatRunpyDoes) {
  const std::string python = Make("path/python3");
  const std::string script = Make("job.py", 0644);
  ProgramSection section;
  section.run_path = section.no_python = true;
  section.program = {script, "-v"};
  EXPECT_THAT(ResolveSection(section)->argv,
              ElementsAre(python, "-u", "-c", HasSubstr("runpy.run_path("), script, "-v"));
}

TEST_F(ProgramTest, WhatElsePythonRuns) {
  Make("path/python3");
  const std::string archive = Make("app.pyz", 0644);
  EXPECT_EQ(Resolve({archive})->argv.back(), archive);
  Make("own/__main__.py", 0644);
  EXPECT_EQ(Resolve({folder_ + "/own"})->argv.back(), folder_ + "/own");
}

TEST(ProgramArgumentsTest, TheLocalRankIsFilledInAndNothingElse) {
  const Program program{"/bin/x",
                        {"${local_rank}", "--gpu=${local_rank}", "$$", "$local_rank",
                         "${LOCAL_RANK}", "a${local_rank}b${local_rank}"}};
  EXPECT_THAT(ArgumentsOf(program, 11), ElementsAre("${local_rank}", "--gpu=11", "$$",
                                                    "$local_rank", "${LOCAL_RANK}", "a11b11"));
}

TEST_F(ProgramTest, NoPythonRunsTheFileItself) {
  const std::string script = Make("job.py");
  EXPECT_EQ(Resolve({script}, false, true)->path, script);
}

TEST_F(ProgramTest, WhatIsMissingIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(Resolve({"nowhere"}).status()));
  EXPECT_THAT(std::string(Resolve({"nowhere"}).status().message()), HasSubstr("'nowhere'"));
  EXPECT_TRUE(absl::IsNotFound(Resolve({folder_ + "/nowhere"}).status()));
  EXPECT_TRUE(absl::IsNotFound(Resolve({folder_ + "/nowhere.py"}).status()));
  variables_["PYTHON_EXEC"] = "no-such-python";
  EXPECT_THAT(std::string(Resolve({Make("job.py")}).status().message()), HasSubstr("PYTHON_EXEC"));
}

TEST_F(ProgramTest, WhatCannotBeExecutedIsDenied) {
  EXPECT_TRUE(absl::IsPermissionDenied(Resolve({Make("plain", 0644)}).status()));
  EXPECT_TRUE(absl::IsPermissionDenied(Resolve({folder_ + "/own"}).status()));
  Make("path/plain", 0644);
  EXPECT_TRUE(absl::IsPermissionDenied(Resolve({"plain"}).status()));
}

TEST_F(ProgramTest, TheProgramOfAWrapIsInPath) {
  const auto in_path = [this](const std::string& name) -> std::optional<std::string> {
    return name == "PATH" ? std::optional(folder_ + "/path") : std::nullopt;
  };
  const std::string gdb = Make("path/gdb");
  Make("own/time");
  Options options;
  options.wraps = {{{0}, {"gdb", "--args"}}};
  ASSERT_TRUE(ResolveWraps(options, 1, in_path).ok());
  EXPECT_THAT(options.wraps[0].command, ElementsAre(gdb, "--args"));
  options.wraps = {{{0}, {"time"}}};
  const absl::Status missing = ResolveWraps(options, 1, in_path);
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_EQ(missing.message(),
            "--wrap: there is no program 'time' in PATH; install it, or give its path");
  options.nodes = 2;  // the rank may be on the other node
  ASSERT_TRUE(ResolveWraps(options, 1, in_path).ok());
  EXPECT_THAT(options.wraps[0].command, ElementsAre("time"));
}

TEST(MissingRankTest, RanksOfWrapAndStdinMustExist) {
  Options options;
  EXPECT_EQ(MissingRank(options, 1), "");
  options.wraps = {{{0, 4}, {"gdb"}}};
  EXPECT_EQ(MissingRank(options, 5), "");
  EXPECT_EQ(MissingRank(options, 4),
            "--wrap names rank 4, and this run has ranks 0 to 3; name one of them");
  options.wraps.clear();
  options.worker_stdin = {.to = WorkerStdin::To::kRank, .rank = 1};
  EXPECT_EQ(MissingRank(options, 2), "");
  EXPECT_EQ(MissingRank(options, 1),
            "--stdin names rank 1, and this run has rank 0 alone; name one of them");
}

}  // namespace
}  // namespace ddprun
