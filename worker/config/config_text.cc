// SPDX-License-Identifier: Apache-2.0
#include "worker/config/config_text.h"

#include <algorithm>
#include <cctype>
#include <set>

namespace ddprun {
namespace {

constexpr std::size_t kCommentColumn = 32;

// Whether another reader of YAML would take `text` for a text as well, and not for a truth value
// (YAML 1.1 has eleven words for those), a number, nothing or something with a structure.
bool IsPlainText(const std::string& text) {
  static const std::set<std::string> words = {"y",  "n",   "yes",  "no",   "true",
                                              "on", "off", "null", "false"};
  std::string lower;
  for (const unsigned char character : text) {
    if (!std::isalnum(character) &&
        std::string_view("._-/").find(static_cast<char>(character)) == std::string_view::npos)
      return false;
    lower.push_back(static_cast<char>(std::tolower(character)));
  }
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  return words.count(lower) == 0 && std::any_of(text.begin(), text.end(), is_letter) &&
         (is_letter(text.front()) || text.front() == '/');
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\') quoted.push_back('\\');
    quoted.push_back(character);
  }
  return quoted + "\"";
}

std::string Line(const Config& config, const Setting& setting,
                 const std::vector<std::string>& choices) {
  std::string key = setting.key;
  std::replace(key.begin(), key.end(), '-', '_');
  const std::string value = ToText(config, setting);
  const bool is_text =
      !setting.choices.empty() || std::holds_alternative<std::string Config::*>(setting.member);
  std::string line = value.empty()
                         ? "# " + key + ":"
                         : key + ": " + (is_text && !IsPlainText(value) ? Quoted(value) : value);
  line.resize(std::max(kCommentColumn, line.size() + 1), ' ');
  line += "# " + setting.help;
  for (const std::string& choice : choices)
    line += (&choice == &choices.front() ? " (" : ", ") + choice;
  return line + (choices.empty() ? "\n" : ")\n");
}

}  // namespace

std::string ToConfigText(const Config& config,
                         const std::function<std::vector<std::string>(const Setting&)>& choices) {
  std::string text;
  std::string group;
  for (const Setting& setting : Settings()) {
    if (setting.group != group) text += (group.empty() ? "# " : "\n# ") + setting.group + "\n";
    group = setting.group;
    text += Line(config, setting, choices(setting));
  }
  return text;
}

}  // namespace ddprun
