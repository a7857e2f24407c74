// SPDX-License-Identifier: Apache-2.0
#include "worker/train/app/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Arguments = std::vector<std::string>;

Config Parsed(const Arguments& arguments) { return ParseCommandLine(arguments); }

std::string AnswerTo(const std::vector<std::string>& arguments) {
  try {
    ParseCommandLine(arguments);
  } catch (const Information& information) {
    return information.text;
  }
  return "";
}

std::string UsageMessage(const Arguments& arguments) {
  return MessageOf<UsageError>([&] { ParseCommandLine(arguments); });
}

TEST(CommandLine, DefaultsAreThoseOfTheStruct) {
  const Config config = Parsed({});
  for (const auto& setting : Settings())
    EXPECT_EQ(ToText(config, setting), ToText(Config{}, setting));
}

TEST(CommandLine, TakesEverySettingInBothSpellings) {
  for (const std::string separator : {"-", "_"}) {
    const Config config =
        Parsed({"--batch" + separator + "size", "32", "--max" + separator + "steps=20",
                "--no" + separator + "channels" + separator + "last", "--lr", "1e-3"});
    EXPECT_EQ(config.batch_size, 32);
    EXPECT_EQ(config.max_steps, 20);
    EXPECT_FALSE(config.channels_last);
    EXPECT_EQ(config.lr, 1e-3);
  }
}

TEST(CommandLine, LeavesUnderscoresOfValuesAlone) {
  EXPECT_EQ(Parsed({"--output_dir=my_folder"}).output_dir, "my_folder");
  EXPECT_EQ(Parsed({"--data_dir", "my_data"}).data_dir, "my_data");
}

TEST(CommandLine, LastOfTwoCounts) {
  EXPECT_EQ(Parsed({"--seed", "1", "--seed", "2"}).seed, 2u);
  EXPECT_TRUE(Parsed({"--no-augment", "--augment"}).augment);
  EXPECT_FALSE(Parsed({"--augment", "--no_augment"}).augment);
}

TEST(CommandLine, MaxStepsMayBeNoneOrZero) {
  EXPECT_EQ(Parsed({}).max_steps, std::nullopt);
  EXPECT_EQ(Parsed({"--max-steps", "0"}).max_steps, 0);
}

TEST(CommandLine, GoesOverTheFileWhichGoesOverTheDefaults) {
  const TempFiles files;
  const auto path = files.Write(
      "c.yaml", "lr: 0.5\nbatch_size: 8\nshared-blocks: false\n# a remark\nmodel: resnet18\n");
  const Config config = Parsed({"--lr", "0.25", "--config", path, "--shared-blocks"});
  EXPECT_EQ(config.lr, 0.25);
  EXPECT_EQ(config.batch_size, 8);
  EXPECT_TRUE(config.shared_blocks);
  EXPECT_EQ(config.model, "resnet18");
  EXPECT_EQ(config.momentum, Config{}.momentum);
}

TEST(CommandLine, NesterovIsTheDefaultWhereSgdHasMomentum) {
  EXPECT_TRUE(UsesNesterov(Parsed({})));
  EXPECT_TRUE(UsesNesterov(Parsed({"--nesterov"})));
  EXPECT_FALSE(UsesNesterov(Parsed({"--no-nesterov"})));
  EXPECT_FALSE(UsesNesterov(Parsed({"--momentum", "0"})));
  EXPECT_FALSE(UsesNesterov(Parsed({"--optimizer", "adamw"})));
}

TEST(CommandLine, EmptyFileSetsNothing) {
  const TempFiles files;
  EXPECT_EQ(Parsed({"--config", files.Write("c.yaml", "# nothing yet\n")}).lr, Config{}.lr);
}

