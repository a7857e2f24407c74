// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/values/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/temp_files.h"

namespace ddprun {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

constexpr char kProtocol[] = "\x80\x02";

// The values refer to the bytes of the latest pickle.
Pickle Parse(const std::string& instructions) {
  static std::string bytes;
  bytes = kProtocol + instructions;
  return ParsePickle(bytes);
}
std::string ErrorOf(const std::string& instructions) {
  return MessageOf<PickleError>([&] { Parse(instructions); });
}

TEST(Pickle, NumbersAreRead) {
  const Pickle pickle = Parse(
      "(K\xffM\xff\xffJ\xff\xff\xff\xff\x8a\x08\0\0\0\0\0\x01\0\0\x8a\x01\x80\x8a\0"
      "G\x3f\xf8\0\0\0\0\0\0\x88\x89Nt."s);
  const auto& items = pickle.root().As<PickleTuple>()->items;
  ASSERT_EQ(items.size(), 10u);
  const std::int64_t integers[] = {255, 65535, -1, std::int64_t{1} << 40, -128, 0};
  for (std::size_t i = 0; i < std::size(integers); ++i)
    EXPECT_EQ(*items[i]->As<std::int64_t>(), integers[i]) << i;
  EXPECT_EQ(*items[6]->As<double>(), 1.5);
  EXPECT_TRUE(*items[7]->As<bool>());
  EXPECT_FALSE(*items[8]->As<bool>());
  EXPECT_NE(items[9]->As<PickleNone>(), nullptr);
}

TEST(Pickle, AnOrderedDictIsADictWithoutItsAttributes) {
  // OrderedDict([("a", 1)]) with the attribute _m, set by BUILD.
  const Pickle pickle =
      Parse("ccollections\nOrderedDict\nq\0)Rq\x01(X\x01\0\0\0aK\x01u}q\x02X\x02\0\0\0_mh\0)Rsb."s);
  const auto* dict = pickle.root().As<PickleDict>();
  ASSERT_NE(dict, nullptr);
  ASSERT_EQ(dict->items.size(), 1u);
  EXPECT_EQ(*dict->items[0].first->As<std::string_view>(), "a");
  EXPECT_EQ(*dict->items[0].second->As<std::int64_t>(), 1);
}

TEST(Pickle, AnOrderedDictOfPython2IsADict) {
  const std::string one = "](U\1aK\1e";
  const std::string two = "](U\1bK\2e";
  const Pickle pickle = Parse("ccollections\nOrderedDict\n](" + one + two + "e\x85R.");
  const auto* dict = pickle.root().As<PickleDict>();
  ASSERT_NE(dict, nullptr);
  ASSERT_EQ(dict->items.size(), 2u);
  EXPECT_EQ(*dict->items[1].first->As<std::string_view>(), "b");
  EXPECT_EQ(*dict->items[1].second->As<std::int64_t>(), 2);
}

// Each OrderedDict of it would copy the list.
TEST(Pickle, AListThatIsNamedAgainAndAgainIsRejected) {
  std::string instructions = "(]q\0("s;
  for (int i = 0; i < 1100; ++i) instructions += "](U\1aK\1e";
  instructions += "e";
  const auto named = [&](int times) {
    std::string text = instructions;
    for (int i = 0; i < times; ++i) text += "ccollections\nOrderedDict\nh\0\x85R"s;
    return text + "t.";
  };
  EXPECT_EQ(Parse(named(900)).root().As<PickleTuple>()->items.size(), 901u);
  EXPECT_THAT(ErrorOf(named(1000)), HasSubstr("do not fit together"));
}

TEST(Pickle, AnObjectWithItemsAndAStateStaysARecord) {
  // As a class of its own that is a dict with attributes.
  const Pickle pickle = Parse(
      "cmine\nDict\n)\x81(U\x01"
      "aK\x01u}U\x01sK\x02sb."s);
  const auto* call = pickle.root().As<PickleCall>();
  ASSERT_NE(call, nullptr);
  EXPECT_TRUE(call->function->IsGlobal("mine", "Dict"));
  EXPECT_EQ(call->state->As<PickleDict>()->items.size(), 1u);
}

TEST(Pickle, WhatFollowsItIsLeft) {
  const Pickle pickle = Parse("K\1.K\2.");
  EXPECT_EQ(*pickle.root().As<std::int64_t>(), 1);
  EXPECT_EQ(pickle.size(), 5u);
}

TEST(Pickle, ValuesThatArePutIntoTheMemoAreFilledLater) {
  const Pickle pickle = Parse(
      "]q\0h\0(U\x01"
      "aT\x01\0\0\0"
      "be\x86."s);
  const auto& pair = pickle.root().As<PickleTuple>()->items;
  EXPECT_EQ(pair[0], pair[1]);
  EXPECT_EQ(pair[0]->As<PickleList>()->items.size(), 2u);
}

TEST(Pickle, ACallStaysARecord) {
  const Pickle pickle = Parse("cos\nsystem\nX\x04\0\0\0true\x85R}b."s);
  const auto* call = pickle.root().As<PickleCall>();
  ASSERT_NE(call, nullptr);
  EXPECT_TRUE(call->function->IsGlobal("os", "system"));
  EXPECT_EQ(*call->arguments->items[0]->As<std::string_view>(), "true");
  EXPECT_NE(call->state, nullptr);
}

TEST(Pickle, InstructionsOfProtocol4AreRead) {
  // ((numpy.dtype, (b"xy", b"z", b"w")), numpy.dtype), the second from the memo.
  const Pickle pickle = Parse(
      "\x95\x40\0\0\0\0\0\0\0\x8c\x05numpy\x94\x8c\x05"
      "dtype\x93\x94"
      "C\x02xy\x8e\x01\0\0\0\0\0\0\0zB\x01\0\0\0w\x87\x86h\x01\x86."s);
  const auto& outer = pickle.root().As<PickleTuple>()->items;
  EXPECT_TRUE(outer[1]->IsGlobal("numpy", "dtype"));
  std::string joined;
  for (const auto* item : outer[0]->As<PickleTuple>()->items[1]->As<PickleTuple>()->items)
    joined += *item->As<std::string_view>();
  EXPECT_EQ(joined, "xyzw");
  EXPECT_EQ(ErrorOf("NN\x93."), "the pickle's instructions do not fit together");
}

TEST(Pickle, WhatEndsInTheMiddleIsRejected) {
  for (const auto& text : {"X\x03"s, "X\xff\xff\xff\xffz."s, "ccollections"s, "J\x01"s, "K"s, ""s})
    EXPECT_EQ(ErrorOf(text), "the pickle ends in the middle of an instruction");
}

TEST(Pickle, InstructionsThatDoNotFitTogetherAreRejected) {
  // Without values or marks, a group that goes below its mark, an odd group, a key that was never
  // put, a call of what is no tuple, values left over.
  for (const auto& text : {"."s, "t."s, "K\x01(\x85."s, "K\x01(R."s, "}(K\x01u."s, "h\x07."s,
                           "K\x01K\x01R."s, "K\x01K\x02."s,
                           "K\x01K\x02"
                           "a."s,
                           "K\x01(."s, "q\0."s, "K\x01Nb."s, "Q."s})
    EXPECT_EQ(ErrorOf(text), "the pickle's instructions do not fit together") << text;
}

TEST(Pickle, AnInstructionThatIsNotKnownIsNamed) {
  EXPECT_EQ(ErrorOf("K\x01\x30."), "the pickle has instruction 48, which is not read here");
}

TEST(Pickle, IntegersBeyond64BitsAreRejected) {
  EXPECT_THAT(ErrorOf("\x8a\x09\0\0\0\0\0\0\0\0\x01."s), HasSubstr("beyond 64 bits"));
}

// The place in the memo is a number of the pickle's own choice: a table would take gigabytes.
TEST(Pickle, AFarPlaceInTheMemoCostsNothing) {
  const Pickle pickle = Parse("K\x01r\xff\xff\xff\xff."s);
  EXPECT_EQ(*pickle.root().As<std::int64_t>(), 1);
}

TEST(Pickle, TooManyValuesAreRejected) {
  std::string lists(kPickleValuesMax + 1, ']');
  lists += '.';
  EXPECT_THAT(ErrorOf(lists), HasSubstr("more than 1048576"));
  std::string recalls = "Nq\0"s;
  for (std::size_t i = 0; i < kPickleValuesMax; ++i) recalls += "h\0"s;
  EXPECT_EQ(ErrorOf(recalls), "the pickle's instructions do not fit together");
}

TEST(Pickle, TooManyMarksAndPlacesInTheMemoAreRejected) {
  EXPECT_EQ(ErrorOf(std::string(kPickleValuesMax + 1, '(')),
            "the pickle's instructions do not fit together");
  EXPECT_EQ(ErrorOf("N" + std::string(kPickleValuesMax + 1, '\x94')),
            "the pickle's instructions do not fit together");
}

}  // namespace
}  // namespace ddprun
