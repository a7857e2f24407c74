// SPDX-License-Identifier: Apache-2.0
// ddpctl events and ddpctl why: from the run's service while it goes on, else from the folder of a
// detached run.
#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/base/command.h"
#include "launcher/base/limits.h"
#include "launcher/ctl/ctl_command.h"
#include "launcher/ctl/events_text.h"
#include "launcher/ctl/status_text.h"
#include "launcher/node/network.h"
#include "launcher/runs/event_record.h"
#include "launcher/runs/run_folder.h"
#include "launcher/supervisor/verdict.h"
#include "proto/input_file.h"
#include "proto/json_text.h"
#include "rendezvous/client/watch_client.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

// With -f the wait has no limit but the end of the run or of the connection.
constexpr std::chrono::hours kFollowTurn{1};

std::string Line(const CtlOptions& options, const std::string& json) {
  if (options.json) return json + "\n";
  const auto event = ParseEvent(json);
  return event.has_value() ? EventText(*event) + "\n" : "";
}

// The last ones of those from before.
int ShowLast(const CtlOptions& options, const std::vector<std::string>& lines) {
  const auto wanted = static_cast<std::size_t>(options.last_events);
  const std::size_t first = wanted > 0 && lines.size() > wanted ? lines.size() - wanted : 0;
  std::string text;
  for (std::size_t i = first; i < lines.size(); ++i) text += Line(options, lines[i]);
  return Show(text);
}

// Watches the run's events. Those from before come at once after the first message.
class EventWatch {
 public:
  EventWatch(const std::shared_ptr<ServiceChannel>& channel, const std::string& run_id, bool follow)
      : watch_(RunWatch::Open(channel, run_id, Question(follow))) {}

  // An event's line; absent: none until `until`. OUT_OF_RANGE: no more come.
  absl::StatusOr<std::optional<std::string>> Next(TimePoint until) {
    while (true) {
      auto news = watch_->Next(until);
      if (!news.ok()) return news.status();
      if (!news->has_value()) return std::nullopt;
      if (auto* event = std::get_if<RunEventLine>(&**news)) return std::move(event->json);
      if (std::holds_alternative<RunOver>(**news)) return absl::OutOfRangeError("the run is over");
      if (std::holds_alternative<RunWords>(**news)) {
        return absl::FailedPreconditionError(
            "the rendezvous service is of an older version, which keeps no events; its "
            "--event-log has them");
      }
    }
  }

 private:
  static RunQuestion Question(bool follow) {
    RunQuestion question;
    question.events = true;
    question.watch.follow = follow;
    return question;
  }

  const std::unique_ptr<RunWatch> watch_;
};

absl::StatusOr<std::vector<std::string>> EventsSoFar(const CtlOptions& options,
                                                     const std::shared_ptr<ServiceChannel>& channel,
                                                     const std::string& run_id) {
  EventWatch watch(channel, run_id, /*follow=*/false);
  const TimePoint deadline = std::chrono::steady_clock::now() + options.timeout;
  std::vector<std::string> lines;
  while (true) {
    auto line = watch.Next(deadline);
    if (absl::IsOutOfRange(line.status())) return lines;
    if (!line.ok()) return line.status();
    if (!line->has_value()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the rendezvous service at ", TargetOf(options.service),
                       " did not send its events within ",
                       std::chrono::duration<double>(options.timeout).count(),
                       " s; give it longer with --timeout"));
    }
    lines.push_back(**std::move(line));
  }
}

int Follow(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel) {
  EventWatch watch(channel, options.run_id, /*follow=*/true);
  while (true) {
    const auto line = watch.Next(std::chrono::steady_clock::now() + kFollowTurn);
    if (absl::IsOutOfRange(line.status())) return 0;
    if (!line.ok()) return CtlFailed(line.status());
    if (line->has_value() && Show(Line(options, **line)) != 0) return kExitFailure;
  }
}

int ShowWhy(const CtlOptions& options, const RunFacts& facts) {
  const Json why = Explain(facts);
  if (options.json) return Show(JsonText(why) + "\n");
  return Show(why["text"].get<std::string>() + "\n");
}

void Add(const std::vector<std::string>& lines, RunFacts& facts) {
  for (const std::string& line : lines) {
    if (auto event = ParseEvent(line)) facts.events.push_back(*std::move(event));
  }
}

}  // namespace

int ShowEvents(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel) {
  if (options.watch.follow && options.last_events == 0) return Follow(options, channel);
  const absl::StatusOr<RunStatus> run = TheRun(options, channel);
  if (!run.ok()) return CtlFailed(run.status());
  const auto lines = EventsSoFar(options, channel, run->run_id);
  return lines.ok() ? ShowLast(options, *lines) : CtlFailed(lines.status());
}

int ShowPastEvents(const CtlOptions& options, const std::string& folder) {
  return ShowLast(options, ReadEvents(folder));
}

absl::StatusOr<RunFacts> FactsOf(const CtlOptions& options,
                                 const std::shared_ptr<ServiceChannel>& channel) {
  const absl::StatusOr<RunStatus> run = TheRun(options, channel);
  if (!run.ok()) return run.status();
  RunFacts facts;
  facts.name = run->run_id;
  const std::string status = StatusJson({.software_version = "", .runs = {*run}}, "");
  facts.status = Json::parse(status)["runs"][0];
  if (run->verdict.has_value()) {
    facts.verdict = Json::parse(VerdictJson({.run_id = run->run_id,
                                             .host = HostName(),
                                             .exit_code = run->verdict->exit_code,
                                             .text = "",
                                             .verdict = run->verdict}));
  }
  const auto lines = EventsSoFar(options, channel, run->run_id);
  if (!lines.ok()) return lines.status();
  Add(*lines, facts);
  return facts;
}

RunFacts PastFacts(const KnownRun& run, const std::string& folder) {
  RunFacts facts;
  facts.name = run.record.name;
  facts.known = run;
  facts.verdict = Json::parse(ReadVerdict(folder), nullptr, /*allow_exceptions=*/false);
  Add(ReadEvents(folder), facts);
  return facts;
}

int ShowWhy(const CtlOptions& options, const std::shared_ptr<ServiceChannel>& channel) {
  const absl::StatusOr<RunFacts> facts = FactsOf(options, channel);
  return facts.ok() ? ShowWhy(options, *facts) : CtlFailed(facts.status());
}

int ShowPastWhy(const CtlOptions& options, const KnownRun& run, const std::string& folder) {
  return ShowWhy(options, PastFacts(run, folder));
}

int ShowWhyOfFile(const CtlOptions& options) {
  const absl::StatusOr<std::string> text =
      ReadRegularFile(options.verdict_file, kRunVerdictBytesMax);
  if (!text.ok()) {
    return CtlFailed(absl::NotFoundError(
        absl::StrCat("cannot read ", options.verdict_file, ": ", text.status().message())));
  }
  RunFacts facts;
  facts.verdict = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!facts.verdict.is_object() || !facts.verdict.contains("exit_code")) {
    return CtlFailed(absl::InvalidArgumentError(absl::StrCat(
        options.verdict_file, " is no verdict of a run; --verdict-file of ddprun writes one")));
  }
  const auto run_id = facts.verdict.find("run_id");
  facts.name = run_id != facts.verdict.end() && run_id->is_string() ? run_id->get<std::string>()
                                                                    : options.verdict_file;
  return ShowWhy(options, facts);
}

}  // namespace ddprun
