// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/str_cat.h"
#include "launcher/options/run_flags.h"

namespace ddprun {

void NoteMonitorInterval(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  std::chrono::milliseconds unused;
  ReadInto(reader, flag, value, unused);
  options.notes.push_back(
      "--monitor-interval has no effect: the kernel tells of a worker's end at once");
}

void NoteStartMethod(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  ReadChoice(reader, flag, value);
  options.notes.push_back(
      "--start-method has no effect: it is of Python functions, and workers are programs");
}

void ReadEventLogHandler(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  options.logs_events_to_console = ReadChoice(reader, flag, value) == 1;
}

void CheckLogsSpecs(Reader& reader, const Flag&, const Value& value, Options&) {
  if (value.text.empty() || value.text == "default") return;
  reader.FailWith(absl::StrCat(
      value.source, " '", value.text,
      "' names a Python class that torchrun loads into itself, which ddprun cannot; see ddprun "
      "--help logs for where output can go"));
}

void NoteUseEnv(Reader& reader, const Flag& flag, const Value& value, Options& options) {
  bool given = false;
  ReadInto(reader, flag, value, given);
  if (given) options.notes.push_back("--use-env has no effect: workers always have LOCAL_RANK");
}

}  // namespace ddprun
