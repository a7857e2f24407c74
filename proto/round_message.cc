// SPDX-License-Identifier: Apache-2.0
#include "proto/round_message.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/text.h"

namespace ddprun {
namespace {

constexpr absl::string_view kBroken = "BROKEN=";
constexpr absl::string_view kRound = "ROUND=";

std::optional<std::uint64_t> RoundIn(absl::string_view line, absl::string_view key) {
  std::uint64_t round = 0;
  if (!absl::ConsumePrefix(&line, key) || !absl::SimpleAtoi(line, &round) || round == 0)
    return std::nullopt;
  return round;
}

}  // namespace

std::string RoundSocketPath(const std::string& notify_socket) { return notify_socket + ".rounds"; }

std::string ToText(const RoundMessage& message) {
  if (const auto* broken = std::get_if<RoundBroken>(&message))
    return absl::StrCat(kBroken, broken->round, "\n");
  const auto& begins = std::get<RoundBegins>(message);
  std::string text = absl::StrCat(kRound, begins.round, "\n");
  for (const auto& [name, value] : begins.variables)
    absl::StrAppend(&text, name, "=", OneLine(value), "\n");
  return text;
}

std::optional<RoundMessage> ParseRoundMessage(std::string_view text) {
  std::vector<absl::string_view> lines =
      absl::StrSplit(absl::string_view(text.data(), text.size()), '\n', absl::SkipEmpty());
  if (lines.empty()) return std::nullopt;
  if (const auto round = RoundIn(lines.front(), kBroken)) return RoundBroken{*round};
  const auto round = RoundIn(lines.front(), kRound);
  if (!round) return std::nullopt;
  RoundBegins begins{.round = *round, .variables = {}};
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(lines[i], absl::MaxSplits('=', 1));
    if (parts.first.size() < lines[i].size()) begins.variables.emplace_back(parts);
  }
  return begins;
}

absl::StatusOr<WorkerEnv> EnvOf(const RoundBegins& begins) {
  return FromEnviron([&begins](const std::string& name) -> std::optional<std::string> {
    for (const auto& [key, value] : begins.variables) {
      if (key == name) return value;
    }
    return std::nullopt;
  });
}

}  // namespace ddprun
