// SPDX-License-Identifier: Apache-2.0
// `ddprun --detach`: the run goes on in the background, beside a recorder.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/options/options.h"
#include "launcher/runs/run_report.h"
#include "rendezvous/security/token.h"

namespace ddprun {

// Forks, while the process has one thread.
//
// An int is an exit code, and nothing is left to do: in the process that the user started, which
// prints the run's name when its first round has begun, or what it said and why it did not; and in
// the recorder, at the run's end. A RunReport: in the process that is to become the run. There
// `options` name the run where it may have a name of its own.
//
// `arguments`: of this ddprun, for people. `token`: the result of TakeTokenVariable().
std::variant<int, RunReport> Detach(Options& options, const std::vector<std::string>& arguments,
                                    std::optional<absl::StatusOr<Token>>& token);

}  // namespace ddprun
