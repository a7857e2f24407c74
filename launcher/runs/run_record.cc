// SPDX-License-Identifier: Apache-2.0
#include "launcher/runs/run_record.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "proto/json_text.h"
#include "proto/text.h"
#include "rendezvous/base/printable.h"

namespace ddprun {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RunEnding, time, exit_code, words)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SecurityOptions, token_file, insecure, tls_cert,
                                                tls_key, tls_ca)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RunRecord, version, name, run_id, command,
                                                working_folder, host, pid, started_ms, begun,
                                                service, security)

namespace {

using Json = nlohmann::ordered_json;

constexpr char kEnding[] = "ending";
constexpr std::size_t kCommandWidth = 60;

std::string FirstLine(const std::string& text) {
  return std::string(absl::StripPrefix(text.substr(0, text.find('\n')), "ddprun: "));
}

std::string TimeText(std::int64_t seconds) {
  return absl::FormatTime("%Y-%m-%d %H:%M", absl::FromUnixSeconds(seconds), absl::LocalTimeZone());
}

std::string DurationText(std::int64_t seconds) {
  if (seconds < 60) return absl::StrCat(std::max<std::int64_t>(0, seconds), " s");
  if (seconds < 3600) return absl::StrFormat("%d:%02d min", seconds / 60, seconds % 60);
  return absl::StrFormat("%d:%02d h", seconds / 3600, seconds / 60 % 60);
}

std::string CommandText(const RunRecord& record) {
  std::vector<std::string> words;
  for (const std::string& word : record.command) words.push_back(ShellQuote(word));
  return CutText(Printable(absl::StrJoin(words, " ")), kCommandWidth);
}

}  // namespace

std::string ToJson(const RunRecord& record) {
  nlohmann::json json = record;
  for (nlohmann::json& word : json["command"]) word = Utf8Name(word.get<std::string>());
  if (record.ending.has_value()) json[kEnding] = *record.ending;
  return JsonText(json, 2) + "\n";
}

absl::StatusOr<RunRecord> ParseRunRecord(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError("it is no JSON object");
  try {
    auto record = json.get<RunRecord>();
    if (json.contains(kEnding)) record.ending = json[kEnding].get<RunEnding>();
    return record;
  } catch (const nlohmann::json::exception& thrown) {
    return absl::InvalidArgumentError(thrown.what());
  }
}

bool IsNamed(const RunRecord& record, const std::string& name) {
  return record.name == name || record.run_id == name;
}

std::string StateText(const KnownRun& run) {
  const RunRecord& record = run.record;
  if (record.ending.has_value()) {
    const std::string words = FirstLine(record.ending->words);
    return absl::StrCat("exit code ", record.ending->exit_code, words.empty() ? "" : ": ", words);
  }
  if (!run.live) return "killed with its recorder, or its machine ended";
  return record.begun ? "runs" : "begins";
}

std::string RunsText(const std::vector<KnownRun>& runs, std::int64_t now) {
  if (runs.empty())
    return "no run was started with ddprun --detach, or none of them is kept any more\n";
  std::vector<std::array<std::string, 5>> rows = {{"NAME", "STARTED", "TOOK", "COMMAND", "STATE"}};
  for (const KnownRun& run : runs) {
    const RunRecord& record = run.record;
    const std::int64_t end = record.ending.has_value() ? record.ending->time : now;
    const std::int64_t started = record.started_ms / 1000;
    const bool named = !record.run_id.empty() && record.run_id != record.name;
    rows.push_back({named ? absl::StrCat(record.name, " (", record.run_id, ")") : record.name,
                    TimeText(started), run.live || record.ending ? DurationText(end - started) : "",
                    CommandText(record), Printable(StateText(run))});
  }
  std::array<std::size_t, 5> widths{};
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      absl::StrAppendFormat(&line, "%-*s  ", static_cast<int>(widths[i]), row[i]);
    absl::StrAppend(&text, absl::StripTrailingAsciiWhitespace(line), "\n");
  }
  return text;
}

std::string RunsJson(const std::vector<KnownRun>& runs) {
  Json all = Json::array();
  for (const KnownRun& run : runs) {
    const RunRecord& record = run.record;
    Json one = {{"name", record.name},
                {"run_id", record.run_id},
                {"state", record.ending  ? "ended"
                          : !run.live    ? "lost"
                          : record.begun ? "running"
                                         : "starting"},
                {"host", record.host},
                {"pid", record.pid},
                {"started", record.started_ms / 1000},
                {"ended", nullptr},
                {"exit_code", nullptr},
                {"verdict", nullptr},
                {"service", record.service},
                {"folder", record.working_folder},
                {"command", record.command}};
    if (record.ending.has_value()) {
      one["ended"] = record.ending->time;
      one["exit_code"] = record.ending->exit_code;
      one["verdict"] = record.ending->words;
    }
    all.push_back(std::move(one));
  }
  return JsonText(Json{{"version", 1}, {"runs", std::move(all)}}) + "\n";
}

}  // namespace ddprun
