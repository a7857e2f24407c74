// SPDX-License-Identifier: Apache-2.0
#include "launcher/node/control_pipe_protocol.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "rendezvous/security/env_file.h"

namespace ddprun {
namespace {

constexpr char kMark = '\x1e';  // ASCII's record separator: no text that people read begins with it
constexpr char kOutMark = 'o';
constexpr char kErrMark = 'e';
constexpr char kWordMark = 'w';

void Append(std::string& out, absl::string_view word, absl::string_view text) {
  absl::StrAppend(&out, word, " ", absl::CEscape(text), "\n");
}

std::string Escaped(absl::string_view text) { return text.empty() ? "-" : absl::CEscape(text); }

bool Unescape(absl::string_view text, std::string& out) { return absl::CUnescape(text, &out); }

// "-" stands for an empty text where several stand in a line.
bool UnescapeField(absl::string_view text, std::string& out) {
  if (text == "-") {
    out.clear();
    return true;
  }
  return Unescape(text, out);
}

std::pair<absl::string_view, absl::string_view> WordAndRest(absl::string_view line) {
  return absl::StrSplit(line, absl::MaxSplits(' ', 1));
}

bool ParseGo(absl::string_view rest, Go& go) {
  const std::vector<absl::string_view> fields = absl::StrSplit(rest, ' ');
  int node_rank = 0;
  int serve = 0;
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &go.node) ||
      !absl::SimpleAtoi(fields[1], &node_rank) || !absl::SimpleAtoi(fields[2], &serve)) {
    return false;
  }
  go.node_rank = node_rank < 0 ? std::nullopt : std::optional(node_rank);
  go.serve = serve != 0;
  return true;
}

std::optional<NodeMessage> ParseNodeWord(absl::string_view line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
  if (fields[0] == "hello" && fields.size() == 6) {
    Hello hello;
    if (absl::SimpleAtoi(fields[1], &hello.control_pipe) &&
        absl::SimpleAtoi(fields[2], &hello.protocol) && UnescapeField(fields[3], hello.version) &&
        UnescapeField(fields[4], hello.head_address) &&
        UnescapeField(fields[5], hello.own_address)) {
      return hello;
    }
  } else if (fields[0] == "serving" && fields.size() == 2) {
    Serving serving;
    if (absl::SimpleAtoi(fields[1], &serving.port) && serving.port > 0 && serving.port <= 65535)
      return serving;
  } else if (fields[0] == "joined" && fields.size() == 1) {
    return Joined{};
  } else if (fields[0] == "verdict" && fields.size() == 2) {
    NodeVerdict verdict;
    if (UnescapeField(fields[1], verdict.text)) return verdict;
  } else if (fields[0] == "finished" && fields.size() == 5) {
    Finished finished;
    if (UnescapeField(fields[1], finished.run_id) && absl::SimpleAtoi(fields[2], &finished.round) &&
        absl::SimpleAtoi(fields[3], &finished.nodes) &&
        absl::SimpleAtoi(fields[4], &finished.world_size)) {
      return finished;
    }
  }
  return std::nullopt;
}

