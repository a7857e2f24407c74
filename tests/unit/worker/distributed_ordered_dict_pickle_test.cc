// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "worker/files/ordered_dict_pickle.h"

namespace ddprun {
namespace {

using namespace std::string_literals;

// OrderedDict([("a", 1)]) in protocol 2: how it is made, and its items.
const std::string kMade =
    "\x80\x02"
    "ccollections\nOrderedDict\nq\x00"
    ")R"s;
const std::string kItems =
    "q\x01(X\x01\x00\x00\x00"
    "aK\x01u"s;

TEST(OrderedDictPickle, BecomesAPairWithAPlainDict) {
  EXPECT_EQ(WithPlainDict(kMade + kItems + "."), kMade + "}" + kItems + "\x86.");
}

TEST(OrderedDictPickle, AttributesAreCutOff) {
  // {"_m": OrderedDict()}, set by BUILD.
  const std::string attributes = "}q\x02X\x02\x00\x00\x00_mh\x00)Rsb."s;
  EXPECT_EQ(WithPlainDict(kMade + kItems + attributes), kMade + "}" + kItems + "\x86.");
}

TEST(OrderedDictPickle, APlainDictIsLeftAlone) {
  const std::string dict =
      "\x80\x02}q\x00X\x01\x00\x00\x00"
      "aK\x01s."s;
  EXPECT_EQ(WithPlainDict(dict), dict);
}

TEST(OrderedDictPickle, TheBytesOfANameAreNoInstructions) {
  const std::string items = "q\x01(X\x03\x00\x00\x00}b.K\x01u"s;
  EXPECT_EQ(WithPlainDict(kMade + items + "."), kMade + "}" + items + "\x86.");
}

TEST(OrderedDictPickle, AnInstructionOfNoStateDictIsRefused) {
  EXPECT_THROW(WithPlainDict("\x80\x02\x93."s), std::runtime_error);
}

TEST(OrderedDictPickle, APickleThatEndsInTheMiddleIsRefused) {
  EXPECT_THROW(WithPlainDict("\x80\x02X\x03"s), std::runtime_error);
  EXPECT_THROW(WithPlainDict("\x80\x02"s + "ccollections"), std::runtime_error);
}

}  // namespace
}  // namespace ddprun
