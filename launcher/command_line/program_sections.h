// SPDX-License-Identifier: Apache-2.0
// The programs of a command line with several: `ddprun FLAGS --role A:6 prog ... : --role B:2
// prog`. Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/flags.h"
#include "launcher/options/options.h"

namespace ddprun {

// The arguments before the first section's end and those of each section after it, without the
// colons. A section begins after a ":" that --role follows, so that every other ":" stays an
// argument of a program.
std::vector<std::vector<std::string>> SplitSections(const std::vector<std::string>& arguments);

// A section after the first. INVALID_ARGUMENT: one sentence.
absl::StatusOr<ProgramSection> ParseSection(const std::vector<std::string>& arguments);

// What the sections of a run must not be together.
void CheckSections(Reader& reader, const Options& options);

// The arguments that ParseSection() reads, after a colon: for the nodes of a head.
std::vector<std::string> ArgumentsOf(const ProgramSection& section);

// A warning about a ":" that looks like the begin of a section and is none; empty: there is none.
std::string ColonWarning(const Options& options);

}  // namespace ddprun
