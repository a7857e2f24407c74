// SPDX-License-Identifier: Apache-2.0
#include "launcher/options/option_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "launcher/base/limits.h"

namespace ddprun {
namespace {

constexpr char kPrefixFlag[] = "--log-line-prefix-template";
constexpr char kPrefixVariable[] = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";

StreamSpec ReadStreams(Reader& reader, const char* flag) {
  const Value* value = reader.Find(flag);
  if (value == nullptr) return StreamSpec();
  const std::optional<StreamSpec> spec = ParseStreamSpec(value->text);
  if (!spec.has_value()) {
    reader.Fail(*value,
                "0, 1, 2 or 3 (no stream, stdout, stderr, both), nor a list by local rank such as "
                "0:3,11:1");
  }
  return spec.value_or(StreamSpec());
}

std::vector<std::string> ReadFilters(Reader& reader, const char* flag) {
  const Value* value = reader.Find(flag);
  if (value == nullptr) return {};
  std::vector<std::string> filters = ParseFilters(value->text);
  if (std::find(filters.begin(), filters.end(), "") != filters.end()) {
    reader.Fail(*value,
                "a list of texts: one of them is empty, and every line has it (a comma that is "
                "meant is written twice)");
  }
  return filters;
}

std::optional<std::string> ReadPrefix(Reader& reader) {
  const Value* value = reader.Find(kPrefixFlag);
  if (value == nullptr) return std::nullopt;
  if (value->text.size() > kLinePrefixBytesMax) {
    reader.FailWith(absl::StrCat(value->source, " is longer than ", kLinePrefixBytesMax, " bytes"));
  }
  if (value->text.find_first_of("\r\n") != std::string::npos)
    reader.FailWith(absl::StrCat(value->source, " has a line end, which no prefix of a line can"));
  const absl::StatusOr<std::string> filled = FillPrefix(value->text, {});
  if (!filled.ok()) {
    reader.FailWith(
        absl::StrCat(value->source, " '", value->text, "' ", filled.status().message()));
  }
  return value->text;
}

}  // namespace

const std::vector<Flag> kLogFlags = {
    {"--log-dir", 0, "DIR", "Write each worker's output to DIR/RUN/round_N/rank_R."},
    {"--redirects", 'r', "0-3|LR:0-3,...",
     "Write to files only: 1 stdout, 2 stderr, 3 both; for all workers or by local rank (0)."},
    {"--tee", 't', "0-3|LR:0-3,...",
     "Write to files and to the console; values as --redirects (0)."},
    {"--local-ranks-filter", 0, "LR,...", "Show only these local ranks on the console."},
    {"--duplicate-stdout-filters", 0, "TEXT,...",
     "Copy lines of stdout with one of the texts (a comma is ,,) to filtered_stdout.log."},
    {"--duplicate-stderr-filters", 0, "TEXT,...", "The same for stderr."},
    {kPrefixFlag, 0, "TEMPLATE",
     "Prefix of each line: ${role_name} ${local_rank} ${rank} ${hostname} ([rank] or "
     "[host:rank])."},
    {"--log-rotate", 0, "SIZE[:FILES]",
     "Rotate a log file at SIZE (K, M, G); keep FILES of each (all)."},
    {"--log-fold", 0, "auto|always|never",
     "Show equal lines of several ranks once, as \"ranks 0-63: ...\"; auto: on a terminal."},
    {"--log-time", 0, "off|local|utc|relative",
     "Begin each line of a worker on the console with its time, or the seconds since the start "
     "(off)."},
};

void AddLogVariables(const GetVariable& get_variable, Values& values) {
  if (values.count(kPrefixFlag) != 0) return;
  const std::optional<std::string> text = get_variable(kPrefixVariable);
  if (text.has_value() && !text->empty()) values[kPrefixFlag] = {*text, kPrefixVariable};
}

LogOptions ReadLogOptions(Reader& reader) {
  LogOptions options;
  options.log_dir = reader.Text("--log-dir", "a folder", "");
  options.redirects = ReadStreams(reader, "--redirects");
  options.tee = ReadStreams(reader, "--tee");
  if (const Value* value = reader.Find("--local-ranks-filter"); value != nullptr) {
    const std::optional<std::set<int>> ranks = ParseLocalRanks(value->text);
    if (!ranks.has_value()) reader.Fail(*value, "a list of local ranks such as 0,1,2");
    options.local_ranks = ranks.value_or(std::set<int>{});
  }
  options.out_filters = ReadFilters(reader, "--duplicate-stdout-filters");
  options.err_filters = ReadFilters(reader, "--duplicate-stderr-filters");
  options.line_prefix = ReadPrefix(reader);
  if (const Value* value = reader.Find("--log-rotate"); value != nullptr) {
    const std::optional<LogRotation> rotation = ParseLogRotation(value->text);
    if (!rotation.has_value())
      reader.Fail(*value, "SIZE or SIZE:FILES, from 1K on, such as 100M or 1G:5");
    options.rotation = rotation.value_or(LogRotation{});
  }
  options.fold = reader.Choice<LogFold>(
      "--log-fold",
      {{"auto", LogFold::kAuto}, {"always", LogFold::kAlways}, {"never", LogFold::kNever}},
      LogFold::kAuto);
  options.time = reader.Choice<LogTime>("--log-time",
                                        {{"off", LogTime::kOff},
                                         {"local", LogTime::kLocal},
                                         {"utc", LogTime::kUtc},
                                         {"relative", LogTime::kRelative}},
                                        LogTime::kOff);
  return options;
}

}  // namespace ddprun
