// SPDX-License-Identifier: Apache-2.0
// Of help_text.h: ddprun(1) in the macros of man(7).
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/command_line/help_text.h"
#include "proto/version.h"

namespace ddprun {
namespace {

// As it stands: a `-` that can be copied, and no macro at the beginning of a line.
std::string Roff(absl::string_view text) {
  std::string escaped =
      absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"`", "\\(ga"}});
  if (absl::StartsWith(escaped, ".")) escaped.insert(0, "\\&");
  return escaped;
}

std::string FlagEntry(const Flag& flag) {
  std::string entry = ".TP\n";
  if (flag.letter != 0) absl::StrAppend(&entry, "\\fB\\-", std::string(1, flag.letter), "\\fR, ");
  absl::StrAppend(&entry, "\\fB", Roff(flag.name), "\\fR");
  if (flag.value != nullptr) absl::StrAppend(&entry, " \\fI", Roff(flag.value), "\\fR");
  return absl::StrCat(entry, "\n", Roff(flag.help), "\n");
}

std::string Entry(absl::string_view what, absl::string_view text) {
  return absl::StrCat(".TP\n\\fB", Roff(what), "\\fR\n", Roff(text), "\n");
}

std::string ExitStatus() {
  return absl::StrCat(
      ".SH EXIT STATUS\n", Entry("0", "every worker ended with 0"),
      ".TP\nthe first failing worker\\(aqs\n",
      Roff("it ended by itself with that code; 128 + N if signal N ended it; the same on every "
           "node"),
      "\n", Entry("128 + N", "this ddprun was told to end by signal N"),
      Entry("126, 127", "the program cannot be run, or is not there"),
      Entry("1",
            "the run could not be formed or went on without a node: the verdict says which "
            "and why"),
      Entry("2", "the command line is wrong"));
}

std::string Environment() {
  return absl::StrCat(
      ".SH ENVIRONMENT\n",
      Entry("PET_NAME", "the default of the flag --name, as PET_NNODES and PET_NPROC_PER_NODE"),
      Entry("DDPRUN_TOKEN",
            "the run's secret, 64 hexadecimal digits; it is taken out of the workers' environment"),
      Entry("CREDENTIALS_DIRECTORY",
            "set by systemd: the file ddprun-token in it has the run's secret "
            "(LoadCredential=ddprun-token:FILE)"),
      Entry("PYTHON_EXEC", "the Python that runs scripts and modules (python3)"),
      Entry("LOGLEVEL", "INFO: also say which flags have no effect"),
      ".PP\nWorkers find RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, "
      "MASTER_PORT and the\nother variables that torchrun gives.\n");
}

}  // namespace

std::string ManPage(absl::Span<const FlagTopic> topics) {
  std::string page = absl::StrCat(
      ".TH DDPRUN 1 \"\" \"ddprun ", kSoftwareVersion, "\" \"User Commands\"\n",
      ".SH NAME\nddprun \\- start distributed training on one machine or many\n",
      ".SH SYNOPSIS\n\\fBddprun\\fR [\\fIFLAGS\\fR] \\fIPROGRAM\\fR [\\fIARGUMENTS\\fR...]\n");
  for (const SubCommand& command : SubCommands()) {
    absl::StrAppend(&page, ".br\n\\fBddprun ", Roff(command.name), "\\fR [\\fIFLAGS\\fR]\n");
  }
  absl::StrAppend(
      &page, ".SH DESCRIPTION\n",
      "Starts \\fIPROGRAM\\fR as the workers of a distributed run, keeps watch over them on every "
      "node, and ends with the\nexit code of the first one that failed. \\fIPROGRAM\\fR is "
      "\\fBtrain\\fR or another program beside ddprun or in PATH, a\npath, a .py file, or with "
      "\\fB\\-m\\fR a Python module. Flags may be spelled with _ for \\-.\n",
      ".SH OPTIONS\n");
  for (const FlagTopic& topic : topics) {
    absl::StrAppend(&page, ".SS ", Roff(topic.title), "\n");
    for (const Flag& flag : topic.flags) absl::StrAppend(&page, FlagEntry(flag));
  }
  absl::StrAppend(&page, ".SS General\n", Entry("--version", "Print the version."),
                  Entry("-h, --help [TOPIC]", "print what is most used, or all about a topic"),
                  ".SH COMMANDS\n");
  for (const SubCommand& command : SubCommands()) {
    absl::StrAppend(&page, ".SS ", Roff(absl::StrCat("ddprun ", command.name)), "\n",
                    Roff(command.help), "\n");
    for (const Flag& flag : command.flags) absl::StrAppend(&page, FlagEntry(flag));
  }
  return absl::StrCat(
      page, Environment(), ExitStatus(), ".SH EXAMPLES\n.EX\n",
      Roff("ddprun --standalone --nproc-per-node 2 train --epochs 1"), "\n",
      Roff("ddprun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node gpu train"),
      "\n", Roff("ddprun --config ddprun.yaml"), "\n.EE\n");
}

}  // namespace ddprun
