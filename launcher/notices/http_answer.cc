// SPDX-License-Identifier: Apache-2.0
#include "launcher/notices/http_answer.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

constexpr absl::string_view kLineEnd = "\r\n";

absl::Status Invalid(const char* why) { return absl::InvalidArgumentError(why); }

std::optional<std::uint64_t> Hex(absl::string_view text) {
  std::uint64_t value = 0;
  const absl::string_view digits =
      absl::StripAsciiWhitespace(text.substr(0, text.find(';')));  // without extensions
  if (digits.empty() || !absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) ||
      !absl::SimpleHexAtoi(digits, &value))
    return std::nullopt;
  return value;
}

// The body of a chunked answer. Absent: it is not whole.
absl::StatusOr<std::optional<std::string>> Unchunk(absl::string_view bytes) {
  std::string body;
  while (true) {
    const std::size_t end = bytes.find(kLineEnd);
    if (end == bytes.npos) return std::nullopt;
    const std::optional<std::uint64_t> size = Hex(bytes.substr(0, end));
    if (!size || *size > kHttpAnswerBytesMax) return Invalid("it sent a chunk of no valid size");
    bytes.remove_prefix(end + kLineEnd.size());
    if (*size == 0) return body;
    if (bytes.size() < *size + kLineEnd.size()) return std::nullopt;
    body.append(bytes.data(), *size);
    bytes.remove_prefix(*size + kLineEnd.size());
  }
}

bool ParseHead(absl::string_view head, HttpAnswer& answer) {
  bool is_first = true;
  for (const absl::string_view line : absl::StrSplit(head, kLineEnd)) {
    if (is_first) {
      is_first = false;
      if (!absl::StartsWith(line, "HTTP/1.") || line.size() < 12 || line[8] != ' ' ||
          !absl::SimpleAtoi(line.substr(9, 3), &answer.status))
        return false;
      continue;
    }
    const std::size_t colon = line.find(':');
    if (colon == line.npos || colon == 0) return false;
    answer.headers[absl::AsciiStrToLower(line.substr(0, colon))] =
        std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return answer.status >= 100 && answer.status <= 599;
}

}  // namespace

absl::StatusOr<std::optional<HttpAnswer>> ParseHttpAnswer(absl::string_view bytes, bool ended) {
  constexpr absl::string_view kHeadEnd = "\r\n\r\n";
  constexpr absl::string_view kBegin = "HTTP/1.";
  const absl::string_view begin = bytes.substr(0, kBegin.size());
  if (!absl::StartsWith(kBegin, begin)) return Invalid("it does not speak HTTP/1.1");
  const std::size_t end = bytes.find(kHeadEnd);
  if (end == bytes.npos) {
    if (ended) return Invalid("it ended the connection before it had answered");
    return std::nullopt;
  }
  HttpAnswer answer;
  if (!ParseHead(bytes.substr(0, end), answer)) return Invalid("it sent headers of no valid form");
  const absl::string_view rest = bytes.substr(end + kHeadEnd.size());
  const auto encoding = answer.headers.find("transfer-encoding");
  const auto length = answer.headers.find("content-length");
  if (encoding != answer.headers.end()) {
    if (!absl::EqualsIgnoreCase(encoding->second, "chunked"))
      return Invalid("it sent an encoding that was not asked for");
    absl::StatusOr<std::optional<std::string>> body = Unchunk(rest);
    if (!body.ok()) return body.status();
    if (body->has_value()) {
      answer.body = **std::move(body);
      return answer;
    }
  } else if (length != answer.headers.end()) {
    std::uint64_t size = 0;
    if (!absl::SimpleAtoi(length->second, &size) || size > kHttpAnswerBytesMax)
      return Invalid("it sent an answer of no valid length");
    if (rest.size() >= size) {
      answer.body = std::string(rest.substr(0, size));
      return answer;
    }
  } else if (ended || answer.status == 204) {
    answer.body = std::string(rest);
    return answer;
  }
  if (ended) return Invalid("it ended the connection within its answer");
  return std::nullopt;
}

}  // namespace ddprun
