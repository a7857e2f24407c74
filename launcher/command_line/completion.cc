// SPDX-License-Identifier: Apache-2.0
// CompletionScript() of help_text.h.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "launcher/command_line/help_text.h"
#include "launcher/command_line/parse_options.h"
#include "launcher/options/run_flags.h"

namespace ddprun {
namespace {

std::vector<std::string> TopicNames() {
  std::vector<std::string> names = {"all"};
  for (const FlagTopic& topic : kFlagTopics) names.emplace_back(topic.name);
  return names;
}

std::vector<std::string> CommandNames() {
  std::vector<std::string> names;
  for (const SubCommand& command : SubCommands()) names.emplace_back(command.name);
  return names;
}

std::string Names(absl::Span<const Flag> flags) {
  return absl::StrJoin(flags, " ", [](std::string* out, const Flag& flag) { *out += flag.name; });
}

bool IsFile(const Flag& flag) { return absl::StrContains(flag.value, "FILE"); }
bool IsFolder(const Flag& flag) {
  return absl::StrContains(flag.value, "DIR") || absl::StrContains(flag.value, "FOLDER");
}

// "--redirects|-r"
std::string Patterns(const Flag& flag) {
  std::string pattern = flag.name;
  if (flag.letter != 0) absl::StrAppend(&pattern, "|-", std::string(1, flag.letter));
  for (const char* alias : flag.aliases) absl::StrAppend(&pattern, "|", alias);
  return pattern;
}

// ---- bash

std::string BashValues(absl::Span<const Flag> flags) {
  std::string cases;
  for (const Flag& flag : flags) {
    if (flag.value == nullptr) continue;
    const std::vector<std::string> choices = ChoicesOf(flag.value);
    const std::string words = !choices.empty()
                                  ? absl::StrCat("-W '", absl::StrJoin(choices, " "), "'")
                              : IsFile(flag)   ? "-f"
                              : IsFolder(flag) ? "-d"
                                               : "";
    absl::StrAppend(&cases, "    ", Patterns(flag), ") ",
                    words.empty() ? ":" : absl::StrCat("_ddprun_reply ", words), " ;;\n");
  }
  return cases;
}

std::string Bash() {
  std::vector<Flag> flags = AllFlags();
  std::vector<Flag> all = flags;
  std::string commands;
  for (const SubCommand& command : SubCommands()) {
    absl::StrAppend(&commands, "    [ \"$word\" = ", command.name, " ] && [ -z \"$program\" ] && ",
                    "flags='", Names(command.flags), " --help' && continue\n");
    for (const Flag& flag : command.flags) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const Flag& one) {
        return std::string(one.name) == flag.name;
      });
      if (!known) all.push_back(flag);
    }
  }
  std::vector<std::string> valued;
  for (const Flag& flag : all) {
    if (flag.value != nullptr) valued.push_back(Patterns(flag));
  }
  return absl::StrReplaceAll(
      R"(# bash completion of ddprun, printed by `ddprun --print-completion bash`
_ddprun_reply() { COMPREPLY=($(compgen "$@" -- "$cur")); }
_ddprun() {
  local cur=${COMP_WORDS[COMP_CWORD]} flags='@FLAGS@ --help --version' i word flag= program=
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    [ "$word" = = ] && continue  # bash parts --flag=value
    if [ -n "$flag" ]; then flag=; continue; fi
    case $word in --*) word=--${word:2} word=${word//_/-} ;; esac
@COMMANDS@    case $word in
    @VALUED@|--help|-h) flag=$word ;;
    -*) ;;
    *) program=$word; break ;;
    esac
  done
  [ "$cur" = = ] && cur=
  if [ -n "$program" ]; then
    compopt -o default 2>/dev/null  # the program's own arguments
    return
  fi
  case $flag in
    '') case $cur in
      -*_*) local names=${flags//-/_}; _ddprun_reply -W "${names//__/--}" ;;
      -*) _ddprun_reply -W "$flags" ;;
      *) _ddprun_reply -W '@NAMES@' -c -f ;;
      esac ;;
    --help|-h) _ddprun_reply -W '@TOPICS@' ;;
@VALUES@  esac
}
complete -o filenames -F _ddprun ddprun
)",
      {{"@FLAGS@", Names(flags)},
       {"@COMMANDS@", commands},
       {"@VALUED@", absl::StrJoin(valued, "|")},
       {"@NAMES@", absl::StrJoin(CommandNames(), " ")},
       {"@TOPICS@", absl::StrJoin(TopicNames(), " ")},
       {"@VALUES@", BashValues(all)}});
}

// ---- zsh

std::string ZshText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"[", "("}, {"]", ")"}, {":", "\\:"}});
}

std::string ZshFlag(const Flag& flag) {
  const std::vector<std::string> choices = ChoicesOf(flag.value);
  std::string value;
  if (flag.value != nullptr) {
    value = absl::StrCat(":", ZshText(flag.value), ":",
                         !choices.empty() ? absl::StrCat("(", absl::StrJoin(choices, " "), ")")
                         : IsFile(flag)   ? "_files"
                         : IsFolder(flag) ? "_files -/"
                                          : "");
  }
  std::string lines = absl::StrCat("    '*", flag.name, flag.value != nullptr ? "=" : "", "[",
                                   ZshText(flag.Help()), "]", value, "' \\\n");
  if (flag.letter != 0) {
    absl::StrAppend(&lines, "    '*-", std::string(1, flag.letter),
                    flag.value != nullptr ? "+" : "", "[", ZshText(flag.Help()), "]", value,
                    "' \\\n");
  }
  for (const char* alias : flag.aliases)
    absl::StrAppend(&lines, "    '*", alias, "[", ZshText(flag.Help()), "]", value, "' \\\n");
  return lines;
}

