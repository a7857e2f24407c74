// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/wire/log_convert.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/limits.h"
#include "rendezvous/base/overloaded.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/wire/failure_convert.h"
#include "rendezvous/wire/scalars.h"

namespace ddprun {
namespace {

v1::LogWatch ToProto(const LogWatch& watch) {
  v1::LogWatch message;
  message.set_id(watch.id);
  message.set_lines(watch.lines);
  message.set_follow(watch.follow);
  AddRanges(watch.ranks, message.mutable_ranks());
  message.set_without_stdout(watch.without_stdout);
  message.set_without_stderr(watch.without_stderr);
  message.set_resumed(watch.resumed);
  message.set_received(watch.received);
  return message;
}

LogWatch FromProto(const v1::LogWatch& message) {
  LogWatch watch;
  watch.id = message.id();
  watch.lines = std::clamp(message.lines(), 0, kWatchLinesMax);
  watch.follow = message.follow();
  watch.ranks = RangesOf(message.ranks(), kWatchNamesMax);
  watch.without_stdout = message.without_stdout();
  watch.without_stderr = message.without_stderr();
  watch.resumed = message.resumed();
  watch.received = message.received();
  return watch;
}

}  // namespace

v1::LogLines ToProto(const LogLines& lines) {
  v1::LogLines message;
  message.set_watch(lines.watch);
  message.set_number(lines.number);
  message.set_left_out(lines.left_out);
  for (const LogLine& line : lines.lines) {
    v1::LogLine* to = message.add_lines();
    to->set_rank(line.rank);
    to->set_round(line.round);
    to->set_is_stderr(line.is_stderr);
    to->set_prefix(line.prefix);
    to->set_text(line.text);
  }
  message.set_tail_end(lines.tail_end);
  return message;
}

LogLines FromProto(const v1::LogLines& message) {
  LogLines lines;
  lines.watch = message.watch();
  lines.number = message.number();
  lines.left_out = message.left_out();
  lines.lines.reserve(static_cast<std::size_t>(message.lines_size()));
  for (const v1::LogLine& line : message.lines()) {
    lines.lines.push_back(
        {line.rank(), line.round(), line.is_stderr(), line.prefix(), line.text()});
  }
  lines.tail_end = message.tail_end();
  return lines;
}

v1::LogWatches ToProto(const LogWatches& watches) {
  v1::LogWatches message;
  for (const LogWatch& watch : watches.watches) *message.add_watches() = ToProto(watch);
  return message;
}

LogWatches FromProto(const v1::LogWatches& message) {
  LogWatches watches;
  const int count = std::min(message.watches_size(), static_cast<int>(kWatchesMax));
  for (int i = 0; i < count; ++i) watches.watches.push_back(FromProto(message.watches(i)));
  return watches;
}

v1::WatchRunRequest ToProto(const RunQuestion& question, const std::string& run_id) {
  v1::WatchRunRequest message;
  message.set_run_id(ToUtf8(run_id));
  message.set_output(question.output);
  *message.mutable_watch() = ToProto(question.watch);
  for (const std::string& node : question.nodes) message.add_nodes(ToUtf8(node));
  return message;
}

RunQuestion FromProto(const v1::WatchRunRequest& message) {
  RunQuestion question;
  question.output = message.output();
  question.watch = FromProto(message.watch());
  const int count = std::min(message.nodes_size(), static_cast<int>(kWatchNamesMax));
  for (int i = 0; i < count; ++i) question.nodes.push_back(PrintableName(message.nodes(i)));
  return question;
}

v1::RunNews ToProto(const RunNews& news) {
  v1::RunNews message;
  std::visit(Overloaded{[&](const WatchBegun& begun) {
                          message.mutable_begun()->set_run_id(ToUtf8(begun.run_id));
                          for (const std::string& node : begun.nodes) {
                            message.mutable_begun()->add_nodes(ToUtf8(node));
                          }
                          for (const std::string& node : begun.away) {
                            message.mutable_begun()->add_away(ToUtf8(node));
                          }
                        },
                        [&](const WorkerLines& said) {
                          message.mutable_lines()->set_node(ToUtf8(said.node));
                          message.mutable_lines()->set_node_rank(said.node_rank);
                          *message.mutable_lines()->mutable_lines() = ToProto(said.lines);
                        },
                        [&](const RunWords& words) { message.set_words(ToUtf8(words.text)); },
                        [&](const TailsEnd&) { message.mutable_tails_end(); },
                        [&](const RunOver& end) {
                          message.mutable_end();
                          if (!end.verdict) return;
                          *message.mutable_end()->mutable_verdict() = ToProto(*end.verdict);
                        }},
             news);
  return message;
}

absl::StatusOr<RunNews> FromProto(const v1::RunNews& message) {
  switch (message.kind_case()) {
    case v1::RunNews::kBegun: {
      WatchBegun begun{PrintableName(message.begun().run_id()), {}, {}};
      for (const std::string& node : message.begun().nodes())
        begun.nodes.push_back(PrintableName(node));
      for (const std::string& node : message.begun().away())
        begun.away.push_back(PrintableName(node));
      return begun;
    }
    case v1::RunNews::kLines:
      return WorkerLines{PrintableName(message.lines().node()), message.lines().node_rank(),
                         FromProto(message.lines().lines())};
    case v1::RunNews::kWords:
      return RunWords{Printable(message.words())};
    case v1::RunNews::kTailsEnd:
      return TailsEnd{};
    case v1::RunNews::kEnd:
      if (!message.end().has_verdict()) return RunOver{};
      return RunOver{FromService(message.end().verdict())};
    case v1::RunNews::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "the service sent an event of a kind that this version does not know; install the same ddprun");
}

}  // namespace ddprun
