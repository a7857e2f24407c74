// SPDX-License-Identifier: Apache-2.0
// OpenTelemetry's environment variables, and W3C's trace context. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/base/flags.h"
#include "rendezvous/values/session_types.h"

namespace ddprun {

// The ids of a span, in lower-case hex, as OTLP's JSON has them.
struct TraceContext {
  std::string trace_id;  // 32 digits
  std::string span_id;   // 16 digits
  bool sampled = true;
  bool operator==(const TraceContext&) const = default;
};

// W3C's traceparent, "00-TRACE-SPAN-01". Absent: it is none.
std::optional<TraceContext> ParseTraceparent(std::string_view text);
std::string ToTraceparent(const TraceContext& context);

// A span of the run whose own is `run`: the same wherever it is asked for.
TraceContext SpanOfRun(const TraceContext& run, const std::string& name, std::uint64_t number);
inline constexpr char kRoundSpan[] = "round";

// TRACEPARENT=..., with which the spans of the round's workers are children of the round's. Absent:
// nobody sends the run's trace.
std::optional<std::string> TraceVariable(const Start& start);

using TextPairs = std::vector<std::pair<std::string, std::string>>;

struct TraceSettings {
  std::string url;       // of the traces; empty: they are not sent
  TextPairs headers;     // of each request
  TextPairs attributes;  // of the resource
  std::optional<TraceContext> parent;
  std::string warning;  // a sentence; empty: none
};

// OBSERVING.md has the variables.
TraceSettings ReadTraceSettings(const GetVariable& get_variable, const std::string& host);

}  // namespace ddprun
