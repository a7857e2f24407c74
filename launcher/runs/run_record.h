// SPDX-License-Identifier: Apache-2.0
// What is known about a detached run: run.json in its folder, and what `ddpctl runs` shows. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rendezvous/security/credentials.h"

namespace ddprun {

struct RunEnding {
  std::int64_t time = 0;  // seconds since 1970
  int exit_code = 0;
  std::string words;  // of its verdict; empty: it said nothing
  bool operator==(const RunEnding&) const = default;
};

// Members that another version does not write keep their defaults; unknown members are ignored.
struct RunRecord {
  int version = 1;
  std::string name;                  // of its folder; no two runs share one
  std::string run_id;                // of --rdzv-id; empty: it has none
  std::vector<std::string> command;  // ddprun's arguments
  std::string working_folder;
  std::string host;
  std::int64_t pid = 0;         // of its recorder: a signal to it is one to the run
  std::int64_t started_ms = 0;  // since 1970: several may start in one second
  bool begun = false;           // its first round has
  std::string service;          // "HOST:PORT" or "unix:PATH"; empty: not known yet
  SecurityOptions security;
  std::optional<RunEnding> ending;
};

std::string ToJson(const RunRecord& record);
// INVALID_ARGUMENT: a reason without a subject.
absl::StatusOr<RunRecord> ParseRunRecord(const std::string& text);

// A run, and whether its recorder is there. One that is gone and has left no ending was killed, or
// its machine was.
struct KnownRun {
  RunRecord record;
  bool live = false;
};

// "runs", "begins", "ended: exit code 1 ...".
std::string StateText(const KnownRun& run);
// Whether `name` means the run: its name, or its run id.
bool IsNamed(const RunRecord& record, const std::string& name);

// The table of `ddpctl runs`; `now`: seconds since 1970. Their order is kept.
std::string RunsText(const std::vector<KnownRun>& runs, std::int64_t now);
// Documented in RUNS.md; grows only.
std::string RunsJson(const std::vector<KnownRun>& runs);

}  // namespace ddprun
