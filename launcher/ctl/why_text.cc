// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <iterator>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "launcher/ctl/events_text.h"
#include "rendezvous/base/printable.h"

namespace ddprun {
namespace {

using Json = nlohmann::ordered_json;

// What preceded the end: at most so many events, and none that is older.
constexpr std::size_t kEventsBefore = 4;
constexpr double kSecondsBefore = 600;

std::string Text(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

std::int64_t Number(const Json& json, const char* name, std::int64_t otherwise) {
  const auto it = json.find(name);
  return it != json.end() && it->is_number() ? it->get<std::int64_t>() : otherwise;
}

double Seconds(const Json& event) {
  const auto it = event.find("monotonic");
  return it != event.end() && it->is_number() ? it->get<double>() : 0;
}

Json Object(const Json& json, const char* name) {
  const auto it = json.find(name);
  return it != json.end() && it->is_object() ? *it : Json();
}

std::string Sentence(std::string text) {
  absl::StripAsciiWhitespace(&text);
  if (text.empty()) return "";
  text[0] = absl::ascii_toupper(static_cast<unsigned char>(text[0]));
  const char last = text.back();
  if (last != '.' && last != '?' && last != '!') text.push_back('.');
  return text;
}

// ---- What to do

std::string OfRank(const Json& cause) {
  const std::int64_t rank = Number(cause, "rank", -1);
  return rank < 0 ? "" : absl::StrCat(" --rank ", rank);
}

std::string OnHost(const Json& cause) {
  const std::string host = Text(cause, "host");
  return host.empty() ? "that machine" : host;
}

// By kind of failure (VERDICT.md), where its evidence says nothing more.
std::string NextStep(const Json& cause) {
  if (std::string advice = Text(cause, "advice"); !advice.empty()) return advice;
  const std::string kind = Text(cause, "kind");
  const std::string logs = absl::StrCat("ddpctl logs", OfRank(cause),
                                        " (ddpctl attach --all of a "
                                        "detached run)");
  if (kind == "worker_exited") {
    return Text(cause, "message").empty()
               ? absl::StrCat("read its last lines: ", logs, " has them")
               : absl::StrCat("mend that error in the program; ", logs, " has what it printed");
  }
  if (kind == "worker_signaled") {
    const std::string core = Text(cause, "core");
    return core.empty() ? absl::StrCat(
                              "run it with a core file (ulimit -c unlimited) or under a "
                              "debugger; ",
                              logs, " has what it printed")
                        : absl::StrCat("look at its core: ", core);
  }
  static const std::map<std::string, std::string> steps = {
      {"spawn_failed",
       "check on HOST that the program is there, that it can be executed, and that its #! line is "
       "right"},
      {"node_lost",
       "check HOST: whether it is up, `dmesg` and the journal there, and its network; with spare "
       "nodes (--nnodes MIN:MAX) a run goes on without it"},
      {"node_interrupted",
       "find out who ended ddprun on HOST: the scheduler's time limit or preemption, or a person"},
      {"join_timeout",
       "start the missing nodes with the same --rdzv-endpoint and --rdzv-id, or wait longer with "
       "--join-timeout; `ddprun doctor` on two nodes checks the network between them"},
      {"worker_hung",
       "read the stacks (in the verdict, and in rank_R/stacks.txt where there are log files) of "
       "the rank that is named; if it only needs longer, raise --hang-timeout, or report progress"},
      {"collective_failed",
       "look at the other ranks first: a collective fails where a peer is gone, stuck or slower "
       "than the timeout of the process group"},
      {"worker_ended_early",
       "give all ranks the same number of steps: drop the last incomplete batch, or use DDP's "
       "join()"},
      {"run_stopped", "nothing is to be mended: it was stopped on purpose"},
      {"node_drained", "nothing is to be mended: the node left on purpose"},
      {"node_joined", "nothing is to be mended: the run grew"},
  };
  const auto step = steps.find(kind);
  if (step == steps.end()) return "";
  return absl::StrReplaceAll(step->second, {{"HOST", OnHost(cause)}});
}

// ---- What preceded it

bool Explains(const std::string& event) {
  static const char* const explaining[] = {
      "node.lost",   "node.left",    "node.notice",     "node.refused",   "round.broken",
      "rank.slow",   "rank.damaged", "ranks.wait",      "fault",          "worker.hung",
      "worker.left", "service.lost", "signal.received", "node.unhealthy", "notice.received"};
  return std::find(std::begin(explaining), std::end(explaining), event) != std::end(explaining);
}

// The last event that says how it ended; the end if there is none.
std::size_t Last(const std::vector<Json>& events) {
  for (std::size_t i = events.size(); i > 0; --i) {
    if (Text(events[i - 1], "event") == "round.broken") return i - 1;
  }
  return events.size();
}

Json Before(const RunFacts& facts, bool failed) {
  Json before = Json::array();
  const std::vector<Json>& events = facts.events;
  if (events.empty()) return before;
  const std::size_t end = failed ? Last(events) : events.size();
  const double moment = Seconds(end < events.size() ? events[end] : events.back());
  std::vector<const Json*> explaining;
  for (std::size_t i = 0; i < end; ++i) {
    if (Explains(Text(events[i], "event")) && moment - Seconds(events[i]) <= kSecondsBefore)
      explaining.push_back(&events[i]);
  }
  const std::size_t skipped =
      explaining.size() > kEventsBefore ? explaining.size() - kEventsBefore : 0;
  for (std::size_t i = skipped; i < explaining.size(); ++i) {
    const Json& event = *explaining[i];
    before.push_back({{"seconds_before", moment - Seconds(event)},
                      {"event", Text(event, "event")},
                      {"text", EventWords(event)}});
  }
  return before;
}

int Restarts(const RunFacts& facts) {
  if (facts.status.is_object()) return static_cast<int>(Number(facts.status, "restarts_used", 0));
  if (facts.verdict.is_object()) return static_cast<int>(Number(facts.verdict, "restarts_used", 0));
  return static_cast<int>(
      std::count_if(facts.events.begin(), facts.events.end(),
                    [](const Json& event) { return Text(event, "event") == "restart"; }));
}

// ---- What happened

struct State {
  std::string name;
  std::string text;
  Json cause;  // null: nothing failed
  Json exit_code;
};

State OfEnded(const RunFacts& facts, std::int64_t exit_code) {
  State state;
  state.exit_code = exit_code;
  state.cause = facts.verdict.is_object() ? Object(facts.verdict, "cause") : Json();
  state.name = exit_code == 0 ? "succeeded" : "failed";
  if (exit_code == 0) {
    state.text = absl::StrCat("run ", facts.name, " succeeded");
  } else {
    state.text = absl::StrCat("run ", facts.name, " failed with exit code ", exit_code);
  }
  if (facts.known.has_value() && facts.known->record.ending.has_value()) {
    const RunRecord& record = facts.known->record;
    absl::StrAppend(&state.text, " after ", record.ending->time - record.started_ms / 1000, " s");
    if (state.cause.is_null() && !record.ending->words.empty())
      absl::StrAppend(&state.text, ": ", absl::StripPrefix(record.ending->words, "ddprun: "));
  }
  return state;
}

State OfLive(const RunFacts& facts) {
  const Json& run = facts.status;
  State state;
  state.cause = Object(run, "last_failure");
  state.name = Text(run, "phase");
  state.text =
      absl::StrCat("run ", facts.name, " is ", state.name, ", round ", Number(run, "round", 0));
  if (const Json progress = Object(run, "progress"); progress.is_object()) {
    if (const std::int64_t step = Number(progress, "step", -1); step >= 0)
      absl::StrAppend(&state.text, ", step ", step);
    absl::StrAppendFormat(&state.text, ", whose last progress was %.1f s ago",
                          static_cast<double>(Number(progress, "age_ms", 0)) / 1000.0);
  }
  const auto add = [&state](const std::string& more) {
    if (!more.empty()) absl::StrAppend(&state.text, "; ", more);
  };
  add(Text(run, "reason"));
  add(Text(run, "collectives"));
  return state;
}

State StateOf(const RunFacts& facts) {
  if (facts.status.is_object()) {
    const Json verdict = Object(facts.status, "verdict");
    if (!verdict.is_object()) return OfLive(facts);
    State state = OfEnded(facts, Number(verdict, "exit_code", 1));
    if (state.cause.is_null() && state.exit_code != 0)
      state.cause = Object(facts.status, "last_failure");
    return state;
  }
  if (facts.verdict.is_object()) return OfEnded(facts, Number(facts.verdict, "exit_code", 1));
  if (facts.known.has_value() && facts.known->record.ending.has_value())
    return OfEnded(facts, facts.known->record.ending->exit_code);
  State lost{.name = "lost", .text = "", .cause = nullptr, .exit_code = nullptr};
  lost.text = absl::StrCat("run ", facts.name,
                           " ended without a verdict: its recorder was killed, or its machine "
                           "went down");
  if (!facts.events.empty())
    absl::StrAppend(&lost.text, "; the last event: ", EventText(facts.events.back()));
  return lost;
}

std::string NextOf(const State& state, const RunFacts& facts) {
  if (state.name == "lost") {
    const std::string host = facts.known.has_value() ? facts.known->record.host : "";
    return absl::StrCat("see `last -x` and `dmesg` on ", host.empty() ? "its machine" : host,
                        ", then start it again; train goes on from its last checkpoint");
  }
  if (state.name == "running" && !Text(facts.status, "collectives").empty())
    return "ddpctl stacks RANK prints what the rank that is waited for does";
  if (state.cause.is_null()) return "";
  return NextStep(state.cause);
}

}  // namespace

Json Explain(const RunFacts& facts) {
  const State state = StateOf(facts);
  const bool ended = !state.exit_code.is_null();
  const Json before = Before(facts, /*failed=*/!state.cause.is_null());
  const int restarts = Restarts(facts);
  const std::string next = NextOf(state, facts);
  std::string text = Sentence(state.text);
  if (state.cause.is_object()) {
    absl::StrAppend(&text, ended ? " The first cause: " : " Its last round ended: ",
                    Text(state.cause, "sentence"), ".");
    const std::string message = Text(state.cause, "message");
    if (!message.empty() && Text(state.cause, "sentence").find(message) == std::string::npos)
      absl::StrAppend(&text, " It said: ", Sentence(message));
    const Json places = Object(state.cause, "collectives");
    if (const std::string where = places.is_object() ? Text(places, "sentence") : "";
        !where.empty())
      absl::StrAppend(&text, " ", Sentence(where));
  }
  if (restarts > 0)
    absl::StrAppend(&text, " It was restarted ", restarts, restarts == 1 ? " time." : " times.");
  for (const Json& event : before) {
    absl::StrAppendFormat(&text, " %.1f s before: %s", event["seconds_before"].get<double>(),
                          Sentence(Text(event, "text")));
  }
  if (!next.empty()) absl::StrAppend(&text, " What to do: ", Sentence(next));
  Json cause = nullptr;
  if (state.cause.is_object()) {
    for (const char* name : {"kind", "sentence", "rank", "local_rank", "node_rank", "host",
                             "exit_code", "signal", "message"}) {
      if (state.cause.contains(name)) cause[name] = state.cause[name];
    }
  }
  return {{"version", 1},
          {"run", facts.name},
          {"state", state.name},
          {"exit_code", state.exit_code},
          {"cause", std::move(cause)},
          {"restarts", restarts},
          {"before", before},
          {"next", next.empty() ? Json(nullptr) : Json(next)},
          {"text", Printable(text)}};
}

}  // namespace ddprun
