// SPDX-License-Identifier: Apache-2.0
// A command line read as ddprun reads it, for tests of one subject's flags.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_split.h"
#include "launcher/command_line/parse_options.h"
#include "launcher/options/options.h"

namespace ddprun {

using Variables = std::map<std::string, std::string>;

inline GetVariable From(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// `flags` are separated by spaces; the program `true` follows.
inline absl::StatusOr<std::variant<Options, ShowText>> ParseLine(const std::string& flags,
                                                                 const Variables& variables = {}) {
  std::vector<std::string> arguments = absl::StrSplit(flags, ' ', absl::SkipEmpty());
  arguments.push_back("true");
  return ParseOptions(arguments, From(variables));
}

inline Options ParsedLine(const std::string& flags, const Variables& variables = {}) {
  auto parsed = ParseLine(flags, variables);
  EXPECT_TRUE(parsed.ok()) << flags << ": " << parsed.status();
  return parsed.ok() ? std::get<Options>(*parsed) : Options{};
}

inline std::string LineError(const std::string& flags, const Variables& variables = {}) {
  auto parsed = ParseLine(flags, variables);
  EXPECT_FALSE(parsed.ok()) << flags;
  return std::string(parsed.status().message());
}

}  // namespace ddprun
