// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/options_torchrun.h"

#include "absl/strings/str_cat.h"

namespace ddprun {
namespace {

constexpr double kMonitorIntervalSecondsMax = 24.0 * 3600;

void ReadLogsSpecs(Reader& reader) {
  const Value* value = reader.Find("--logs-specs");
  if (value == nullptr || value->text.empty()) return;
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
    {"--logs-specs", 0, "NAME", "Refused: it names a Python class."},
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
    reader.Choice("--start-method", {"spawn", "fork", "forkserver"}, "spawn");
    options.notes.push_back(
        "--start-method has no effect: it is of Python functions, and workers are programs");
  }
  options.event_log_handler =
      reader.Choice("--event-log-handler", {"null", "console", "dynamic_rendezvous"}, "null");
  ReadLogsSpecs(reader);
  if (reader.Switch("--use-env")) {
    options.notes.push_back("--use-env has no effect: workers always have LOCAL_RANK");
  }
  return options;
}

}  // namespace ddprun
