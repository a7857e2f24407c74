// SPDX-License-Identifier: Apache-2.0
// The output of `ddprun doctor`: a table, or JSON. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/doctor_rules.h"

namespace ddprun {

// Lines of at most 80 columns.
std::string DoctorText(const Checkup& checkup, const std::vector<Finding>& findings);

// One line of JSON. It does not contain the nodes' environments, apart from the findings on them.
std::string DoctorJson(const Checkup& checkup, const std::vector<Finding>& findings);

}  // namespace ddprun