// CEscape leaves spaces, which part the fields.
std::string Field(absl::string_view text) {
  std::string out;
  for (const char c : Escaped(text)) {
    if (c == ' ') {
      out += "\\040";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string Encode(const Setup& setup) {
  std::string out;
  if (setup.node.has_value()) Append(out, "node", absl::StrCat(*setup.node));
  for (const std::string& name : setup.names) Append(out, "name", name);
  if (!setup.folder.empty()) Append(out, "folder", setup.folder);
  for (const std::string& entry : setup.environment) Append(out, "env", entry);
  for (const std::string& argument : setup.arguments) Append(out, "arg", argument);
  return out;
}

std::string Encode(const Token& token) {
  constexpr absl::string_view kWord = "token ";
  std::string digits = ToDigits(token);
  std::string out;
  out.reserve(kWord.size() + digits.size() + 1);  // one piece of memory, to be wiped
  out.append(kWord.data(), kWord.size()).append(digits).push_back('\n');
  Wipe(digits);
  return out;
}

std::string Encode(const Go& go) {
  std::string out;
  for (const std::string& flag : go.flags) Append(out, "flag", flag);
  absl::StrAppend(&out, "go ", go.node, " ", go.node_rank.value_or(-1), " ", go.serve ? 1 : 0,
                  "\n");
  return out;
}

std::string Encode(const PassSignal& signal) {
  return absl::StrCat("signal ", signal.signal, "\n");
}

absl::Status SetupReader::TakeLine(absl::string_view line) {
  const auto [word, rest] = WordAndRest(line);
  std::string text;
  bool known = Unescape(rest, text);
  int number = 0;
  if (word == "node") {
    known = known && absl::SimpleAtoi(text, &number);
    setup_.node = number;
  } else if (word == "name") {
    setup_.names.push_back(std::move(text));
  } else if (word == "folder") {
    setup_.folder = std::move(text);
  } else if (word == "token") {
    setup_.token = std::move(text);
  } else if (word == "env") {
    setup_.environment.push_back(std::move(text));
  } else if (word == "arg") {
    setup_.arguments.push_back(std::move(text));
  } else if (word == "flag") {
    flags_.push_back(std::move(text));
  } else if (word == "go") {
    Go go;
    known = ParseGo(rest, go);
    go.flags = std::exchange(flags_, {});
    go_ = std::move(go);
  } else {
    known = false;
  }
  if (known) return absl::OkStatus();
  // Never the whole line: it may be the secret.
  return absl::InvalidArgumentError(
      absl::StrCat("--control-pipe reads words of ddprun -H from stdin, and '",
                   absl::CEscape(word.substr(0, 20)), "' is none; use -H instead"));
}

std::optional<PassSignal> ParseSignal(absl::string_view line) {
  const auto [word, rest] = WordAndRest(line);
  PassSignal signal;
  if (word != "signal" || !absl::SimpleAtoi(rest, &signal.signal)) return std::nullopt;
  return signal;
}

std::string ToLine(const NodeMessage& word) {
  std::string line = {kMark, kWordMark};
  if (const auto* hello = std::get_if<Hello>(&word)) {
    absl::StrAppend(&line, "hello ", hello->control_pipe, " ", hello->protocol, " ",
                    Field(hello->version), " ", Field(hello->head_address), " ",
                    Field(hello->own_address));
  } else if (const auto* serving = std::get_if<Serving>(&word)) {
    absl::StrAppend(&line, "serving ", serving->port);
  } else if (std::holds_alternative<Joined>(word)) {
    line += "joined";
  } else if (const auto* verdict = std::get_if<NodeVerdict>(&word)) {
    absl::StrAppend(&line, "verdict ", Field(verdict->text));
  } else if (const auto* finished = std::get_if<Finished>(&word)) {
    absl::StrAppend(&line, "finished ", Field(finished->run_id), " ", finished->round, " ",
                    finished->nodes, " ", finished->world_size);
  }
  return line;
}

std::string MarkLine(bool is_error, absl::string_view line) {
  if (is_error) return absl::StrCat(absl::string_view(&kMark, 1), "e", line);
  if (line.empty() || line.front() != kMark) return std::string(line);
  return absl::StrCat(absl::string_view(&kMark, 1), "o", line);
}

std::variant<std::monostate, OutputLine, NodeMessage> ParseLine(absl::string_view line) {
  if (line.size() < 2 || line[0] != kMark) return OutputLine{false, line};
  const absl::string_view rest = line.substr(2);
  if (line[1] == kOutMark) return OutputLine{false, rest};
  if (line[1] == kErrMark) return OutputLine{true, rest};
  if (line[1] == kWordMark) {
    if (std::optional<NodeMessage> word = ParseNodeWord(rest)) return *std::move(word);
  }
  return std::monostate{};
}

std::optional<int> TakeLabel(absl::string_view& line) {
  const std::size_t colon = line.find(": ");
  const std::size_t end = colon != absl::string_view::npos      ? colon
                          : !line.empty() && line.back() == ':' ? line.size() - 1  // an empty line
                                                                : absl::string_view::npos;
  int label = 0;
  if (end == absl::string_view::npos ||
      !absl::SimpleAtoi(absl::StripAsciiWhitespace(line.substr(0, end)), &label) || label < 0) {
    return std::nullopt;
  }
  line.remove_prefix(std::min(line.size(), end + 2));
  return label;
}

}  // namespace ddprun