TEST(CommandLine, HelpNamesEverySettingAndChoice) {
  const auto help = AnswerTo({"--help"});
  for (const auto& setting : Settings()) EXPECT_THAT(help, HasSubstr("--" + setting.key));
  EXPECT_THAT(help, AllOf(HasSubstr("--config"), HasSubstr("resnet50"), HasSubstr("fashion-mnist"),
                          HasSubstr("nccl")));
}

TEST(CommandLine, VersionIsTold) {
  EXPECT_THAT(AnswerTo({"--version"}), HasSubstr(DDPRUN_VERSION));
}

TEST(CommandLine, WhatIsNotUnderstoodIsNamed) {
  EXPECT_THAT(UsageMessage({"--wombat", "3"}), AllOf(HasSubstr("--wombat"), HasSubstr("--help")));
  EXPECT_THAT(UsageMessage({"surplus"}), HasSubstr("surplus"));
  EXPECT_THAT(UsageMessage({"--lr"}), HasSubstr("--lr"));
  EXPECT_THAT(UsageMessage({"--lr", "fast"}),
              AllOf(HasSubstr("--lr"), HasSubstr("a number"), HasSubstr("'fast'")));
  EXPECT_THAT(UsageMessage({"--lr", "nan"}), HasSubstr("'nan'"));
  EXPECT_THAT(UsageMessage({"--batch-size", "6.5"}),
              AllOf(HasSubstr("whole number"), HasSubstr("'6.5'")));
  EXPECT_THAT(UsageMessage({"--seed", "-1"}), HasSubstr("from 0"));
  EXPECT_THAT(UsageMessage({"--augment=perhaps"}), HasSubstr("perhaps"));
  EXPECT_THAT(UsageMessage({"--model", "vgg"}), AllOf(HasSubstr("vgg"), HasSubstr("resnet34")));
  EXPECT_THAT(UsageMessage({"--dataset", "mnist"}),
              AllOf(HasSubstr("mnist"), HasSubstr("cifar10")));
  EXPECT_THAT(UsageMessage({"--backend", "mpi"}), AllOf(HasSubstr("mpi"), HasSubstr("gloo")));
}

TEST(CommandLine, WhatIsNearlyRightIsNamed) {
  for (const auto& [wrong, right] :
       std::vector<std::pair<std::string, std::string>>{{"--bath-size", "--batch-size"},
                                                        {"--learning_rate", "--lr"},
                                                        {"--learning-rate=0.1", "--lr"},
                                                        {"--num-workers", "--loader-threads"},
                                                        {"--modle", "--model"},
                                                        {"--max-grad-norm", "--clip-norm"},
                                                        {"--out", "--output-dir"}}) {
    EXPECT_THAT(UsageMessage({wrong, "1"}), HasSubstr("did you mean " + right + "?")) << wrong;
  }
}

TEST(CommandLine, RangesAreChecked) {
  EXPECT_THAT(UsageMessage({"--batch-size", "0"}), HasSubstr("batch-size must be at least 1"));
  EXPECT_THAT(UsageMessage({"--eval-batch-size", "0"}), HasSubstr("eval-batch-size"));
  EXPECT_THAT(UsageMessage({"--log-every", "0"}), HasSubstr("log-every"));
  EXPECT_THAT(UsageMessage({"--epochs", "0"}),
              AllOf(HasSubstr("epochs"), HasSubstr("--max-steps 0")));
  EXPECT_THAT(UsageMessage({"--max-steps", "-1"}), HasSubstr("max-steps"));
  EXPECT_THAT(UsageMessage({"--warmup-steps", "-1"}), HasSubstr("warmup-steps"));
  EXPECT_THAT(UsageMessage({"--warmup-epochs", "-1"}), HasSubstr("warmup-epochs"));
  EXPECT_THAT(UsageMessage({"--lr", "0"}), HasSubstr("lr must be above 0"));
  EXPECT_THAT(UsageMessage({"--momentum", "1"}), HasSubstr("momentum"));
  EXPECT_THAT(UsageMessage({"--weight-decay", "-1"}), HasSubstr("weight-decay"));
  EXPECT_THAT(UsageMessage({"--nesterov", "--momentum", "0"}), HasSubstr("nesterov"));
  EXPECT_THAT(UsageMessage({"--nesterov", "--optimizer", "adamw"}), HasSubstr("nesterov"));
  EXPECT_THAT(UsageMessage({"--timeout", "0"}), HasSubstr("timeout"));
}

