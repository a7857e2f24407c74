// SPDX-License-Identifier: Apache-2.0
// The events, samples, steps and verdict of a detached run in its folder: `events.jsonl`, one
// object a line (run_event.h), before it `events-1.jsonl`; the same of samples (run_sample.h) and
// of steps (step_lines.h); and `verdict.json` (VERDICT.md).
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rendezvous/base/owned_fd.h"

namespace ddprun {

// Written by the run's recorder. What a full disk does not take is lost: the run goes on.
class EventRecord {
 public:
  // `name`: "events", "samples" or "steps".
  EventRecord(std::string folder, std::string name)
      : folder_(std::move(folder)), name_(std::move(name)) {}
  // `lines`: each with its line end. Above kRunEventsBytesMax a new file begins.
  void Append(const std::string& lines);

 private:
  const std::string folder_;
  const std::string name_;
  OwnedFd file_;
  std::size_t bytes_ = 0;  // of the file
};

// Whole lines, without their line ends, in their order. None: nothing was recorded.
std::vector<std::string> ReadEvents(const std::string& folder);
std::vector<std::string> ReadSamples(const std::string& folder);
std::vector<std::string> ReadSteps(const std::string& folder);

absl::Status WriteVerdict(const std::string& folder, const std::string& json);
// Empty: there is none.
std::string ReadVerdict(const std::string& folder);

}  // namespace ddprun
