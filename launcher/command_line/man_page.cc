// SPDX-License-Identifier: Apache-2.0
// Implements the man page of help_text.h: ddprun(1) in the macros of man(7).
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "launcher/command_line/help_text.h"
#include "launcher/options/run_flags.h"
#include "proto/version.h"

namespace ddprun {
namespace {

// Escapes the text: a `-` that can be copied, and no macro at the beginning of a line.
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
  return absl::StrCat(entry, "\n", Roff(flag.Help()), "\n");
}

std::string Entry(absl::string_view what, absl::string_view text) {
  return absl::StrCat(".TP\n\\fB", Roff(what), "\\fR\n", Roff(text), "\n");
}

std::string ExitStatus() {
  return absl::StrCat(
      ".SH EXIT STATUS\n", Entry("0", "All workers exited with 0."),
      ".TP\nthe exit code of the first worker that failed\n",
      Roff("128 + N if signal N ended it. The same on every node."), "\n",
      Entry("128 + N", "This ddprun was ended by signal N."),
      Entry("126, 127", "The program cannot be executed, or was not found."),
      Entry("1",
            "The run could not be formed, or continued without this node; the verdict gives the "
            "reason."),
      Entry("2", "The command line is invalid."));
}

std::string Environment() {
  return absl::StrCat(
      ".SH ENVIRONMENT\n",
      Entry("PET_NAME",
            "Default of the flag --name, for example PET_NNODES and PET_NPROC_PER_NODE."),
      Entry("DDPRUN_TOKEN",
            "The run's secret, 64 hexadecimal digits. It is removed from the environment of the "
            "workers."),
      Entry("CREDENTIALS_DIRECTORY",
            "Set by systemd: its file ddprun-token contains the run's secret "
            "(LoadCredential=ddprun-token:FILE)."),
      Entry(
          "PYTHON_EXEC",
          "The Python that runs scripts and modules (that of ddprun's own virtual environment, or "
          "python3 in PATH)."),
      Entry("OTEL_EXPORTER_OTLP_ENDPOINT",
            "Send the run as an OpenTelemetry trace to this URL, by OTLP as http/json. "
            "OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, "
            "OTEL_TRACES_EXPORTER and OTEL_SDK_DISABLED are read too."),
      Entry("TRACEPARENT", "The parent of that trace (W3C). The workers get that of their round."),
      Entry("LOGLEVEL", "INFO: also print which flags have no effect."),
      ".PP\nFor the workers ddprun sets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, "
      "GROUP_RANK, MASTER_ADDR,\nMASTER_PORT and the other variables of torchrun.\n");
}

}  // namespace

std::string ManPage() {
  std::string page = absl::StrCat(
      ".TH DDPRUN 1 \"\" \"ddprun ", kSoftwareVersion, "\" \"User Commands\"\n",
      ".SH NAME\nddprun \\- start distributed training on one machine or many\n",
      ".SH SYNOPSIS\n\\fBddprun\\fR [\\fIFLAGS\\fR] \\fIPROGRAM\\fR [\\fIARGUMENTS\\fR...]\n");
  for (const SubCommand& command : SubCommands()) {
    absl::StrAppend(&page, ".br\n\\fBddprun ", Roff(command.name), "\\fR [\\fIFLAGS\\fR]\n");
  }
  absl::StrAppend(&page, ".SH DESCRIPTION\n", Roff(kAbout), Roff(kSpelling), ".SH OPTIONS\n");
  const auto section = [&page](absl::string_view title, absl::Span<const Flag> flags) {
    absl::StrAppend(&page, ".SS ", Roff(title), "\n");
    for (const Flag& flag : flags) absl::StrAppend(&page, FlagEntry(flag));
  };
  for (const FlagTopic& topic : kFlagTopics) section(topic.title, FlagsIn(topic.flags));
  section("General", kGeneralFlags);
  absl::StrAppend(&page, ".SH COMMANDS\n");
  for (const SubCommand& command : SubCommands())
    section(absl::StrCat("ddprun ", command.name, ": ", command.help), command.flags);
  return absl::StrCat(
      page, Environment(), ExitStatus(), ".SH EXAMPLES\n.EX\n",
      Roff("ddprun --standalone --nproc-per-node 2 train --epochs 1"), "\n",
      Roff("ddprun --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node gpu train"),
      "\n", Roff("ddprun --config ddprun.yaml"), "\n.EE\n");
}

}  // namespace ddprun