// What is multiplied with the steps of an epoch, or with the ranks, fits 64 bits.
TEST(CommandLine, LengthsTooLargeToCountAreRefused) {
  EXPECT_THAT(UsageMessage({"--epochs", "1e16"}),
              HasSubstr("--epochs must be at most 1e+09, but is 1e+16"));
  for (const char* flag : {"--warmup-epochs", "--step-epochs", "--eval-every", "--whiten-epochs",
                           "--checkpoint-seconds"})
    EXPECT_THAT(UsageMessage({flag, "2e9"}), HasSubstr("must be at most 1e+09")) << flag;
  for (const char* flag : {"--batch-size", "--eval-batch-size", "--samples", "--input-size",
                           "--num-classes", "--accumulate", "--micro-batches", "--world-size"})
    EXPECT_THAT(UsageMessage({flag, "9223372036854775807"}), HasSubstr("must be at most 1e+09"))
        << flag;
  EXPECT_THAT(UsageMessage({"--max-steps", "9223372036854775807"}),
              HasSubstr("--max-steps must be at most 1e+15"));
  EXPECT_THAT(UsageMessage({"--batch-size", "100000", "--accumulate", "100000"}),
              HasSubstr("--batch-size 100000 times --accumulate 100000"));
}

std::string FileMessage(const std::string& text) {
  const TempFiles files;
  return UsageMessage({"--config", files.Write("c.yaml", text)});
}

TEST(ConfigFile, FaultsAreToldWithFileLineAndKey) {
  EXPECT_THAT(FileMessage("lr: 0.1\nlearning_rate: 1\n"),
              AllOf(HasSubstr("c.yaml:2"), HasSubstr("'learning_rate'; did you mean lr?")));
  EXPECT_THAT(FileMessage("wombat: 1\n"), HasSubstr("'wombat'; see train --help"));
  EXPECT_THAT(
      FileMessage("\n\nbatch_size: many\n"),
      AllOf(HasSubstr("c.yaml:3: batch_size"), HasSubstr("whole number"), HasSubstr("'many'")));
  EXPECT_THAT(FileMessage("augment: 1\n"),
              AllOf(HasSubstr("c.yaml:1: augment"), HasSubstr("true or false")));
  EXPECT_THAT(FileMessage("lr: [1, 2]\n"),
              AllOf(HasSubstr("c.yaml:1: lr"), HasSubstr("one value")));
  EXPECT_THAT(FileMessage("lr:\n"), AllOf(HasSubstr("c.yaml:1: lr"), HasSubstr("one value")));
  EXPECT_THAT(FileMessage("lr: 1\nlr: 2\n"), AllOf(HasSubstr("c.yaml:2"), HasSubstr("twice")));
  EXPECT_THAT(FileMessage("- lr\n"), HasSubstr("map of settings"));
  EXPECT_THAT(FileMessage("lr: [\n"), AllOf(HasSubstr("c.yaml:2"), HasSubstr("not YAML")));
}

TEST(ConfigFile, AbsentFileIsNamed) {
  EXPECT_THAT(UsageMessage({"--config", "/nowhere/c.yaml"}),
              AllOf(HasSubstr("/nowhere/c.yaml"), HasSubstr("--config")));
}

TEST(ConfigFile, FolderIsNotAFile) {
  const TempFiles files;
  EXPECT_THAT(UsageMessage({"--config", files.folder()}), HasSubstr(files.folder()));
}

}  // namespace
}  // namespace ddprun