std::string Zsh() {
  std::string text =
      "#compdef ddprun\n# zsh completion of ddprun, printed by `ddprun --print-completion zsh`\n"
      "_ddprun() {\n";
  for (const SubCommand& command : SubCommands()) {
    absl::StrAppend(&text, "  if [[ $words[2] == ", command.name, " ]]; then\n",
                    "    shift words; (( CURRENT-- ))\n    _arguments \\\n");
    for (const Flag& flag : command.flags) absl::StrAppend(&text, ZshFlag(flag));
    absl::StrAppend(&text, "    '--help[Print its flags.]'\n    return\n  fi\n");
  }
  absl::StrAppend(&text, "  _arguments -S \\\n");
  for (const Flag& flag : AllFlags()) absl::StrAppend(&text, ZshFlag(flag));
  absl::StrAppend(&text, "    '--version[Print the version.]' \\\n",
                  "    {-h,--help}'[Print help on a topic.]:topic:(",
                  absl::StrJoin(TopicNames(), " "), ")' \\\n",
                  "    '1:program:{_files; _command_names -e; compadd ",
                  absl::StrJoin(CommandNames(), " "), "}' \\\n    '*::arguments:_files'\n}\n",
                  "if [[ $funcstack[1] == _ddprun ]]; then _ddprun \"$@\"; else compdef _ddprun "
                  "ddprun; fi\n");
  return text;
}

// ---- fish

std::string FishText(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishFlag(const Flag& flag, const std::string& condition) {
  std::string line = absl::StrCat("complete -c ddprun -n ", condition, " -l ", flag.name + 2);
  if (flag.letter != 0) absl::StrAppend(&line, " -s ", std::string(1, flag.letter));
  if (flag.value != nullptr) {
    const std::vector<std::string> choices = ChoicesOf(flag.value);
    if (IsFile(flag) || IsFolder(flag)) {
      absl::StrAppend(&line, " -r -F");
    } else {
      absl::StrAppend(&line, " -x");
      if (!choices.empty()) absl::StrAppend(&line, " -a ", FishText(absl::StrJoin(choices, " ")));
    }
  }
  return absl::StrCat(line, " -d ", FishText(flag.Help()), "\n");
}

std::string Fish() {
  const std::vector<Flag> flags = AllFlags();
  std::string valued = "--help -h";
  for (const Flag& flag : flags) {
    if (flag.value != nullptr)
      absl::StrAppend(&valued, " ", absl::StrReplaceAll(Patterns(flag), {{"|", " "}}));
  }
  std::string text = absl::StrCat(
      "# fish completion of ddprun, printed by `ddprun --print-completion fish`\n"
      "function __ddprun_before_program\n"
      "    set -l skip 0\n"
      "    for word in (commandline -opc)[2..-1]\n"
      "        if test $skip = 1\n            set skip 0\n            continue\n        end\n"
      "        switch $word\n"
      "            case ",
      valued,
      "\n                set skip 1\n            case '-*'\n            case '*'\n"
      "                return 1\n        end\n    end\n    return 0\nend\n"
      "complete -c ddprun -n __ddprun_before_program -a '(__fish_complete_command)'\n");
  for (const Flag& flag : flags) absl::StrAppend(&text, FishFlag(flag, "__ddprun_before_program"));
  absl::StrAppend(
      &text, "complete -c ddprun -n __ddprun_before_program -l help -s h -x -a ",
      FishText(absl::StrJoin(TopicNames(), " ")), " -d 'Print help on a topic.'\n",
      "complete -c ddprun -n __ddprun_before_program -l version -d 'Print the version.'\n");
  for (const SubCommand& command : SubCommands()) {
    absl::StrAppend(&text, "complete -c ddprun -n __ddprun_before_program -a ", command.name,
                    " -d ", FishText(command.help), "\n");
    const std::string condition = absl::StrCat(
        "'test (count (commandline -opc)) -gt 1; and test (commandline -opc)[2] = ", command.name,
        "'");
    for (const Flag& flag : command.flags) absl::StrAppend(&text, FishFlag(flag, condition));
  }
  return text;
}

// ---- tcsh

std::string Tcsh() {
  const std::vector<Flag> flags = AllFlags();
  std::string text =
      "# tcsh completion of ddprun, printed by `ddprun --print-completion tcsh`\n"
      "complete ddprun";
  for (const Flag& flag : flags) {
    const std::vector<std::string> choices = ChoicesOf(flag.value);
    if (!choices.empty())
      absl::StrAppend(&text, " 'n/", flag.name, "/(", absl::StrJoin(choices, " "), ")/'");
  }
  const std::string names = absl::StrReplaceAll(absl::StrCat(" ", Names(flags)), {{" --", " "}});
  absl::StrAppend(&text, " 'n/--help/(", absl::StrJoin(TopicNames(), " "), ")/' 'c/--/(",
                  names.substr(1), " help version)/' 'p/1/c/'\n");
  return text;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const std::string& shell) {
  if (shell == "bash") return Bash();
  if (shell == "zsh") return Zsh();
  if (shell == "fish") return Fish();
  if (shell == "tcsh") return Tcsh();
  return absl::InvalidArgumentError(
      absl::StrCat("--print-completion '", shell, "' is not known; give bash, zsh, fish or tcsh"));
}

}  // namespace ddprun
