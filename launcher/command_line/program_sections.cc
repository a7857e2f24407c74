// SPDX-License-Identifier: Apache-2.0
#include "launcher/command_line/program_sections.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/options/run_flags.h"

namespace ddprun {
namespace {

constexpr char kColon[] = ":";

constexpr FlagName kSectionFlags[] = {"--role"_flag, "--module"_flag, "--no-python"_flag,
                                      "--run-path"_flag};

std::vector<RunFlag> SectionFlags() {
  std::vector<RunFlag> flags;
  for (const RunFlag& flag : kWorkerFlags) {
    if (std::any_of(std::begin(kSectionFlags), std::end(kSectionFlags),
                    [&](FlagName name) { return name.text == flag.name; }))
      flags.push_back(flag);
  }
  return flags;
}

bool IsRoleFlag(const std::string& argument) {
  return argument == "--role"_flag.text || absl::StartsWith(argument, "--role=");
}

absl::Status Invalid(const std::string& sentence) { return absl::InvalidArgumentError(sentence); }

}  // namespace

std::vector<std::vector<std::string>> SplitSections(const std::vector<std::string>& arguments) {
  std::vector<std::vector<std::string>> sections(1);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == kColon && i + 1 < arguments.size() && IsRoleFlag(arguments[i + 1])) {
      sections.emplace_back();
    } else {
      sections.back().push_back(arguments[i]);
    }
  }
  return sections;
}

absl::StatusOr<ProgramSection> ParseSection(const std::vector<std::string>& arguments) {
  const std::vector<RunFlag> rows = SectionFlags();
  absl::StatusOr<ParsedFlags> flags = ParseFlags(FlagsIn(rows), arguments);
  if (!flags.ok()) return Invalid(absl::StrCat(flags.status().message(), "; see ddprun --help"));
  Reader reader(flags->values);
  Options options;
  reader.Read(rows, options);
  ProgramSection section = std::move(options);
  section.program = std::move(flags->rest);
  if (!reader.status().ok()) return reader.status();
  const std::string named = absl::StrCat("role ", section.role);
  if (!section.program.empty() && section.program.front() == "--") {
    section.program.erase(section.program.begin());
  } else if (!section.program.empty() && section.program.front().size() > 1 &&
             section.program.front()[0] == '-') {
    return Invalid(
        absl::StrCat(section.program.front().substr(0, section.program.front().find('=')),
                     " stands after the ':' of ", named,
                     ", where only --role, --module, --no-python and --run-path may; "
                     "give flags of the run before the first program"));
  }
  if (section.program.empty())
    return Invalid(absl::StrCat(named, " has no program; name one after its flags"));
  if (section.module && section.no_python && !section.run_path) {
    return Invalid(absl::StrCat("--module and --no-python contradict each other in ", named,
                                "; leave one of them out"));
  }
  return section;
}

void CheckSections(Reader& reader, const Options& options) {
  std::set<std::string> names;
  for (const ProgramSection* section : SectionsOf(options)) {
    if (names.insert(section->role).second) continue;
    reader.FailWith(absl::StrCat("two programs have the role ", section->role,
                                 "; give each its own with --role NAME:COUNT"));
  }
  if (options.total_workers && (!options.more_programs.empty() || options.workers)) {
    reader.FailWith(
        "-n is the number of workers of one program on all nodes, and --role NAME:COUNT that on "
        "each node; leave -n out");
  }
  if (!options.more_programs.empty() && options.restarts.spares > 0) {
    reader.FailWith(
        "--spares parks workers of one program, and there are several; leave --spares out, and "
        "workers that are lost are started anew");
  }
}

std::vector<std::string> ArgumentsOf(const ProgramSection& section) {
  std::vector<std::string> arguments = {
      kColon, "--role"_flag.With(absl::StrCat(
                  section.role, section.workers ? absl::StrCat(":", *section.workers) : ""))};
  if (section.module) arguments.push_back("--module"_flag.text);
  if (section.no_python) arguments.push_back("--no-python"_flag.text);
  if (section.run_path) arguments.push_back("--run-path"_flag.text);
  arguments.push_back("--");
  arguments.insert(arguments.end(), section.program.begin(), section.program.end());
  return arguments;
}

std::string ColonWarning(const Options& options) {
  if (!options.workers.has_value() && options.more_programs.empty()) return "";
  for (const ProgramSection* section : SectionsOf(options)) {
    const std::vector<std::string>& words = section->program;
    if (std::find(words.begin(), words.end(), kColon) == words.end()) continue;
    return absl::StrCat("':' is an argument of ", words.front(),
                        ", since no --role follows it; another program begins with : --role NAME");
  }
  return "";
}

}  // namespace ddprun
