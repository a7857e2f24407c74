// SPDX-License-Identifier: Apache-2.0
// Reads the command line of ddprun. Pure: arguments and variables in, values out.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/base/flags.h"
#include "launcher/command_line/help_text.h"
#include "launcher/command_line/settings.h"
#include "launcher/options/options.h"

namespace ddprun {

// A run, or `ddprun doctor`, which has additional flags and needs no program.
enum class Purpose { kRun, kDoctor };

std::vector<Flag> AllFlags();  // of all topics

// `arguments` without argv[0]. The command line overrides PET_<NAME> variables, these override
// files (settings.h), and these the defaults. Everything after the program belongs to the program.
// Errors: one sentence for people.
absl::StatusOr<std::variant<Options, ShowText>> ParseOptions(
    const std::vector<std::string>& arguments, const GetVariable& get_variable,
    const ReadFile& read_file = NoFiles, Purpose purpose = Purpose::kRun);

}  // namespace ddprun
