// SPDX-License-Identifier: Apache-2.0
// Flags about what is said of a run when it is over. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/base/flags.h"

namespace ddprun {

enum class VerdictForm { kText, kJson };

struct VerdictOptions {
  VerdictForm form = VerdictForm::kText;  // on stderr
  std::string file;                       // as JSON; empty: none
  // TORCHELASTIC_ERROR_FILE, whose reader started this ddprun: its failure record; empty: none.
  std::string record_file;
};

extern const std::vector<Flag> kVerdictFlags;

VerdictOptions ReadVerdictOptions(Reader& reader);

}  // namespace ddprun
