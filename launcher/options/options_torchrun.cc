// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_groups.h"

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr double kMonitorIntervalSecondsMax = 24.0 * 3600;

void ReadLogsSpecs(Reader& reader) {
  const Value* value = reader.Find("--logs-specs");
  if (value == nullptr || value->text.empty() || value->text == "default") return;
  reader.FailWith(absl::StrCat(
      value->source, " '", value->text,
      "' names a Python class that torchrun loads into itself, which ddprun cannot; see ddprun "
      "--help logs for where output can go"));
}

}  // namespace

const std::vector<Flag> kTorchrunFlags = {
    {"--monitor-interval", 0, "SECONDS", "No effect: the kernel reports a worker's end at once."},
    {"--start-method", 0, "spawn|fork|forkserver", "No effect: it concerns Python functions."},
    {"--event-log-handler", 0, "null|console",
     "console: the same as --event-log /dev/stderr (null)."},
    {"--logs-specs", 0, "NAME", "default; another one names a Python class, and is refused."},
    {"--use-env", 0, nullptr,
     "No effect: workers always have LOCAL_RANK. For a program that wants it as an argument, write "
     "'--local-rank=${local_rank}' after its name."},
};

TorchrunOptions ReadTorchrunOptions(Reader& reader) {
  TorchrunOptions options;
  if (reader.Seconds("--monitor-interval", kMonitorIntervalSecondsMax).has_value()) {
    options.notes.push_back(
        "--monitor-interval has no effect: the kernel tells of a worker's end at once");
  }
  if (reader.Find("--start-method") != nullptr) {
    reader.Choice<int>("--start-method", {{"spawn", 0}, {"fork", 0}, {"forkserver", 0}}, 0);
    options.notes.push_back(
        "--start-method has no effect: it is of Python functions, and workers are programs");
  }
  options.logs_events_to_console = reader.Choice<bool>(
      "--event-log-handler", {{"null", false}, {"console", true}, {"dynamic_rendezvous", false}},
      false);
  ReadLogsSpecs(reader);
  if (reader.Switch("--use-env")) {
    options.notes.push_back("--use-env has no effect: workers always have LOCAL_RANK");
  }
  return options;
}

}  // namespace ddprun
