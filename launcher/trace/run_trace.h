// SPDX-License-Identifier: Apache-2.0
// Core: the spans of a run, from what its agent hears. Pure.
//
//   run                    from the start of ddprun to its end
//     round                from the order to start its workers until it is over
//       checkpoint         of rank 0, as it reports that it saves
//     recovery             from the end of a round until the next one begins
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/trace/trace_settings.h"
#include "proto/progress_message.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

using TraceTime = std::chrono::system_clock::time_point;

struct Span {
  std::string name;
  TraceContext context;
  std::string parent{};  // its span id; empty: none
  TraceTime begin{};
  TraceTime end{};
  std::optional<std::string> error{};  // absent: it did not fail
  std::vector<std::pair<std::string, std::variant<std::int64_t, double, std::string>>> attributes{};
};

class RunTrace {
 public:
  RunTrace(TraceContext run, std::string parent, TraceTime begin);

  // A round that begins again after the connection broke is the same.
  void OnStart(const Start& start, TraceTime now);
  void OnStop(const Stop& stop, TraceTime now);
  void OnFinish(const Verdict& verdict, TraceTime now);
  // Of rank 0.
  void OnProgress(const ProgressMessage& message, TraceTime now);
  // `text`: the verdict. `lost`: spans that were not sent.
  void OnEnd(int exit_code, const std::string& text, std::uint64_t lost, TraceTime now);

  // Spans that have ended since.
  std::vector<Span> TakeEnded() { return std::exchange(ended_, {}); }

 private:
  Span Begin(const char* name, std::uint64_t number, const std::string& parent, TraceTime now);
  void End(std::optional<Span>& span, std::optional<std::string> error, TraceTime now);
  void EndRound(const Failure* cause, TraceTime now);

  Span run_;
  RoundId round_number_ = kNoRound;
  std::optional<Span> round_;
  std::optional<Span> recovery_;
  std::optional<Span> checkpoint_;
  std::uint64_t checkpoints_ = 0;
  std::string cause_;  // of the last round that broke
  std::vector<Span> ended_;
};

// The body of an OTLP request, by OTLP's JSON: ids in hex, 64-bit numbers as text. Pure.
std::string OtlpJson(const std::vector<Span>& spans, const TextPairs& resource);

}  // namespace ddprun
