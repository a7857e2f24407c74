// SPDX-License-Identifier: Apache-2.0
// What a recipe sets, and what goes over it.
#include "worker/train/config/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/temp_files.h"
#include "worker/train/app/command_line.h"
#include "worker/train/config/config.h"

namespace ddprun {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Config Parsed(const std::vector<std::string>& arguments) { return ParseCommandLine(arguments); }

std::string AnswerTo(const std::vector<std::string>& arguments) {
  try {
    ParseCommandLine(arguments);
  } catch (const Information& information) {
    return information.text;
  }
  return "";
}

TEST(Recipe, EveryOneIsValidAndSaysItsName) {
  for (const std::string& name : RecipeNames()) {
    Config config;
    ApplyRecipe(config, name);
    EXPECT_EQ(config.recipe, name);
    EXPECT_NO_THROW(Validate(config));
  }
}

TEST(Recipe, NoneChangesNothing) {
  Config config;
  ApplyRecipe(config, "");
  for (const Setting& setting : Settings())
    EXPECT_EQ(ToText(config, setting), ToText(Config{}, setting));
}

TEST(Recipe, AnUnknownOneIsAnsweredWithThoseThereAre) {
  EXPECT_THAT(MessageOf<UsageError>([] {
                Parsed({"--recipe", "speedran"});
              }),
              AllOf(HasSubstr("'speedran'"), HasSubstr("choose one of speedrun")));
}

TEST(Recipe, LiesOverTheDefaultsAndUnderTheFileAndTheCommandLine) {
  const TempFiles files;
  const auto path = files.Write("c.yaml", "epochs: 4\nlr: 0.5\n");
  // The order on the command line does not matter.
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--lr", "0.125", "--recipe", "speedrun", "--config", path},
        std::vector<std::string>{"--config", path, "--recipe=speedrun", "--lr", "0.125"}}) {
    const Config config = Parsed(arguments);
    EXPECT_EQ(config.seed, Config{}.seed);
    EXPECT_EQ(config.model, "airbench");
    EXPECT_EQ(config.batch_size, 2000);
    EXPECT_EQ(config.epochs, 4);
    EXPECT_EQ(config.lr, 0.125);
  }
}

TEST(Recipe, MayBeNamedInTheFileInWhicheverLine) {
  const TempFiles files;
  const auto path = files.Write("c.yaml", "epochs: 4\nrecipe: speedrun\n");
  EXPECT_EQ(Parsed({"--config", path}).model, "airbench");
  EXPECT_EQ(Parsed({"--config", path}).epochs, 4);
  EXPECT_EQ(Parsed({"--config", path, "--model", "resnet18"}).model, "resnet18");
}

TEST(Recipe, PrintConfigShowsItAndIsReadBackAsTheSame) {
  const auto text = AnswerTo({"--print-config", "--recipe", "speedrun"});
  EXPECT_THAT(text, AllOf(HasSubstr("\nrecipe: speedrun "), HasSubstr("\nmodel: airbench "),
                          HasSubstr("\nhead_lr: 0.67 "), HasSubstr("\ntta: mirror-translate ")));
  const TempFiles files;
  const Config again = Parsed({"--config", files.Write("c.yaml", text)});
  const Config direct = Parsed({"--recipe", "speedrun"});
  for (const Setting& setting : Settings())
    EXPECT_EQ(ToText(again, setting), ToText(direct, setting)) << setting.key;
}

}  // namespace
}  // namespace ddprun
