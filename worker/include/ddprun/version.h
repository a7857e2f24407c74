// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ddprun {

// Version of the library that is loaded: "0.1.0".
const char* Version();

}  // namespace ddprun
