// SPDX-License-Identifier: Apache-2.0
// The verdict for programs (pure). Names and meanings are in VERDICT.md; names are only ever added.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/values/session_types.h"

namespace ddprun {

struct RunEnd {
  std::string run_id;  // empty: it had none yet
  std::string host;    // of this ddprun
  int exit_code = 0;   // of this ddprun
  std::string text;    // what people read; empty on success
  std::optional<Verdict> verdict;
};

// One object in one line, without its line end.
std::string VerdictJson(const RunEnd& end);

}  // namespace ddprun
