// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/scenario.h"

#include <cctype>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun {
namespace {

// One word, or name=value, with "quotes" around what has spaces. Takes it off `line`.
absl::StatusOr<std::string> TakeToken(absl::string_view& line) {
  std::string token;
  bool quoted = false;
  std::size_t i = 0;
  for (; i < line.size() && (quoted || !std::isspace(static_cast<unsigned char>(line[i]))); ++i) {
    if (line[i] == '"') {
      quoted = !quoted;
    } else {
      token.push_back(line[i]);
    }
  }
  if (quoted) return absl::InvalidArgumentError("a quote is not closed");
  line.remove_prefix(i);
  return token;
}

void SkipSpace(absl::string_view& line) {
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.front()))) {
    line.remove_prefix(1);
  }
}

absl::Status ParseLine(absl::string_view text, ScenarioLine& line) {
  std::vector<std::string> tokens;
  for (SkipSpace(text); !text.empty() && text.front() != '#'; SkipSpace(text)) {
    auto token = TakeToken(text);
    if (!token.ok()) return line.Wrong(token.status().message());
    tokens.push_back(*std::move(token));
  }
  std::size_t next = 0;
  if (!tokens.empty() && tokens[0] == "at") {
    if (tokens.size() < 3) return line.Wrong("'at' wants a time and what happens then");
    const auto at = ParseSimDuration(tokens[1]);
    if (!at.ok()) return line.Wrong(at.status().message());
    line.at = *at;
    next = 2;
  }
  if (next < tokens.size()) line.verb = tokens[next++];
  for (; next < tokens.size(); ++next) {
    const std::size_t equals = tokens[next].find('=');
    if (equals == std::string::npos) {
      line.words.push_back(tokens[next]);
    } else if (!line.values.emplace(tokens[next].substr(0, equals), tokens[next].substr(equals + 1))
                    .second) {
      return line.Wrong(absl::StrCat("'", tokens[next].substr(0, equals), "' is there twice"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ScenarioLine::Wrong(absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(place, verb.empty() ? "" : ": ", verb, ": ", what));
}

absl::StatusOr<std::string> ScenarioLine::Word(std::size_t index) const {
  if (index < words.size()) return words[index];
  return Wrong(absl::StrCat("wants at least ", index + 1, " words"));
}

absl::StatusOr<int> ScenarioLine::Number(const std::string& name) const {
  const auto it = values.find(name);
  int number = 0;
  if (it == values.end()) return Wrong(absl::StrCat("wants ", name, "=NUMBER"));
  if (!absl::SimpleAtoi(it->second, &number)) {
    return Wrong(absl::StrCat(name, "=", it->second, " is not a number"));
  }
  return number;
}

absl::StatusOr<Duration> ScenarioLine::Time(const std::string& name) const {
  const auto it = values.find(name);
  if (it == values.end()) return Wrong(absl::StrCat("wants ", name, "=TIME"));
  const auto time = ParseSimDuration(it->second);
  if (!time.ok()) return Wrong(time.status().message());
  return *time;
}

absl::StatusOr<Duration> ParseSimDuration(absl::string_view text) {
  static const std::map<std::string, double> units = {
      {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}};
  std::size_t digits = 0;
  while (digits < text.size() && !std::isalpha(static_cast<unsigned char>(text[digits]))) ++digits;
  const auto unit = units.find(std::string(text.substr(digits)));
  double number = 0;
  if (unit == units.end() || !absl::SimpleAtod(text.substr(0, digits), &number) || number < 0 ||
      number * unit->second > 1e18) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a time such as 1.5s or 200ms"));
  }
  return Duration(static_cast<Duration::rep>(number * unit->second + 0.5));
}

absl::StatusOr<std::vector<ScenarioLine>> ParseScenario(const std::string& file,
                                                        absl::string_view text) {
  std::vector<ScenarioLine> lines;
  int number = 0;
  Duration latest{0};
  for (const absl::string_view of_text : absl::StrSplit(text, '\n')) {
    ScenarioLine line;
    line.place = absl::StrCat(file, ":", ++number);
    if (absl::Status status = ParseLine(of_text, line); !status.ok()) return status;
    if (line.verb.empty()) continue;
    if (line.at && *line.at < latest) return line.Wrong("is earlier than a line before it");
    if (line.at) latest = *line.at;
    lines.push_back(std::move(line));
  }
  return lines;
}

absl::Status RunScenario(const std::vector<ScenarioLine>& lines,
                         const std::function<absl::Status(Duration since_start)>& pass,
                         const std::map<std::string, ScenarioVerb>& verbs) {
  for (const ScenarioLine& line : lines) {
    const auto verb = verbs.find(line.verb);
    if (verb == verbs.end()) return line.Wrong("is not a verb of this scenario");
    if (line.at) {
      if (absl::Status status = pass(*line.at); !status.ok()) return status;
    }
    if (absl::Status status = verb->second(line); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::string ToText(const ScenarioLine& line) {
  std::string text;
  if (line.at) {
    absl::StrAppend(&text, "at ",
                    std::chrono::duration_cast<std::chrono::microseconds>(*line.at).count(), "us ");
  }
  absl::StrAppend(&text, line.verb);
  for (const std::string& word : line.words) absl::StrAppend(&text, " ", word);
  for (const auto& [name, value] : line.values) {
    const bool quote = value.find(' ') != std::string::npos;
    absl::StrAppend(&text, " ", name, "=", quote ? "\"" : "", value, quote ? "\"" : "");
  }
  return text;
}

}  // namespace ddprun
