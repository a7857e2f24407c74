// SPDX-License-Identifier: Apache-2.0
#include "launcher/base/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/command_line/parse_options.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Fruit { kNone, kApple, kPear };

struct Basket {
  std::string owner = "nobody";
  std::optional<int> count;
};

struct Shop {
  Basket basket;
  Fruit fruit = Fruit::kPear;
  milliseconds delay{1500};
  milliseconds pause{2000};
  bool open = false;
  bool sells_wine = true;
};

void Double(Reader& reader, const Flag& flag, const Value& value, Shop& shop) {
  ReadInto(reader, flag, value, shop.delay);
  shop.delay *= 2;
}

constexpr FlagOf<Shop> kShopFlags[] = {
    {"--owner", "NAME", "Its owner ({}).", Sets<&Shop::basket, &Basket::owner>},
    {"--count", "N", "How many.", Sets<&Shop::basket, &Basket::count>, Between(2, 5)},
    {"--fruit", "KIND", "Its fruit ({}).", Sets<&Shop::fruit>,
     Choices("apple|pear", Fruit::kApple)},
    {"--pause", "SECONDS", "Its pause ({}; 0: none).", Sets<&Shop::pause>, ZeroOrUpTo(60)},
    {"--delay", "SECONDS", "Half of its delay.", Double, UpTo(60)},
    {"--open", nullptr, "It is open.", Sets<&Shop::open>},
    {"--wine", "no|yes", "Its wine.", Sets<&Shop::sells_wine>},
};

std::vector<Flag> ShopFlags() { return {std::begin(kShopFlags), std::end(kShopFlags)}; }

struct Outcome {
  Shop shop;
  std::string error;
};

Outcome Parse(const std::vector<std::string>& arguments) {
  const auto flags = ParseFlags(ShopFlags(), arguments);
  if (!flags.ok()) return {{}, std::string(flags.status().message())};
  Reader reader(flags->values);
  Outcome outcome;
  reader.Read(kShopFlags, outcome.shop);
  outcome.error = std::string(reader.status().message());
  return outcome;
}

TEST(FlagsTest, ARowSetsItsMember) {
  const Outcome outcome = Parse({"--owner", "Ann", "--count=3", "--fruit", "apple", "--pause", "0",
                                 "--delay", "500ms", "--open", "--wine", "no"});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.shop.basket.owner, "Ann");
  EXPECT_EQ(outcome.shop.basket.count, 3);
  EXPECT_EQ(outcome.shop.fruit, Fruit::kApple);
  EXPECT_EQ(outcome.shop.pause, milliseconds(0));
  EXPECT_EQ(outcome.shop.delay, milliseconds(1000));
  EXPECT_TRUE(outcome.shop.open);
  EXPECT_FALSE(outcome.shop.sells_wine);
}

TEST(FlagsTest, WithoutTheFlagTheMemberKeepsItsDefault) {
  const Outcome outcome = Parse({});
  EXPECT_EQ(outcome.shop.basket.owner, "nobody");
  EXPECT_EQ(outcome.shop.basket.count, std::nullopt);
  EXPECT_EQ(outcome.shop.fruit, Fruit::kPear);
  EXPECT_EQ(outcome.shop.delay, milliseconds(1500));
}

TEST(FlagsTest, HelpShowsTheDefaultOfTheMember) {
  EXPECT_THAT(FlagsHelp(ShopFlags()),
              AllOf(HasSubstr("Its owner (nobody)."), HasSubstr("Its fruit (pear)."),
                    HasSubstr("Its pause (2; 0: none).")));
}

TEST(FlagsTest, NoHelpOfDdprunHasAnEmptyDefault) {
  for (const Flag& flag : AllFlags())
    EXPECT_THAT(flag.Help(), AllOf(Not(HasSubstr("{}")), Not(HasSubstr("()")))) << flag.name;
}

TEST(FlagsTest, AValueOutOfItsBoundsIsASentence) {
  EXPECT_EQ(Parse({"--count", "6"}).error, "--count '6' is not a whole number from 2 to 5");
  EXPECT_EQ(Parse({"--count", "x"}).error, "--count 'x' is not a whole number from 2 to 5");
  EXPECT_EQ(Parse({"--fruit", "none"}).error, "--fruit 'none' is not apple or pear");
  EXPECT_EQ(Parse({"--owner", ""}).error, "--owner '' is not a name");
  EXPECT_EQ(Parse({"--pause", "61"}).error,
            "--pause '61' is not a number of seconds above 0 and up to 60");
  EXPECT_EQ(Parse({"--delay", "0"}).error,
            "--delay '0' is not a number of seconds above 0 and up to 60");
}

TEST(FlagsTest, TheFirstErrorIsKept) {
  EXPECT_THAT(Parse({"--delay", "x", "--count", "9"}).error, HasSubstr("--count"));
}

}  // namespace
}  // namespace ddprun
