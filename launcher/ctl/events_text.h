// SPDX-License-Identifier: Apache-2.0
// The output of `ddpctl events` and `ddpctl why`: events of a run (run_event.h) as JSON in, text
// out. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/runs/run_record.h"

namespace ddprun {

// Absent: it is no event, as where a full disk has cut it.
std::optional<nlohmann::ordered_json> ParseEvent(const std::string& line);

// "2026-11-29 03:04:05.1  round 2 begins: 8 workers on 2 nodes", in this machine's time zone.
std::string EventText(const nlohmann::ordered_json& event);

// The same without the time.
std::string EventWords(const nlohmann::ordered_json& event);

// What is known about a run, each part null or empty where it is not.
struct RunFacts {
  std::string name;
  nlohmann::ordered_json status;               // one of the runs of StatusJson(), while it goes on
  nlohmann::ordered_json verdict;              // VerdictJson()
  std::vector<nlohmann::ordered_json> events;  // in their order
  std::optional<KnownRun> known;               // of a detached run
};

// One object: what happened, what preceded it, what to do. STATUS.md documents its members; members
// are only added. `text` of it is the paragraph for people.
nlohmann::ordered_json Explain(const RunFacts& facts);

}  // namespace ddprun
