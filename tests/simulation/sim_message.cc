// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/sim_message.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rendezvous/base/overloaded.h"
#include "tests/simulation/sim_clock.h"

namespace ddprun {

std::string SimTrace::Last(std::size_t count) const {
  std::string text;
  const std::size_t from = lines_.size() - std::min(lines_.size(), count);
  for (std::size_t i = from; i < lines_.size(); ++i) {
    const std::chrono::duration<double> at = lines_[i].first - SimClock().now();
    absl::StrAppendFormat(&text, "%12.6f s  %s\n", at.count(), lines_[i].second);
  }
  return text;
}

std::string WordsOf(const Report& report) {
  return std::visit(
      Overloaded{
          [](const Join& join) {
            return absl::StrCat(join.resume ? "Join again " : "Join ", join.node_id.value);
          },
          [](const WorkerFailed& failed) {
            return absl::StrCat("WorkerFailed in round ", ToNumber(failed.round), ": ",
                                ToSentence(failed.failure));
          },
          [](const NodeSucceeded& done) {
            return absl::StrCat("NodeSucceeded in round ", ToNumber(done.round));
          },
          [](const NodeStopped& done) {
            return absl::StrCat("NodeStopped in round ", ToNumber(done.round));
          },
          [](const Leave&) { return std::string("Leave"); },
          [](const Heartbeat&) { return std::string("Heartbeat"); },
          [](const CanBeKept& keeps) {
            return absl::StrCat(keeps.round == kNoRound ? "its parked workers are ready: "
                                                        : "its workers can be kept: ",
                                keeps.all ? "yes" : "no");
          },
          [](const LogLines&) { return std::string("LogLines"); },
          [](const FaultReport&) { return std::string("FaultReport"); },
          [](const PreemptionReport&) { return std::string("PreemptionReport"); },
          [](const OwnerQueries&) { return std::string("OwnerQueries"); },
          [](const OwnerAnswers&) { return std::string("OwnerAnswers"); },
      },
      report);
}

std::string WordsOf(const Directive& directive) {
  return std::visit(
      Overloaded{
          [](const Accepted&) { return std::string("Accepted"); },
          [](const Waiting& waiting) { return absl::StrCat("Waiting: ", waiting.reason); },
          [](const Start& start) {
            return absl::StrCat("Start round ", ToNumber(start.round), " as node rank ",
                                start.node_rank, " of ", start.node_count);
          },
          [](const Stop& stop) {
            return absl::StrCat("Stop round ", ToNumber(stop.round), ": ", ToSentence(stop.cause));
          },
          [](const Finish& finish) {
            return absl::StrCat(
                "Finish: ", finish.verdict.success ? "success" : ToSentence(*finish.verdict.cause));
          },
          [](const Refused& refused) {
            return absl::StrCat("Refused: ", refused.status.message());
          },
          [](const LogWatches&) { return std::string("LogWatches"); },
          [](const StandBy&) { return std::string("stand by"); },
          [](const LogsTaken&) { return std::string("LogsTaken"); },
          [](const Fault&) { return std::string("Fault"); },
          [](const Preemption& preemption) { return ToSentence(preemption); },
          [](const OwnerQueries&) { return std::string("OwnerQueries"); },
          [](const OwnerAnswers&) { return std::string("OwnerAnswers"); },
          [](const ConnectionRefused&) { return std::string("ConnectionRefused"); },
      },
      directive);
}

}  // namespace ddprun
