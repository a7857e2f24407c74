// SPDX-License-Identifier: Apache-2.0
// ddpctl replay.
#include <sys/stat.h>

#include <chrono>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/temp_dir.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/ctl/status_text.h"
#include "launcher/replay/capsule.h"
#include "launcher/replay/replay.h"
#include "launcher/runs/event_record.h"
#include "launcher/runs/run_folder.h"
#include "launcher/runs/step_lines.h"
#include "proto/json_text.h"
#include "proto/output_file.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

// A run of this user has no name with a dot or a slash in it.
bool IsFile(const std::string& name) {
  struct stat facts {};
  return absl::StrContains(name, '/') ||
         (absl::StrContains(name, '.') && stat(name.c_str(), &facts) == 0);
}

// "the verdict is the recorded one", or where they part.
struct Comparison {
  std::string sentence;
  bool differs = false;
};

Comparison Compare(const Replayed& replayed, const std::string& folder) {
  const Json recorded = Json::parse(ReadVerdict(folder), nullptr, /*allow_exceptions=*/false);
  if (!recorded.is_object()) return {"the run has no recorded verdict"};
  if (!replayed.verdict.has_value()) {
    return {"the record of its steps ends before the run's end, which is recorded: " +
                recorded.value("text", ""),
            true};
  }
  const std::string part = WhereTheyPart(recorded, *replayed.verdict);
  if (part.empty()) return {"the verdict is the recorded one"};
  return {"the verdict is not the recorded one: " + part, true};
}

Json ToJson(const Replayed& replayed, const Comparison* comparison, const std::string& status) {
  Json lines = Json::array();
  for (const ReplayLine& line : replayed.lines) {
    lines.push_back({{"at", std::chrono::duration<double>(line.at).count()},
                     {"text", line.text},
                     {"ranks", line.ranks}});
  }
  Json json = {{"version", 1},
               {"seconds", std::chrono::duration<double>(replayed.length).count()},
               {"whole", replayed.is_whole},
               {"lines", std::move(lines)},
               {"status", Json::parse(status)["runs"][0]}};
  json["comparison"] = comparison == nullptr ? Json() : Json(comparison->sentence);
  json["same"] = comparison == nullptr ? Json() : Json(!comparison->differs);
  return json;
}

int ReplayFolder(const CtlOptions& options, const std::string& folder) {
  std::vector<JournalRecord> records = ParseSteps(ReadSteps(folder));
  if (records.empty()) {
    return CtlFailed(absl::NotFoundError(
        "its steps are not recorded: the rendezvous service was not in the detached ddprun"));
  }
  if (!options.save.empty()) {
    const auto text = ScenarioText(std::move(records));
    const absl::Status status = text.ok() ? WriteWholeFile(options.save, *text) : text.status();
    return status.ok() ? Show(absl::StrCat("wrote ", options.save, "\n")) : CtlFailed(status);
  }
  const bool until = options.until.count() != 0;
  const auto replayed = ReplaySteps(std::move(records),
                                    until ? std::optional<Duration>(options.until) : std::nullopt);
  if (!replayed.ok()) return CtlFailed(replayed.status());
  const std::optional<Comparison> comparison =
      until ? std::nullopt : std::optional(Compare(*replayed, folder));
  const int code = comparison && comparison->differs ? 1 : 0;
  const ServiceStatus service{.runs = {replayed->status}};
  if (options.json) {
    const std::string status = StatusJson(service, "the record");
    Show(JsonText(ToJson(*replayed, comparison ? &*comparison : nullptr, status)) + "\n");
    return code;
  }
  std::string text = replayed->is_whole
                         ? ""
                         : "the record begins within the run: the oldest part of a long one goes "
                           "first\n";
  text += LinesText(replayed->lines, options.rank);
  if (until) absl::StrAppend(&text, "\n", StatusText(service, "the record"));
  if (comparison) absl::StrAppend(&text, comparison->sentence, "\n");
  Show(text);
  return code;
}

}  // namespace

int ShowReplay(const CtlOptions& options) {
  if (IsFile(options.run_id)) {
    const absl::StatusOr<std::string> folder = MakeTempDir();
    if (!folder.ok()) return CtlFailed(folder.status());
    const absl::Cleanup remove = [&folder] { RemoveTempDir(*folder); };
    const absl::StatusOr<std::string> unpacked = Unpack(options.run_id, *folder);
    return unpacked.ok() ? ReplayFolder(options, *unpacked) : CtlFailed(unpacked.status());
  }
  const absl::StatusOr<std::string> runs = RunsFolder(ReadVariable);
  if (!runs.ok()) return CtlFailed(runs.status());
  const absl::StatusOr<KnownRun> run = FindRun(*runs, options.run_id, RunChoice::kAny);
  if (!run.ok()) return CtlFailed(run.status());
  return ReplayFolder(options, FolderOf(*runs, run->record.name));
}

}  // namespace ddprun
