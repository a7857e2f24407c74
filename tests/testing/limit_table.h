// SPDX-License-Identifier: Apache-2.0
// The constants of a room's limits.h as a table, for a test of all of them at once.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/testing/paths.h"

namespace ddprun {

struct Limit {
  const char* name;
  double value;  // durations in seconds
};

template <typename Number>
constexpr double LimitValue(Number number) {
  return static_cast<double>(number);
}
template <typename Rep, typename Period>
constexpr double LimitValue(std::chrono::duration<Rep, Period> duration) {
  return std::chrono::duration<double>(duration).count();
}

#define DDPRUN_LIMIT(constant) \
  ::ddprun::Limit { #constant, ::ddprun::LimitValue(constant) }

// What must not be larger than what.
struct LimitOrder {
  Limit smaller;
  Limit larger;
};

#define DDPRUN_ORDER(smaller, larger) \
  ::ddprun::LimitOrder { DDPRUN_LIMIT(smaller), DDPRUN_LIMIT(larger) }

// What a document says of a limit, made from its value.
struct LimitInDocument {
  const char* document;  // below the repository's root
  std::string text;
};

inline std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The names of all constants of `header`, in order.
inline std::vector<std::string> ConstantsIn(const std::string& header) {
  const std::string text = TextOf(SourcePath(header));
  const std::regex constant(R"(inline constexpr [\w:]+ (k\w+)\b)");
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), constant), end; it != end; ++it)
    names.push_back((*it)[1]);
  return names;
}

// Every constant of the header is in the table, and is positive.
template <typename Table>
void ExpectCompleteAndPositive(const std::string& header, const Table& table) {
  std::vector<std::string> names;
  for (const Limit& limit : table) {
    names.emplace_back(limit.name);
    EXPECT_GT(limit.value, 0) << limit.name;
  }
  EXPECT_THAT(names, ::testing::ElementsAreArray(ConstantsIn(header)));
}

template <typename Table>
void ExpectOrdered(const Table& table) {
  for (const LimitOrder& order : table)
    EXPECT_LE(order.smaller.value, order.larger.value)
        << order.smaller.name << " must not be above " << order.larger.name;
}

// Each document says its sentence, however its lines are broken.
inline void ExpectDocumented(const std::vector<LimitInDocument>& table) {
  for (const LimitInDocument& row : table) {
    const std::string text =
        std::regex_replace(TextOf(SourcePath(row.document)), std::regex(R"(\s+)"), " ");
    EXPECT_NE(text.find(row.text), std::string::npos)
        << row.document << " does not say '" << row.text << "', which is the limit now";
  }
}

}  // namespace ddprun
