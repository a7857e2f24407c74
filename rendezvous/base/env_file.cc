// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/env_file.h"

#include <string.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace ddprun {
namespace {

// What a backslash and this character mean in double quotes; 0: both are literal.
char Escaped(char character) {
  switch (character) {
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case '"':
    case '\\':
    case '$':
    case '`':
      return character;
    default:
      return 0;
  }
}

bool IsEndOrComment(absl::string_view rest) {
  rest = absl::StripLeadingAsciiWhitespace(rest);
  return rest.empty() || rest.front() == '#';
}

// `text` begins with the quote. The error does not name the line.
absl::StatusOr<std::string> Quoted(absl::string_view text) {
  const char quote = text.front();
  std::string value;
  // It may be the secret; a string that grows would leave copies in freed memory.
  value.reserve(text.size());
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == quote) {
      if (IsEndOrComment(text.substr(i + 1))) return value;
      return absl::InvalidArgumentError("has more after the closing quote");
    }
    const char escaped =
        quote == '"' && text[i] == '\\' && i + 1 < text.size() ? Escaped(text[i + 1]) : '\0';
    value.push_back(escaped != 0 ? escaped : text[i]);
    if (escaped != 0) ++i;
  }
  return absl::InvalidArgumentError("has a quote that is not closed on its line");
}

std::string Plain(absl::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    // As in a shell, a # within a word is part of it.
    if (text[i] == '#' && (i == 0 || absl::ascii_isspace(static_cast<unsigned char>(text[i - 1]))))
      text = text.substr(0, i);
  }
  return std::string(absl::StripAsciiWhitespace(text));
}

absl::Status ParseLine(absl::string_view line, EnvFile& file) {
  if (absl::StartsWith(line, "export") && line.size() > 6 &&
      absl::ascii_isspace(static_cast<unsigned char>(line[6]))) {
    line = absl::StripLeadingAsciiWhitespace(line.substr(6));
  }
  const std::size_t equals = line.find('=');
  if (equals == absl::string_view::npos)
    return absl::InvalidArgumentError("is not KEY=VALUE; a comment begins with #");
  const absl::string_view name = absl::StripAsciiWhitespace(line.substr(0, equals));
  if (!IsVariableName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("has '", name, "' where the name of a variable should be"));
  }
  const absl::string_view text = absl::StripLeadingAsciiWhitespace(line.substr(equals + 1));
  const bool quoted = !text.empty() && (text.front() == '\'' || text.front() == '"');
  absl::StatusOr<std::string> value = quoted ? Quoted(text) : Plain(text);
  if (!value.ok()) return value.status();
  if (name == kTokenVariable) {
    Wipe(file.token);
    file.token = *std::move(value);
    return absl::OkStatus();
  }
  std::erase_if(file.variables, [&](const auto& earlier) { return earlier.first == name; });
  file.variables.emplace_back(name, *std::move(value));
  return absl::OkStatus();
}

}  // namespace

bool IsVariableName(absl::string_view name) {
  return !name.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(name.front())) &&
         std::all_of(name.begin(), name.end(), [](unsigned char character) {
           return absl::ascii_isalnum(character) || character == '_';
         });
}

void Wipe(std::string& secret) {
  explicit_bzero(secret.data(), secret.size());
  secret.clear();
}

absl::StatusOr<EnvFile> ParseEnvFile(absl::string_view text, const std::string& path) {
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");  // as some editors begin a file
  EnvFile file;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (IsEndOrComment(line)) continue;
    if (absl::Status status = ParseLine(line, file); !status.ok()) {
      Wipe(file.token);
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, " of ", path, " ", status.message()));
    }
  }
  return file;
}

}  // namespace ddprun
