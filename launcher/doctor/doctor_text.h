// SPDX-License-Identifier: Apache-2.0
// What `ddprun doctor` shows: a table for people, JSON for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/doctor/doctor_rules.h"

namespace ddprun {

// Lines of at most 80 columns.
std::string DoctorText(const Checkup& checkup, const std::vector<Finding>& findings);

// One line. Of the nodes' environments there are only the names of what differs, in the findings.
std::string DoctorJson(const Checkup& checkup, const std::vector<Finding>& findings);

}  // namespace ddprun
